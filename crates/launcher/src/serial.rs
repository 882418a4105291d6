//! The guest's serial console into the launcher's own log.
//!
//! QEMU appends to a file; a thread reads what is new and writes it on, in whole lines, so that those of two writers do not
//! mix. What was written on is cut out of the file, which would else grow as long as the guest lives.

use std::{
    fs::File,
    io::{self, Read as _, Write},
    path::PathBuf,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::JoinHandle,
    time::Duration,
};

use rustix::fs::{FallocateFlags, fallocate};
use tracing::warn;

/// How often the file is looked at: QEMU says nothing when it writes.
const INTERVAL: Duration = Duration::from_millis(100);
/// A line that is longer is written in parts.
const LONGEST_LINE: usize = 4096;
/// How much is left in the file before it is cut out.
const CUT: u64 = 1 << 20;

/// The thread that follows the file; dropping it lets the thread write what is there and end.
#[derive(Debug)]
pub struct SerialLog {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl SerialLog {
    /// Follows a file that may not be there yet.
    pub fn follow(path: PathBuf, out: impl Write + Send + 'static) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("serial-log".to_owned()).spawn(move || {
            if let Err(error) = follow(&path, out, &stopped) {
                warn!(%error, path = %path.display(), "the guest's console is no longer logged");
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for SerialLog {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic there has been reported, and costs no more than the log
        }
    }
}

fn follow(path: &PathBuf, mut out: impl Write, stopped: &Receiver<()>) -> io::Result<()> {
    let (mut file, mut lines) = (None, LineWriter::default());
    let (mut read, mut cut) = (0_u64, 0_u64);
    loop {
        // Decided before the last look, so that nothing is missed that was there when it was decided.
        let last = !matches!(stopped.recv_timeout(INTERVAL), Err(RecvTimeoutError::Timeout));
        if file.is_none() {
            file = match File::options().read(true).write(true).open(path) {
                Ok(file) => Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
        }
        if let Some(file) = &mut file {
            let mut buffer = [0; 16384];
            loop {
                let count = file.read(&mut buffer)?;
                if count == 0 {
                    break;
                }
                read += count as u64;
                lines.write(&buffer[..count], &mut out)?;
            }
            if read - cut > CUT {
                // The place of what is written next stays the same, so QEMU notices nothing.
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                match fallocate(&*file, how, cut, read - cut) {
                    Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => cut = read,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        if last {
            return lines.finish(&mut out);
        }
    }
}

/// Puts lines together.
#[derive(Debug, Default)]
struct LineWriter {
    begun: Vec<u8>,
}

impl LineWriter {
    fn write(&mut self, bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(part);
            if part.ends_with(b"\n") || self.begun.len() > LONGEST_LINE {
                out.write_all(&std::mem::take(&mut self.begun))?;
            }
        }
        out.flush()
    }

    fn finish(&mut self, out: &mut impl Write) -> io::Result<()> {
        if !self.begun.is_empty() {
            self.begun.push(b'\n');
            out.write_all(&std::mem::take(&mut self.begun))?;
        }
        out.flush()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test says what it expects")]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_that_was_written_arrives_and_leaves_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("serial.log");
        let sink = Sink::default();
        let log = SerialLog::follow(path.clone(), sink.clone()).unwrap();
        let mut file = File::options().create(true).append(true).open(&path).unwrap();
        let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
        for _ in 0..3000 {
            file.write_all(&line).unwrap();
        }
        file.write_all(b"the last words").unwrap();
        drop(log);
        let written = sink.0.lock().unwrap();
        assert_eq!(written.len(), 3000 * 1024 + 15);
        assert!(written.ends_with(b"x\nthe last words\n"));
        let left = file.metadata().unwrap();
        assert_eq!(left.len(), 3000 * 1024 + 14);
        assert!(left.blocks() * 512 < 2 << 20, "{} blocks are still there", left.blocks());
    }

    #[test]
    fn lines_are_whole_unless_they_are_endless() {
        let (mut lines, mut out) = (LineWriter::default(), Vec::new());
        lines.write(b"one\ntw", &mut out).unwrap();
        assert_eq!(out, b"one\n");
        lines.write(b"o\n", &mut out).unwrap();
        assert_eq!(out, b"one\ntwo\n");
        lines.write(&b"y".repeat(LONGEST_LINE + 1), &mut out).unwrap();
        assert_eq!(out.len(), 8 + LONGEST_LINE + 1);
    }
}
