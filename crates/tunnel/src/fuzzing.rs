//! The listener's way to a handshake, for bytes that nobody sent: what strangers can reach before they have proved anything.

use std::io::Write as _;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use socket2::Socket;

use crate::credentials::{Credentials, Mode};
use crate::handshake::{self, Timed};
use crate::hello::Hello;

/// Serves a caller who says exactly this; whether it became a session.
pub fn serve(credentials: &Credentials, said: &[u8]) -> bool {
    let Ok((mut caller, here)) = UnixStream::pair() else {
        return false;
    };
    if caller.write_all(said).and_then(|()| caller.shutdown(Shutdown::Write)).is_err() {
        return false;
    }
    let here = Socket::from(here);
    let mut timed = Timed { socket: &here, deadline: Instant::now() + Duration::from_secs(10) };
    match (&*credentials.mode(), Hello::read(&mut timed)) {
        (Mode::Tls { server, .. }, Ok(hello)) => {
            handshake::accept(server.clone(), &mut timed, hello.bytes).is_ok()
        }
        _ => false,
    }
}
