//! Machines made of namespaces: the lab itself, and each of its nodes.
//!
//! A machine is the process namespace of one process, its init. When the init dies, the kernel kills every process of the
//! machine before anyone is told, and mounts and interfaces go with the last of them. That is why a lab can be removed after
//! anything: there is nothing of a machine outside its namespaces but files in the lab's directory.
//!
//! A machine ends with the process that started it, also when that was killed.

use std::ffi::CString;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::CloneFlags;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, pipe2};

use crate::Error;

/// The environment variable in which an init finds its lifeline.
const LIFELINE: &str = "GODWIT_LIFELINE";
const STACK: usize = 64 * 1024;
/// What a machine has of its own.
const NAMESPACES: CloneFlags = CloneFlags::CLONE_NEWPID
    .union(CloneFlags::CLONE_NEWNS)
    .union(CloneFlags::CLONE_NEWNET)
    .union(CloneFlags::CLONE_NEWIPC)
    .union(CloneFlags::CLONE_NEWUTS);

/// A running machine. Its lifeline is in our hands: it ends when we do.
#[derive(Debug)]
pub(crate) struct Machine {
    pub init: Pid,
    _lifeline: OwnedFd,
}

/// Starts a machine whose init is `program` with `arguments`. Standard output and error go to `log`; the descriptors of
/// `inherited` stay open under their numbers.
pub(crate) fn start(
    program: &Path,
    arguments: &[&str],
    log: &Path,
    inherited: &[BorrowedFd<'_>],
) -> Result<Machine, Error> {
    let (theirs, ours) = pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(Error::kernel("making a lifeline"))?;
    let log_file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .map_err(Error::file("opening", log))?;
    let null = std::fs::File::open("/dev/null").map_err(Error::file("opening", Path::new("/dev/null")))?;
    let path = text(program.as_os_str().as_bytes())?;
    let mut command = vec![path.clone()];
    for argument in arguments {
        command.push(text(argument.as_bytes())?);
    }
    let mut environment = vec![text(format!("{LIFELINE}={}", theirs.as_raw_fd()).as_bytes())?];
    for (name, value) in std::env::vars_os().filter(|(name, _)| name != LIFELINE) {
        environment.push(text(&[name.as_bytes(), b"=", value.as_bytes()].concat())?);
    }
    let kept: Vec<_> = inherited.iter().copied().chain([theirs.as_fd()]).collect();
    // Runs in the new process, between clone and exec: system calls only.
    let child = Box::new(|| {
        let prepared = set_pdeathsig(Signal::SIGKILL)
            .and_then(|()| SigSet::empty().thread_set_mask())
            .and_then(|()| nix::unistd::dup2_stdin(&null))
            .and_then(|()| nix::unistd::dup2_stdout(&log_file))
            .and_then(|()| nix::unistd::dup2_stderr(&log_file))
            .and_then(|()| {
                kept.iter().try_for_each(|fd| fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty())).map(drop))
            });
        match prepared.and_then(|()| nix::unistd::execve(&path, &command, &environment)) {
            Ok(never) => match never {},
            Err(errno) => errno as isize,
        }
    });
    let mut stack = vec![0; STACK];
    // SAFETY: keeper and inits have one thread, so no lock can be held by another in the copy; the closure makes system calls
    // only, on what was allocated before.
    #[allow(unsafe_code, reason = "a process in a new process namespace can be had in no other way")]
    let init = unsafe { nix::sched::clone(child, &mut stack, NAMESPACES, Some(nix::libc::SIGCHLD)) }
        .map_err(Error::kernel(format!("starting {}", program.display())))?;
    Ok(Machine { init, _lifeline: ours })
}

/// What an init does first: makes sure that it will not outlive who started it, and that its mounts are its own.
pub(crate) fn begin() -> Result<(), Error> {
    let number = std::env::var(LIFELINE).ok().and_then(|number| number.parse().ok());
    let Some(number) = number else {
        return Err(Error::kernel("finding the lifeline (this command is started by the lab itself)")(
            nix::errno::Errno::EINVAL,
        ));
    };
    let lifeline = inherited(number)?;
    // The signal at the starter's death is set already; if it died before that, its end of the pipe is closed.
    let mut poll_fd = [PollFd::new(lifeline.as_fd(), PollFlags::POLLIN)];
    poll(&mut poll_fd, PollTimeout::ZERO).map_err(Error::kernel("looking at the lifeline"))?;
    if poll_fd[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP)) {
        return Err(Error::kernel("starting after the starter's end")(nix::errno::Errno::ESRCH));
    }
    // Mounts of the machine below come in, ours do not go out.
    mount_flags("/", MsFlags::MS_REC | MsFlags::MS_SLAVE)?;
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), None::<&str>)
        .map_err(Error::kernel("mounting /proc"))
}

/// Takes a descriptor that whoever started us left open under a number that they told us. What we start does not get it.
pub(crate) fn inherited(number: RawFd) -> Result<OwnedFd, Error> {
    // SAFETY: the number came from the starter, for this purpose; nobody else in this process uses it.
    #[allow(unsafe_code, reason = "a descriptor that was inherited is known by its number alone")]
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl(&descriptor, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))
        .map_err(Error::kernel(format!("taking over descriptor {number}")))?;
    Ok(descriptor)
}

pub(crate) fn mount_flags(place: &str, flags: MsFlags) -> Result<(), Error> {
    mount(None::<&str>, place, None::<&str>, flags, None::<&str>)
        .map_err(Error::kernel(format!("changing the mount {place}")))
}

fn text(bytes: &[u8]) -> Result<CString, Error> {
    CString::new(bytes).map_err(|_| Error::kernel("passing an argument")(nix::errno::Errno::EINVAL))
}
