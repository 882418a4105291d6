//! Sockets as the tunnel wants them: tied to one address and its interface, quick to notice that the other side is gone.
//!
//! An address alone does not choose the road: the kernel sends by whatever route leads to the target. So every socket is also bound to
//! the interface that has the address. A node that lost its migration network cannot send, rather than send elsewhere.

use std::fs::{OpenOptions, Permissions};
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::libc;
use nix::sys::socket::SockaddrStorage;
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};

use crate::Timeouts;
use crate::error::Error;

/// Room on the way to QEMU: what a small buffer costs, both ends pay. More than this falls out of the cache before it is read.
const UNIX_BUFFER: usize = 1 << 20;
const BACKLOG: i32 = 1024;

/// How long it is believed that an address is where it was. Parallel connections are made within milliseconds, and asking the kernel
/// for all interfaces takes longer on a node that has many.
const BELIEVED: Duration = Duration::from_secs(1);

/// An address of this node, and the interface that has it.
#[derive(Debug)]
pub(crate) struct Home {
    address: IpAddr,
    interface: Mutex<Option<(Instant, String)>>,
}

impl Home {
    pub(crate) fn new(address: IpAddr) -> Self {
        Self { address, interface: Mutex::default() }
    }

    fn interface(&self) -> Result<String, Error> {
        let mut known = self.interface.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, interface)) = known.as_ref().filter(|(since, _)| since.elapsed() < BELIEVED) {
            return Ok(interface.clone());
        }
        let interface = interface_of(self.address)?;
        *known = Some((Instant::now(), interface.clone()));
        Ok(interface)
    }
}

/// A TCP socket that can neither be reached nor send by another interface than the one that has the address.
fn tied_to(home: &Home) -> Result<Socket, Error> {
    let address = home.address;
    let failed = |source| Error::Interfaces { address, source };
    let interface = home.interface()?;
    let domain = Domain::for_address(SocketAddr::new(address, 0));
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP)).map_err(failed)?;
    socket.bind_device(Some(interface.as_bytes())).map_err(failed)?;
    Ok(socket)
}

fn interface_of(address: IpAddr) -> Result<String, Error> {
    if address.is_unspecified() || address.is_multicast() {
        return Err(Error::Unspecified { address });
    }
    let mut interfaces =
        getifaddrs().map_err(|errno| Error::Interfaces { address, source: io::Error::from(errno) })?;
    interfaces
        .find(|interface| interface.address.as_ref().and_then(ip) == Some(address))
        .map(|interface| interface.interface_name)
        .ok_or(Error::NoInterface { address })
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
}

pub(crate) fn listen(address: SocketAddr) -> Result<Socket, Error> {
    let socket = tied_to(&Home::new(address.ip()))?;
    let listen = || {
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|source| Error::Listen { address, source })?;
    Ok(socket)
}

/// Why a target was not reached: this side's address, or the way to the other.
pub(crate) enum Unreached {
    Source(Error),
    Target(io::Error),
}

pub(crate) fn dial(home: &Home, target: SocketAddr, timeouts: &Timeouts) -> Result<Socket, Unreached> {
    let socket = tied_to(home).map_err(Unreached::Source)?;
    let connect = || {
        socket.bind(&SocketAddr::new(home.address, 0).into())?;
        prepare(&socket, timeouts)?;
        // The timeout of a send is the timeout of a connect, too: two calls less than to wait for it from outside.
        socket.set_write_timeout(Some(timeouts.dial))?;
        socket.connect(&target.into())
    };
    match connect() {
        Ok(()) => Ok(socket),
        Err(error) if error.raw_os_error() == Some(Errno::EINPROGRESS as i32) => {
            Err(Unreached::Target(io::ErrorKind::TimedOut.into()))
        }
        Err(error) => Err(Unreached::Target(error)),
    }
}

/// What both ends of a TCP connection need.
pub(crate) fn prepare(socket: &Socket, timeouts: &Timeouts) -> io::Result<()> {
    // Records leave in batches already; waiting for more would only delay the last one.
    socket.set_tcp_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(timeouts.keepalive).with_interval(timeouts.keepalive).with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(timeouts.unacknowledged))
}

pub(crate) fn listen_unix(path: &Path) -> io::Result<Socket> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Ends the wait of whoever accepts on this socket.
pub(crate) fn close_to_callers(listening: &Socket) {
    // It fails only on a socket that does not listen, or no longer: what was wanted.
    let _ = listening.shutdown(Shutdown::Both);
}

/// Whether an accept failed because of the one who called, who has gone again.
pub(crate) fn is_callers_fault(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted)
}

/// The destination lies in a directory that its launcher may write to: a link there could lead to any socket of the node, so none is
/// followed.
pub(crate) fn connect_unix(path: &Path) -> io::Result<Socket> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.connect(&SockAddr::unix(format!("/proc/self/fd/{}", file.as_raw_fd()))?)?;
    enlarge(&socket)?;
    Ok(socket)
}

/// The kernel gives as much as it allows, which is no error when it is less.
pub(crate) fn enlarge(unix: &Socket) -> io::Result<()> {
    unix.set_send_buffer_size(UNIX_BUFFER)
}

/// From here on, a wait on this socket that takes longer than the idle timeout asks whether the line is idle.
pub(crate) fn watch_idleness(socket: &Socket, timeouts: &Timeouts) -> io::Result<()> {
    socket.set_read_timeout(Some(timeouts.idle))?;
    socket.set_write_timeout(Some(timeouts.idle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_not_a_destination() {
        let directory = tempfile::tempdir().unwrap();
        let (socket, link) = (directory.path().join("socket"), directory.path().join("link"));
        let _listening = listen_unix(&socket).unwrap();
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        assert!(connect_unix(&socket).is_ok());
        assert!(connect_unix(&link).is_err());
    }
}
