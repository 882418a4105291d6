//! What a caller may ask of a container beyond its log: to run a command in it, or to see what it writes from now on.

use http::StatusCode;
use tokio::io::{AsyncWriteExt as _, SimplexStream, WriteHalf};

use super::channels::Outcome;
use super::conversation::Talk;
use super::logs::Line;
use super::query::{flag, pairs};
use super::{FOLLOW, LogFile, Refusal};
use crate::error::chain;
use crate::runtime::{ContainerId, Error, Output, Runtime, Session, Streams};

/// How much of a container's output waits for a client that is slow to read.
const WAITING: usize = 64 * 1024;

/// What is asked for.
#[derive(Debug, Default, PartialEq)]
pub struct Asked {
    command: Vec<String>,
    streams: Streams,
}

impl Asked {
    /// Reads a query; parameters as kubelets have them.
    pub fn parse(query: &str) -> Result<Self, String> {
        let mut asked = Self::default();
        for (name, value) in pairs(query) {
            let streams = &mut asked.streams;
            let wanted = match name.as_str() {
                "command" => {
                    asked.command.push(value);
                    continue;
                }
                "input" => &mut streams.stdin,
                "output" => &mut streams.stdout,
                "error" => &mut streams.stderr,
                "tty" => &mut streams.tty,
                _ => continue,
            };
            *wanted = flag(&value).ok_or_else(|| format!("{name}={value:?} cannot be used"))?;
        }
        let Streams { stdin, stdout, stderr, .. } = asked.streams;
        if !(stdin || stdout || stderr) {
            return Err("you must specify at least 1 of stdin, stdout, stderr".to_owned());
        }
        Ok(asked)
    }

    /// Runs the command in the container.
    pub async fn exec(self, runtime: &Runtime, id: &ContainerId) -> Result<Talk, Refusal> {
        if self.command.is_empty() {
            return Err((StatusCode::BAD_REQUEST, "you must specify a command for the container".to_owned()));
        }
        let session =
            runtime.session(id, &self.command, self.streams).await.map_err(|cause| refusal(&cause))?;
        let Session { stdin, stdout, stderr, terminal, mut command } = session;
        let container = id.container.clone();
        let outcome = async move {
            match command.code().await {
                Ok(code) if code == 0 || command.has_begun() => Outcome::Exit(code),
                Ok(_) => {
                    Outcome::Failed(format!("the command could not be started in container {container:?}"))
                }
                Err(cause) => Outcome::Failed(format!("the command's end was not seen: {cause}")),
            }
        };
        Ok(Talk { stdin, stdout, stderr, terminal, outcome: Box::pin(outcome) })
    }

    /// Shows what the container writes from now on, until it ends.
    pub async fn attach(self, runtime: &Runtime, id: &ContainerId) -> Result<Talk, Refusal> {
        let Streams { stdin, stdout, stderr, tty } = self.streams;
        if stdin || tty {
            let why = format!("container {:?} has neither standard input nor a terminal", id.container);
            return Err((StatusCode::BAD_REQUEST, why));
        }
        runtime.must_run(id).await.map_err(|cause| refusal(&cause))?;
        let mut file = LogFile::open(&runtime.log(id)).await.map_err(|cause| {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("its output cannot be read: {cause}"))
        })?;
        // What was written before is not shown.
        file.read().await.map_err(|cause| (StatusCode::INTERNAL_SERVER_ERROR, cause.to_string()))?;
        let [(stdout, out), (stderr, err)] = [stdout, stderr].map(|wanted| {
            let (reader, writer) = wanted.then(|| tokio::io::simplex(WAITING)).unzip();
            (reader.map(|reader| Box::pin(reader) as Output), writer)
        });
        let outcome = show(file, runtime.clone(), id.clone(), out, err);
        Ok(Talk { stdin: None, stdout, stderr, terminal: None, outcome: Box::pin(outcome) })
    }
}

fn refusal(cause: &Error) -> Refusal {
    let status = match cause {
        Error::NotRunning { .. } | Error::Unknown { .. } => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, chain(cause))
}

type Writer = Option<WriteHalf<SimplexStream>>;

/// Follows the log of a container to its end, and tells the readers when nothing more comes.
async fn show(file: LogFile, runtime: Runtime, id: ContainerId, mut out: Writer, mut err: Writer) -> Outcome {
    let outcome = match copy(file, &runtime, &id, &mut out, &mut err).await {
        Ok(()) => Outcome::Success,
        Err(cause) => Outcome::Failed(format!("its output cannot be read: {cause}")),
    };
    for writer in [out, err].iter_mut().flatten() {
        // Who does not read any more has ended the conversation.
        let _ = writer.shutdown().await;
    }
    outcome
}

async fn copy(
    mut file: LogFile,
    runtime: &Runtime,
    id: &ContainerId,
    out: &mut Writer,
    err: &mut Writer,
) -> std::io::Result<()> {
    let mut ended = std::pin::pin!(runtime.wait(id));
    let (mut begun, mut is_over) = (Vec::new(), false);
    loop {
        begun.extend(file.read().await?);
        let whole = begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = begun.drain(..whole).collect();
        for line in lines.split_inclusive(|byte| *byte == b'\n').filter_map(Line::parse) {
            let to = if line.is_error { &mut *err } else { &mut *out };
            let end: &[u8] = if line.partial { b"" } else { b"\n" };
            if let Some(to) = to {
                to.write_all(&[line.text, end].concat()).await?;
            }
        }
        if is_over {
            return Ok(());
        }
        tokio::select! {
            // Whatever it wrote before its end is still to be read.
            _ = &mut ended => is_over = true,
            () = tokio::time::sleep(FOLLOW) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use super::*;

    #[test]
    fn a_query_says_what_is_run_and_which_streams_are_wanted() {
        let asked =
            Asked::parse("command=sh&command=-c&command=echo+a%26b&input=1&output=true&tty=0").unwrap();
        assert_eq!(asked.command, ["sh", "-c", "echo a&b"]);
        let expected = Streams { stdin: true, stdout: true, ..Streams::default() };
        assert_eq!(asked.streams, expected);
        assert!(Asked::parse("command=sh").unwrap_err().contains("at least 1"));
        assert!(Asked::parse("output=perhaps").unwrap_err().contains("output"));
    }
}
