//! The far end of every path: a process of its own in the target's namespace, as the QEMU that a guest moves to is.
//!
//! The first byte of a connection says what it is: a stream to swallow, or requests of 16 bytes that are each answered with a page.
//! What became of the streams is asked for over a socket beside the paths.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bench_stage::{Process, Stage, TARGET, until};

pub const CHUNK: usize = 256 << 10;
pub const PAGE: usize = 4096;
pub const REQUEST: usize = 16;
pub const STREAM: u8 = b's';
/// A stream whose end nobody waits for. It may come late, when its relay is killed, and must not be taken for another's.
pub const NOISE: u8 = b'n';
pub const PAGES: u8 = b'p';
pub const DIRECT_PORT: u16 = 9187;
pub const PATIENCE: Duration = Duration::from_mins(1);

/// How many bytes of streams came so far?
const SWALLOWED: u8 = b'b';
/// How long was the next stream that ended? Answered when there is one.
const NEXT_END: u8 = b'e';

/// The process, and the socket to ask it.
pub struct FarEnd {
    process: Process,
    questions: UnixStream,
}

impl FarEnd {
    /// Starts it. This program must have the subcommand `far-end`.
    pub fn start(stage: &Stage) -> Result<Self> {
        let (exit, questions) = (stage.path("exit"), stage.path("questions"));
        let this = std::env::current_exe()?;
        let command =
            [&*this, Path::new("far-end"), &*exit, &*questions].map(|word| word.display().to_string());
        let mut process = stage.start(&stage.target, "far-end", &command)?;
        let questions = until(|| {
            process.check()?;
            Ok(UnixStream::connect(&questions)?)
        })
        .with_context(|| format!("the far end: {}", stage.log("far-end")))?;
        questions.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { process, questions })
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Bytes of all streams so far.
    pub fn swallowed(&self) -> Result<u64> {
        self.ask(SWALLOWED)
    }

    /// Waits for the end of a stream, and says how long it was.
    pub fn next_end(&self) -> Result<u64> {
        self.ask(NEXT_END).context("a stream did not end")
    }

    fn ask(&self, question: u8) -> Result<u64> {
        let mut answer = [0; 8];
        (&self.questions).write_all(&[question])?;
        (&self.questions).read_exact(&mut answer)?;
        Ok(u64::from_le_bytes(answer))
    }
}

/// Is the far end until there is nobody to ask it any more.
pub fn run(exit: &Path, questions: &Path) -> Result<()> {
    let (unix, tcp) = (UnixListener::bind(exit)?, TcpListener::bind((TARGET, DIRECT_PORT))?);
    // The last: who can ask can connect as well.
    let questions = UnixListener::bind(questions)?;
    let (sender, ended) = mpsc::channel();
    let swallowed = Arc::new(AtomicU64::new(0));
    let server = Server { swallowed: Arc::clone(&swallowed), ended: sender };
    let direct = server.clone();
    thread::spawn(move || unix.incoming().flatten().for_each(|stream| server.serve(stream)));
    thread::spawn(move || {
        tcp.incoming().flatten().for_each(|stream| {
            // A page that waits for an acknowledgement would be measured as slow.
            let _ = stream.set_nodelay(true);
            direct.serve(stream);
        });
    });
    let (mut asker, _) = questions.accept()?;
    let mut question = [0];
    while asker.read_exact(&mut question).is_ok() {
        let answer = match question[0] {
            SWALLOWED => swallowed.load(Ordering::Relaxed),
            NEXT_END => ended.recv()?,
            other => bail!("no question begins with {other}"),
        };
        asker.write_all(&answer.to_le_bytes())?;
    }
    Ok(())
}

/// Serves every path in the same way.
#[derive(Clone)]
struct Server {
    swallowed: Arc<AtomicU64>,
    ended: Sender<u64>,
}

impl Server {
    fn serve(&self, mut stream: impl Read + Write + Send + 'static) {
        let Self { swallowed, ended } = self.clone();
        thread::spawn(move || {
            let mut kind = [0];
            // A connection that says nothing was only a look whether someone is there.
            match stream.read_exact(&mut kind).map(|()| kind[0]) {
                Ok(kind @ (STREAM | NOISE)) => {
                    let length = swallow(&mut stream, &swallowed);
                    if kind == STREAM {
                        // Who waited for it may have given up.
                        let _ = ended.send(length);
                    }
                }
                Ok(_) => {
                    let (mut request, page) = ([0; REQUEST], [7; PAGE]);
                    while stream.read_exact(&mut request).is_ok() && stream.write_all(&page).is_ok() {}
                }
                Err(_) => {}
            }
        });
    }
}

fn swallow(stream: &mut impl Read, swallowed: &AtomicU64) -> u64 {
    let mut buffer = vec![0; CHUNK];
    let mut length = 0;
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        length += read as u64;
        swallowed.fetch_add(read as u64, Ordering::Relaxed);
    }
    length
}
