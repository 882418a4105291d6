//! What can go wrong, in the words of the one who must do something about it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use identity::{Member, MemberError};
use tokio_rustls::rustls::{self, AlertDescription};

use crate::record::RecordError;

/// Setting up failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the tunnel must be bound to one address of this node, and {address} is not one")]
    Unspecified { address: IpAddr },
    #[error("no interface of this node has the address {address}; is the migration network attached?")]
    NoInterface { address: IpAddr },
    #[error("looking up the interface that has the address {address} failed")]
    Interfaces {
        address: IpAddr,
        #[source]
        source: io::Error,
    },
    #[error("listening on {address} failed")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("listening on the unix socket {path} failed")]
    ListenUnix {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the {what} cannot be used for the tunnel: {problem}")]
    Credentials { what: &'static str, problem: String },
    #[error("the tunnel's credentials were refused by the TLS library")]
    Tls(#[source] rustls::Error),
}

/// A connection to the target could not be made. The unix connection that wanted it was closed.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("this node cannot send from its migration address")]
    Source(#[source] Error),
    #[error("connecting to {target} failed")]
    Connect {
        target: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("the handshake with {target} failed")]
    Handshake {
        target: SocketAddr,
        #[source]
        source: HandshakeError,
    },
    #[error("the certificate of {target} names nobody")]
    Unnamed {
        target: SocketAddr,
        #[source]
        source: MemberError,
    },
    #[error("{target} is {found}, not {expected}: nothing was sent to it")]
    OtherMember { target: SocketAddr, found: Box<Member>, expected: Box<Member> },
    #[error("TLS is disabled here, and the target gave no token for this migration")]
    NoToken,
    #[error("{target} refused the connection; its log and its count of refusals say why")]
    Refused { target: SocketAddr },
    #[error("the connection to {target} broke before it was accepted")]
    Broken {
        target: SocketAddr,
        #[source]
        source: Broken,
    },
    #[error("no thread could be started")]
    Thread(#[source] io::Error),
}

impl DialError {
    pub const NAMES: [&'static str; 9] = [
        "source",
        "connect",
        "handshake",
        "unnamed",
        "other_member",
        "no_token",
        "refused",
        "broken",
        "thread",
    ];

    /// A word for metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Source(_) => "source",
            Self::Connect { .. } => "connect",
            Self::Handshake { .. } => "handshake",
            Self::Unnamed { .. } => "unnamed",
            Self::OtherMember { .. } => "other_member",
            Self::NoToken => "no_token",
            Self::Refused { .. } => "refused",
            Self::Broken { .. } => "broken",
            Self::Thread(_) => "thread",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    #[error("it took too long")]
    Timeout,
    #[error("the connection ended")]
    Ended(#[source] io::Error),
    #[error("TLS")]
    Tls(#[source] rustls::Error),
    #[error("the other side speaks another protocol")]
    Protocol,
    #[error("the other side did something that this protocol does not have")]
    Unexpected,
    #[error("the keys that were agreed on cannot be used")]
    Keys(#[source] RecordError),
}

/// Why a connection that was open ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    #[error("nothing moved for longer than the idle timeout")]
    Idle,
    #[error("the other node ended the connection without saying that all was sent")]
    Truncated,
    #[error("the other node ended the connection with the TLS alert {0} ({name:?})", name = AlertDescription::from(*.0))]
    Alert(u8),
    #[error("the other node closed the connection instead of accepting it")]
    Refused,
    #[error("the other node did not accept the connection in time")]
    NoAnswer,
    #[error("the other node sent something else than an answer")]
    Answer,
    #[error("the unix socket broke")]
    Near(#[source] io::Error),
    #[error("the connection to the other node broke")]
    Far(#[source] io::Error),
    #[error("a record could not be read or made")]
    Record(#[from] RecordError),
    #[error("no thread could be started")]
    Thread(#[source] io::Error),
}

impl Broken {
    /// Whether it came from the other node or the road to it, and not from here.
    pub fn is_far(&self) -> bool {
        !matches!(self, Self::Near(_) | Self::Record(_) | Self::Thread(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_has_a_name() {
        let expected = "the other node ended the connection with the TLS alert 45 (CertificateExpired)";
        assert_eq!(Broken::Alert(45).to_string(), expected);
    }
}
