//! One part as a process: started with a log of its own, ended when it takes too long, and ended by the kernel when we are.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::output::{Counts, NotRun};
use crate::parts::Part;
use crate::record::Done;

/// How often it is looked whether a part has ended.
const POLL: Duration = Duration::from_millis(50);
/// How long a part has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(20);
/// Of the rendered end of a log that a failed part shows, in lines.
pub const SHOWN_LINES: usize = 400;

/// The log of a part.
pub fn log(logs: &Path, part: &str) -> PathBuf {
    logs.join(part.replace(['/', ' ', ':'], "_"))
}

/// Runs a part to its end. The calling thread must live as long as the part: the kernel ends the part with it.
pub fn run(part: &Part, logs: &Path) -> Result<Done> {
    let begin = Instant::now();
    let path = log(logs, &part.name);
    let not_run = path.with_added_extension("not-run");
    let output = File::create(&path).with_context(|| format!("making {}", path.display()))?;
    let mut command = command(part);
    command
        .current_dir(&part.directory)
        .envs(part.environment.iter().map(|(name, value)| (name, value)))
        .env("GODWIT_NOT_RUN", &not_run)
        .stdin(Stdio::null())
        .stdout(output.try_clone().context("a second handle of a log")?)
        .stderr(output)
        .process_group(0);
    let mut child = command.spawn().with_context(|| format!("starting {}", part.name))?;
    let status = wait(&mut child, Duration::from_secs(part.limit)).context("waiting for a part")?;
    let mut text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
    let mut succeeded = status.is_some_and(|status| status.success());
    if status.is_none() {
        text.push_str("\nended by the test runner: it took too long\n");
        std::fs::write(&path, &text)?;
    }
    let counts = Counts::read(&text);
    let not_run = match std::fs::read_to_string(&not_run) {
        Ok(lines) => NotRun::read(&lines),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error).with_context(|| format!("reading {}", not_run.display())),
    };
    // A program whose tests all passed and that ended with an error is a failure of its own.
    let mut counts = counts.map(|Counts { passed, failed }| (passed, failed));
    if let Some((passed, failed)) = &mut counts {
        *passed = passed.saturating_sub(not_run.len() as u64);
        if !succeeded && *failed == 0 {
            *failed = 1;
        }
        succeeded &= *failed == 0;
    }
    let seconds = begin.elapsed().as_secs_f64();
    Ok(Done { part: part.name.clone(), row: part.row.clone(), seconds, succeeded, counts, not_run })
}

/// `setpriv` has the kernel end the part when we end, however we end.
fn command(part: &Part) -> Command {
    let mut command;
    if part.own_mounts {
        command = Command::new("unshare");
        command.args(["--mount", "--propagation", "slave", "setpriv"]);
    } else {
        command = Command::new("setpriv");
    }
    command.args(["--pdeathsig", "KILL", "--"]).args(&part.command);
    command
}

/// `None`: it took too long and was ended.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > deadline {
            break;
        }
        thread::sleep(POLL);
    }
    for signal in [Signal::TERM, Signal::KILL] {
        if let Some(group) = group {
            // It may have ended in the meantime.
            let _ = kill_process_group(group, signal);
        }
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            if child.try_wait()?.is_some() {
                return Ok(None);
            }
            thread::sleep(POLL);
        }
    }
    Ok(None)
}

/// The end of a part's log, without cargo's messages.
pub fn end_of_log(logs: &Path, part: &str) -> String {
    let text = std::fs::read(log(logs, part)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with("{\"reason\"")).collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]
pub mod tests {
    use super::*;

    pub fn part(script: &str) -> Part {
        Part {
            name: "a part".to_owned(),
            row: "a row".to_owned(),
            command: ["sh", "-c", script].map(Into::into).to_vec(),
            directory: PathBuf::from("/"),
            environment: Vec::new(),
            expected: 0,
            limit: 60,
            own_mounts: false,
            may_be_resumed: true,
        }
    }

    fn run_script(script: &str, limit: u64) -> (Done, String) {
        let logs = tempfile::tempdir().unwrap();
        let done = run(&Part { limit, ..part(script) }, logs.path()).unwrap();
        (done, end_of_log(logs.path(), "a part"))
    }

    #[test]
    fn what_is_not_run_is_not_passed() {
        let script = r#"printf 'a\twhy\n' >>"$GODWIT_NOT_RUN"; echo 3 passed, 0 failed"#;
        let (done, log) = run_script(script, 60);
        assert!(done.succeeded);
        assert_eq!((done.counts, done.not_run.len()), (Some((2, 0)), 1));
        assert_eq!(log, "3 passed, 0 failed");
    }

    #[test]
    fn a_program_that_fails_after_its_tests_passed_has_failed() {
        let (done, _) = run_script("echo 3 passed, 0 failed; exit 1", 60);
        assert_eq!((done.succeeded, done.counts), (false, Some((3, 1))));
    }

    #[test]
    fn a_part_that_takes_too_long_is_ended_with_its_children() {
        let (done, log) = run_script("sleep 1000 & echo started; wait", 0);
        assert!(!done.succeeded && done.seconds < 60.0);
        assert!(log.ends_with("it took too long"), "{log}");
    }
}
