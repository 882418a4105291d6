//! What the guest serves over TCP, on both IP versions: echo, the counter, control.
//!
//! One thread a connection, which ends with it. A connection that fails is the client's to notice; the guest goes on.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::control::{self, After};
use crate::{Guest, boot, millis};

/// The longest line that is read.
const LINE: u64 = 64 * 1024;
const DEFAULT_INTERVAL: Duration = Duration::from_millis(10);

/// The ports, or 0 for any that is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Ports {
    pub echo: u16,
    pub counter: u16,
    pub control: u16,
}

pub const PORTS: Ports = Ports { echo: 7, counter: 7001, control: 7002 };

/// Listens on all of them, and says on which ports.
pub fn start(guest: &Arc<Guest>, ports: Ports) -> io::Result<Ports> {
    Ok(Ports {
        echo: listen(guest, ports.echo, |_, stream| echo(&stream))?,
        counter: listen(guest, ports.counter, |_, stream| count(&stream))?,
        control: listen(guest, ports.control, |guest, stream| command(guest, &stream))?,
    })
}

fn listen(
    guest: &Arc<Guest>,
    port: u16,
    serve: fn(&Arc<Guest>, TcpStream) -> io::Result<()>,
) -> io::Result<u16> {
    // The unspecified IPv6 address takes IPv4 too.
    let listener = TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).map_err(|cause| {
        io::Error::new(cause.kind(), format!("cannot listen on TCP port {port}: {cause}"))
    })?;
    let port = listener.local_addr()?.port();
    let guest = Arc::clone(guest);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => {
                    let guest = Arc::clone(&guest);
                    // How a connection ended is seen at its other end.
                    std::thread::spawn(move || serve(&guest, stream));
                }
                Err(cause) => guest.serial.complain(&format!("cannot accept on TCP port {port}: {cause}")),
            }
        }
    });
    Ok(port)
}

fn echo(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    io::copy(&mut &*stream, &mut &*stream).map(drop)
}

/// A line `<sequence> <ms since the connection began>` at an interval, until the client goes. The client's first line may set the
/// interval: `every 5ms`. What could not be sent in time is left out, never sent in a burst.
fn count(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let interval = Arc::new(AtomicU64::new(micros(DEFAULT_INTERVAL)));
    let (chosen, client) = (Arc::clone(&interval), stream.try_clone()?);
    std::thread::spawn(move || {
        let mut line = String::new();
        if BufReader::new(client.take(LINE)).read_line(&mut line).is_ok()
            && let Some(every) = read_interval(&line)
        {
            chosen.store(micros(every), Ordering::Relaxed);
        }
    });
    let start = Instant::now();
    let mut due = start;
    for sequence in 0_u64.. {
        (&*stream).write_all(format!("{sequence} {}\n", millis(start)).as_bytes())?;
        let every = Duration::from_micros(interval.load(Ordering::Relaxed));
        due = (due + every).max(Instant::now());
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// `every 5ms`, at least one millisecond.
fn read_interval(line: &str) -> Option<Duration> {
    let ms = line.trim().strip_prefix("every ")?.strip_suffix("ms")?.parse::<u64>().ok()?;
    (ms > 0).then(|| Duration::from_millis(ms))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn command(guest: &Arc<Guest>, stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = String::new();
        let length = (&mut lines).take(LINE).read_line(&mut line)?;
        if length == 0 {
            return Ok(());
        }
        let (answer, after) = control::answer(guest, &line);
        (&*stream).write_all(format!("{answer}\n").as_bytes())?;
        if let After::End(how) = after {
            boot::end(guest, how, "control");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_read_or_left_alone() {
        assert_eq!(read_interval("every 5ms\n"), Some(Duration::from_millis(5)));
        for line in ["", "every ms", "every 0ms", "every 5", "5ms", "every -1ms"] {
            assert_eq!(read_interval(line), None, "{line:?}");
        }
    }
}
