//! A person at the guest's serial console: standard input and output of this process, joined with the hypervisor's socket.
//!
//! It runs beside the launcher, in its container, and has nothing to do with it but the socket. The hypervisor serves one connection
//! and lets others wait without a word, so a lock tells who is the one.
//!
//! Invariant: it ends when either side does. On a cluster, the end of standard input is all that shows that the person has left.

use std::{
    fs::File,
    io::{self, Read, Write},
    net::Shutdown,
    os::{fd::AsFd as _, unix::net::UnixStream},
    path::{Path, PathBuf},
    sync::mpsc::channel,
    thread,
};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The socket of the serial console, in the directory that is shared with the handler.
pub const SOCKET: &str = "console.sock";
const LOCK: &str = "console.lock";

#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    #[error("the guest's console is in use: only one can be open at a time")]
    InUse,
    #[error("the guest has no serial console, or does not run yet: nobody listens at {}", path.display())]
    Missing { path: PathBuf, source: io::Error },
    #[error("locking {}", path.display())]
    Lock { path: PathBuf, source: io::Error },
    #[error("the guest's console broke off")]
    Broken(#[from] io::Error),
}

/// Joins the console of the guest with standard input and output until one of them ends. `private` has the socket, `directory` is
/// the launcher's own.
pub fn join(private: &Path, directory: &Path) -> Result<(), ConsoleError> {
    // Not the buffered ones: a key that is pressed is no line.
    let (input, output) =
        (io::stdin().as_fd().try_clone_to_owned()?, io::stdout().as_fd().try_clone_to_owned()?);
    join_with(private, directory, File::from(input), File::from(output))
}

fn join_with(
    private: &Path,
    directory: &Path,
    mut input: impl Read + Send + 'static,
    mut output: impl Write + Send + 'static,
) -> Result<(), ConsoleError> {
    let _lock = lock(&directory.join(LOCK))?;
    let path = private.join(SOCKET);
    let mut console = UnixStream::connect(&path).map_err(|source| ConsoleError::Missing { path, source })?;
    let mut typed = console.try_clone()?;
    let (ended, end) = channel();
    let of_input = ended.clone();
    // Whoever ends first speaks; nobody waits for the other, who may sit in a read for ever.
    thread::spawn(move || of_input.send(copy(&mut input, &mut typed)));
    let mut shown = console.try_clone()?;
    thread::spawn(move || ended.send(copy(&mut shown, &mut output)));
    let outcome = end.recv().unwrap_or(Ok(()));
    // The hypervisor takes the next one only when this connection is gone, whatever our threads still hold.
    console.flush()?;
    match console.shutdown(Shutdown::Both) {
        Err(error) if error.kind() != io::ErrorKind::NotConnected => return Err(error.into()),
        _ => {}
    }
    Ok(outcome?)
}

/// Held by one; ends with the process, however that ends.
fn lock(path: &Path) -> Result<File, ConsoleError> {
    let failed = |source| ConsoleError::Lock { path: path.to_owned(), source };
    let file = File::options().create(true).append(true).open(path).map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(ConsoleError::InUse),
        Err(errno) => Err(failed(errno.into())),
    }
}

/// Not `io::copy`: between a socket and a pipe it has the kernel hold the pipe while it waits for the socket, and whoever reads the pipe
/// gets what is in it only when more comes.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        let moved = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(&buffer[..count]),
            Err(error) => Err(error),
        };
        match moved.map_err(|error| (error.kind(), error)) {
            Ok(()) | Err((io::ErrorKind::Interrupted, _)) => {}
            // Who does not listen any more has left.
            Err((io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset, _)) => return Ok(()),
            Err((_, error)) => return Err(error),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test says what it expects")]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A hypervisor's socket, and a console at it: our ends of its input, its output and the socket, and how it goes on.
    fn open(
        directory: &Path,
        listener: &UnixListener,
    ) -> (io::PipeWriter, io::PipeReader, UnixStream, thread::JoinHandle<Result<(), ConsoleError>>) {
        let ((input, typed), (shown, output)) = (io::pipe().unwrap(), io::pipe().unwrap());
        let place = directory.to_owned();
        let console = thread::spawn(move || join_with(&place, &place, input, output));
        (typed, shown, listener.accept().unwrap().0, console)
    }

    #[test]
    fn what_is_typed_goes_in_and_what_is_written_comes_out() {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join(SOCKET)).unwrap();
        let (mut typed, mut shown, mut guest, console) = open(directory.path(), &listener);
        let mut buffer = [0; 1];
        for key in [b"l", b"s"] {
            typed.write_all(key).unwrap();
            guest.read_exact(&mut buffer).unwrap();
            assert_eq!(&buffer, key);
            guest.write_all(key).unwrap();
            shown.read_exact(&mut buffer).unwrap();
            assert_eq!(&buffer, key);
        }
        // One at a time, and the next when that one has left.
        let refused = join_with(directory.path(), directory.path(), io::empty(), io::sink());
        assert!(matches!(refused, Err(ConsoleError::InUse)), "{refused:?}");
        drop(typed);
        console.join().unwrap().unwrap();
        assert_eq!(guest.read(&mut buffer).unwrap(), 0);

        let (_typed, mut shown, guest, console) = open(directory.path(), &listener);
        drop(guest);
        console.join().unwrap().unwrap();
        assert_eq!(shown.read(&mut buffer).unwrap(), 0);
    }

    #[test]
    fn a_guest_without_a_console_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let refused = join_with(directory.path(), directory.path(), io::empty(), io::sink());
        assert!(matches!(refused, Err(ConsoleError::Missing { .. })), "{refused:?}");
    }
}
