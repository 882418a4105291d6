//! How long to wait for what. Every wait of the tunnel is one of these.

use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the target's TCP connection is there.
    pub dial: Duration,
    /// Until both sides have proved who they are, or the preamble was read, and the destination is connected.
    pub handshake: Duration,
    /// How long a connection may stay open without a byte in either direction. A paused migration is quiet, too; the death of a
    /// node is noticed by the two below, much earlier.
    pub idle: Duration,
    /// How long bytes that were sent may stay unacknowledged. To the kernel that is also how long a reader may take nothing at all,
    /// even if its node answers: less than a minute would end migrations whose target is only busy.
    pub unacknowledged: Duration,
    /// How often a quiet peer is asked whether it is still there; after three silent times it is not.
    pub keepalive: Duration,
    /// How long open connections may go on after a stop was asked for.
    pub drain: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            dial: Duration::from_secs(10),
            handshake: Duration::from_secs(10),
            idle: Duration::from_mins(15),
            unacknowledged: Duration::from_mins(1),
            keepalive: Duration::from_secs(5),
            drain: Duration::from_secs(10),
        }
    }
}
