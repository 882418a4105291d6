//! Who may connect, and to what: the question that a listener asks before a byte reaches a destination.
//!
//! The listener proves who is calling; whether that caller may have that channel is decided by whoever knows the migrations.
//! Every "no" has a reason, which is counted and logged here and never told to the caller.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use identity::Member;

use crate::counters::Counters;
use crate::line::Lines;
use crate::route::Route;
use crate::token::Token;

/// What the caller has shown.
#[derive(Debug, Clone, Copy)]
pub enum Proof<'a> {
    /// A certificate that was verified, valid now, and names this member.
    Certificate(&'a Member),
    /// Without TLS: this token, from this address.
    Token { token: &'a Token, address: IpAddr },
}

/// Decides about connections. Called on the connection's own thread; it should answer from memory.
pub trait Authorise: Send + Sync {
    fn authorise(&self, proof: &Proof<'_>, route: &Route) -> Result<Destination, Refusal>;
}

impl<F> Authorise for F
where
    F: Fn(&Proof<'_>, &Route) -> Result<Destination, Refusal> + Send + Sync,
{
    fn authorise(&self, proof: &Proof<'_>, route: &Route) -> Result<Destination, Refusal> {
        self(proof, route)
    }
}

/// Where an accepted connection goes: a unix socket, and the counters of its channel.
#[derive(Debug, Clone)]
pub struct Destination {
    pub(crate) path: PathBuf,
    pub(crate) counters: Arc<Counters>,
    pub(crate) lines: Arc<Lines>,
}

impl Destination {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), counters: Arc::default(), lines: Arc::default() }
    }

    pub(crate) fn counted(self, counters: Arc<Counters>) -> Self {
        Self { counters, ..self }
    }

    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
}

/// Why a connection was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// What came is neither a TLS handshake nor, without TLS, a preamble of this version.
    NotOurs,
    /// The server name is missing or names no channel of a migration.
    ServerName,
    /// The application protocol is missing or another.
    Protocol,
    NoCertificate,
    /// Signed by another authority, or not fit for its use.
    UntrustedCertificate,
    ExpiredCertificate,
    /// The certificate names no member of a cluster.
    UnnamedCertificate,
    /// The handshake failed in another way.
    Handshake,
    /// The handshake or the preamble took too long.
    Timeout,
    /// No such migration is expected here, or it has ended.
    UnknownMigration,
    /// The caller is not the recorded source of the migration.
    OtherSource,
    /// The migration has no such channel.
    UnknownChannel,
    /// The token is not the migration's.
    Token,
    /// The token came from another address than the source's.
    OtherAddress,
    /// All was well, but nobody listens at the destination.
    Destination,
}

impl Refusal {
    pub const ALL: [Self; 15] = [
        Self::NotOurs,
        Self::ServerName,
        Self::Protocol,
        Self::NoCertificate,
        Self::UntrustedCertificate,
        Self::ExpiredCertificate,
        Self::UnnamedCertificate,
        Self::Handshake,
        Self::Timeout,
        Self::UnknownMigration,
        Self::OtherSource,
        Self::UnknownChannel,
        Self::Token,
        Self::OtherAddress,
        Self::Destination,
    ];

    /// A word for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotOurs => "not_ours",
            Self::ServerName => "server_name",
            Self::Protocol => "protocol",
            Self::NoCertificate => "no_certificate",
            Self::UntrustedCertificate => "untrusted_certificate",
            Self::ExpiredCertificate => "expired_certificate",
            Self::UnnamedCertificate => "unnamed_certificate",
            Self::Handshake => "handshake",
            Self::Timeout => "timeout",
            Self::UnknownMigration => "unknown_migration",
            Self::OtherSource => "other_source",
            Self::UnknownChannel => "unknown_channel",
            Self::Token => "token",
            Self::OtherAddress => "other_address",
            Self::Destination => "destination",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}
