//! A process that ends when we do, however we end.
//!
//! A shell holds it and reads a pipe of which only we have the other end: when that closes, also because this process was killed,
//! the shell kills its child and deletes the directory. Should the shell itself be killed, the kernel ends the child.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

const HOLDER: &str = r#"
trap : INT TERM HUP
dir=$1 log=$2
shift 2
setpriv --pdeathsig KILL -- "$@" >>"$log" 2>&1 </dev/null &
echo $!
if read -r signal; then kill -"$signal" $! 2>/dev/null; else kill -KILL $! 2>/dev/null; end=1; fi
wait
[ "$end" ] || exit 0
# What the process itself started may still be ending, and writing.
for _ in 1 2 3 4 5; do rm -rf -- "$dir" 2>/dev/null && break; sleep 0.2; done
"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Terminate,
    Kill,
}

/// A running process. Dropping it kills the process and deletes its directory; [`Leash::stop`] keeps the directory.
#[derive(Debug)]
pub struct Leash {
    holder: Child,
    /// Closing it is the sign to end all; `None` only while dropping.
    pipe: Option<ChildStdin>,
    pid: u32,
}

impl Leash {
    /// Starts `command` with its output appended to `log`; `dir` is deleted at the end.
    pub fn start(dir: &Path, log: &Path, command: &[String]) -> Self {
        let mut holder = Command::new("/bin/sh")
            .args(["-c", HOLDER, "leash"])
            .args([dir, log])
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("/bin/sh starts");
        let mut pid = String::new();
        let stdout = holder.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut pid).expect("the holder says which process it started");
        let pid = pid.trim().parse().expect("the holder says a pid");
        let pipe = holder.stdin.take();
        Self { holder, pipe, pid }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the process has ended by itself.
    pub fn ended(&self) -> bool {
        ended(self.pid)
    }

    /// Ends the process and waits for its end; its directory stays.
    pub async fn stop(mut self, signal: Signal) {
        let name: &[u8] = match signal {
            Signal::Terminate => b"TERM\n",
            Signal::Kill => b"KILL\n",
        };
        // The holder is gone only if someone killed it, and then the process is gone too.
        let _ = self.pipe.as_mut().expect("open until dropped").write_all(name);
        tokio::task::spawn_blocking(move || self.holder.wait())
            .await
            .expect("waiting does not panic")
            .expect("the holder can be waited for");
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        drop(self.pipe.take());
        let _ = self.holder.wait();
    }
}

/// Whether a process is gone, or a zombie of which no thread is left: its files and sockets are closed then, and not before.
pub fn ended(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    threads <= 1 && stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}
