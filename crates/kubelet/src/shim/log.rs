//! The log of a container, in the format of the container runtime interface: `TIME stdout|stderr F|P TEXT`, one a line.
//!
//! A line that is too long is split; all its parts but the last are marked `P`. The log is bounded: when the file is
//! full it becomes the older one of two. A container is never held up by its log: what cannot be written is dropped, and
//! the shim says so once.

use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;
use nix::poll::{PollFd, PollFlags, PollTimeout};

/// The longest text of one line of the log.
const LONGEST: usize = 16 * 1024;
/// The size of each of the two files.
const FULL: u64 = 5 * 1024 * 1024;

/// How many times a stream is read before the other one has its turn; more than the largest pipe can hold.
const TURN: usize = 64;

/// Where the log goes after it is full.
pub(crate) fn older(log: &Path) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

pub(super) struct Log {
    path: PathBuf,
    file: File,
    size: u64,
    /// Something could not be written, and was reported.
    lossy: bool,
}

impl Log {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        let size = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, size, lossy: false })
    }

    fn write(&mut self, line: &[u8]) {
        if let Err(error) = self.try_write(line)
            && !self.lossy
        {
            self.lossy = true;
            eprintln!(
                "{} output is lost, {} cannot be written: {error}",
                Timestamp::now(),
                self.path.display()
            );
        }
    }

    fn try_write(&mut self, line: &[u8]) -> io::Result<()> {
        let length = line.len() as u64;
        if self.size + length > FULL {
            fs::rename(&self.path, older(&self.path))?;
            *self = Self::open(&self.path)?;
        }
        self.file.write_all(line)?;
        self.size += length;
        Ok(())
    }
}

/// What one stream wrote since its last line end.
struct Lines {
    stream: &'static str,
    rest: Vec<u8>,
}

impl Lines {
    fn new(stream: &'static str) -> Self {
        Self { stream, rest: Vec::new() }
    }

    fn take(&mut self, bytes: &[u8], now: Timestamp, mut write: impl FnMut(&[u8])) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ended) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            self.rest.extend_from_slice(text);
            while self.rest.len() > LONGEST {
                let more = self.rest.split_off(LONGEST);
                let full = std::mem::replace(&mut self.rest, more);
                write(&line(now, self.stream, 'P', &full));
            }
            if ended {
                write(&line(now, self.stream, 'F', &std::mem::take(&mut self.rest)));
            }
        }
    }

    fn finish(&mut self, now: Timestamp, mut write: impl FnMut(&[u8])) {
        if !self.rest.is_empty() {
            write(&line(now, self.stream, 'F', &std::mem::take(&mut self.rest)));
        }
    }
}

fn line(now: Timestamp, stream: &str, mark: char, text: &[u8]) -> Vec<u8> {
    let mut line = format!("{now:.9} {stream} {mark} ").into_bytes();
    line.extend_from_slice(text);
    line.push(b'\n');
    line
}

/// Standard output and standard error of a container.
pub(super) struct Streams {
    readers: [PipeReader; 2],
    /// Kept until the copying begins, so that the container's ends are the last.
    writers: [PipeWriter; 2],
}

impl Streams {
    pub(super) fn new() -> io::Result<Self> {
        let (stdout, stderr) = (io::pipe()?, io::pipe()?);
        for reader in [&stdout.0, &stderr.0] {
            let flags = rustix::fs::fcntl_getfl(reader)?;
            rustix::fs::fcntl_setfl(reader, flags | rustix::fs::OFlags::NONBLOCK)?;
        }
        Ok(Self { readers: [stdout.0, stderr.0], writers: [stdout.1, stderr.1] })
    }

    /// The container's ends.
    pub(super) fn writers(&self) -> io::Result<(PipeWriter, PipeWriter)> {
        Ok((self.writers[0].try_clone()?, self.writers[1].try_clone()?))
    }

    /// Copies until the container has ended and all that it wrote is copied. A process elsewhere that still has an end
    /// of a pipe is not waited for.
    pub(super) fn copy_until(self, ended: &PipeReader, log: &mut Log) -> io::Result<()> {
        drop(self.writers);
        let mut streams: Vec<_> =
            self.readers.into_iter().zip(["stdout", "stderr"].map(Lines::new)).collect();
        let mut over = false;
        let mut buffer = vec![0; 64 * 1024];
        while !over {
            over = wait(ended, streams.iter().map(|(reader, _)| reader))?;
            let mut open = Vec::new();
            for (mut reader, mut lines) in streams {
                if drain(&mut reader, &mut lines, log, &mut buffer)? {
                    open.push((reader, lines));
                }
            }
            streams = open;
        }
        for (_, lines) in &mut streams {
            lines.finish(Timestamp::now(), |line| log.write(line));
        }
        Ok(())
    }
}

/// Waits for output or for the end; whether it is the end.
fn wait<'a>(ended: &'a PipeReader, readers: impl Iterator<Item = &'a PipeReader>) -> io::Result<bool> {
    let mut polled = vec![PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
    polled.extend(readers.map(|reader| PollFd::new(reader.as_fd(), PollFlags::POLLIN)));
    loop {
        match nix::poll::poll(&mut polled, PollTimeout::NONE) {
            Ok(_) => return Ok(polled[0].any().unwrap_or(false)),
            Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Copies what is there; whether more may come. A stream that never pauses must not keep the other one waiting.
fn drain(reader: &mut PipeReader, lines: &mut Lines, log: &mut Log, buffer: &mut [u8]) -> io::Result<bool> {
    for _ in 0..TURN {
        match reader.read(buffer) {
            Ok(0) => {
                lines.finish(Timestamp::now(), |line| log.write(line));
                return Ok(false);
            }
            Ok(count) => lines.take(&buffer[..count], Timestamp::now(), |line| log.write(line)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says what it expects")]
    use proptest::prelude::*;

    use super::*;

    fn lines(chunks: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::new("stdout");
        let mut written = Vec::new();
        let now = Timestamp::UNIX_EPOCH;
        for chunk in chunks {
            lines.take(chunk, now, |line| written.push(String::from_utf8_lossy(line).into_owned()));
        }
        lines.finish(now, |line| written.push(String::from_utf8_lossy(line).into_owned()));
        written
    }

    #[test]
    fn a_line_is_written_when_it_is_whole() {
        assert_eq!(
            lines(&[b"one\ntw", b"o\n", b"\n", b"end"]),
            ["one", "two", "", "end"].map(|text| format!("1970-01-01T00:00:00.000000000Z stdout F {text}\n"))
        );
    }

    #[test]
    fn a_long_line_is_split() {
        let long = vec![b'x'; LONGEST * 2 + 1];
        let marks: Vec<_> = lines(&[&long, b"\n"]).iter().map(|line| line[38..39].to_owned()).collect();
        assert_eq!(marks, ["P", "P", "F"]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_however_it_arrives(
            runs in proptest::collection::vec((any::<bool>(), 0_usize..40_000), 0..8),
        ) {
            let chunks: Vec<Vec<u8>> = runs
                .into_iter()
                .map(|(text, length)| if text { vec![b'a'; length] } else { vec![b'\n'; length % 10] })
                .collect();
            let borrowed: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            let mut back = String::new();
            for line in lines(&borrowed) {
                let (head, text) = line.split_at(40);
                back.push_str(if head.ends_with("F ") { text } else { text.trim_end() });
            }
            let mut sent = String::from_utf8(chunks.concat()).unwrap();
            if !sent.is_empty() && !sent.ends_with('\n') {
                sent.push('\n');
            }
            prop_assert_eq!(back, sent);
        }
    }

    #[test]
    fn the_log_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pod/log");
        let mut log = Log::open(&path).unwrap();
        let text = vec![b'x'; 64 * 1024];
        for _ in 0..400 {
            log.write(&text);
        }
        let size = |path: &Path| fs::metadata(path).unwrap().len();
        assert!(size(&path) <= FULL && size(&older(&path)) <= FULL);
        assert!(size(&path) + size(&older(&path)) > FULL);
        assert!(!log.lossy);
    }
}
