//! What a gateway does: reads which channel of which migration a connection wants, lets its owner decide where that leads, and
//! moves the ciphertext in both directions without a key to it.
//!
//! The handshake takes place between the two nodes; a relay replays the first message and then only carries bytes.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use crate::Timeouts;
use crate::counters::Counters;
use crate::crew::Crew;
use crate::error::{Broken, Error};
use crate::handshake::Timed;
use crate::hello::{Hello, HelloError};
use crate::line::Line;
use crate::pump::plain::Mover;
use crate::pump::{Here, Joint, encrypted};
use crate::route::Route;
use crate::socket::{self, Home, Unreached};

/// Where a relayed connection goes.
#[derive(Debug, Clone)]
pub struct Onward {
    /// This gateway's address on the network of the next hop.
    pub source: IpAddr,
    pub target: SocketAddr,
    pub counters: Arc<Counters>,
}

#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    #[error("the connection was not taken: its first message is not one of the tunnel's")]
    Hello(#[source] HelloError),
    #[error("nobody may be reached for {route}")]
    Refused { route: Route },
    #[error("the gateway cannot send from its address")]
    Source(#[source] Error),
    #[error("the next hop {target} could not be reached")]
    Connect {
        target: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("the socket that was accepted cannot be used")]
    Socket(#[source] io::Error),
    #[error("the connection broke")]
    Broken(#[source] Broken),
}

/// Relays one accepted connection to its end. Blocks: it is to be called on a thread of its own.
pub fn relay(
    accepted: std::net::TcpStream,
    timeouts: &Timeouts,
    mover: Mover,
    decide: impl FnOnce(&Route) -> Option<Onward>,
) -> Result<(), RelayError> {
    let line = Arc::new(Line::default());
    let near = line.hold(accepted.into());
    near.set_nonblocking(false)
        .and_then(|()| socket::prepare(&near, timeouts))
        .map_err(RelayError::Socket)?;
    let mut timed = Timed { socket: &near, deadline: Instant::now() + timeouts.handshake };
    let Hello { route, bytes } = Hello::read(&mut timed).map_err(RelayError::Hello)?;
    let Some(Onward { source, target, counters }) = decide(&route) else {
        return Err(RelayError::Refused { route });
    };
    let far = socket::dial(&Home::new(source), target, timeouts).map_err(|unreached| match unreached {
        Unreached::Source(error) => RelayError::Source(error),
        Unreached::Target(source) => RelayError::Connect { target, source },
    })?;
    let far = line.hold(far);
    for socket in [&near, &far] {
        socket::watch_idleness(socket, timeouts).map_err(RelayError::Socket)?;
    }
    encrypted::write_all(&line, &far, &bytes).map_err(RelayError::Broken)?;
    let joint = Joint { line, near, far, counters, crew: Crew::default() };
    joint
        .run(Here::Sends, move |joint| joint.send_plain(mover), move |joint| joint.receive_plain(mover))
        .map_err(RelayError::Broken)
}
