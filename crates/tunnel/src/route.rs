//! Which connection this is: a channel of a migration, and the server name that says so on the wire.
//!
//! `<channel>.<migration UID>.migration` is all that a gateway sees of a connection. Names are parsed strictly: what is
//! accepted here is written back letter for letter.

use std::fmt;
use std::str::FromStr;

const SUFFIX: &str = ".migration";
const PROBE: &str = "probe";
/// Of one label of a DNS name.
const LONGEST: usize = 63;

/// A channel of a migration, numbered by the port that libvirt would use for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Channel(pub u16);

impl Channel {
    /// libvirt's own conversation.
    pub const RPC: Self = Self(0);
    /// The source's word that the guest has left.
    pub const DEPARTURE: Self = Self(1);
    /// Guest memory.
    pub const MEMORY: Self = Self(49152);
    /// Disks that are not shared.
    pub const DISKS: Self = Self(49153);

    /// A word for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::RPC => "rpc",
            Self::DEPARTURE => "departure",
            Self::MEMORY => "memory",
            Self::DISKS => "disks",
            Self(_) => "other",
        }
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// The UID of a migration: a label of a DNS name, as every UID of Kubernetes is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Migration(String);

/// A channel of a migration.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Route {
    pub migration: Migration,
    pub channel: Channel,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RouteError {
    #[error(
        "the UID of a migration has 1 to 63 lower-case letters, digits and inner hyphens; {value:?} is not one"
    )]
    Migration { value: String },
    #[error("a channel is a number below 65536 without leading zeros; {value:?} is not one")]
    Channel { value: String },
    #[error("{value:?} is not CHANNEL.MIGRATION.migration")]
    ServerName { value: String },
}

impl Migration {
    pub fn new(uid: &str) -> Result<Self, RouteError> {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let good = (1..=LONGEST).contains(&uid.len())
            && uid.bytes().all(inner)
            && !uid.starts_with('-')
            && !uid.ends_with('-');
        if good { Ok(Self(uid.to_owned())) } else { Err(RouteError::Migration { value: uid.to_owned() }) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Migration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl FromStr for Channel {
    type Err = RouteError;

    fn from_str(text: &str) -> Result<Self, RouteError> {
        let refused = || RouteError::Channel { value: text.to_owned() };
        let channel = Self(text.parse().map_err(|_| refused())?);
        // "+1" and "01" are numbers too, and would be second names of one channel.
        if channel.to_string() == text { Ok(channel) } else { Err(refused()) }
    }
}

impl Route {
    pub fn new(migration: Migration, channel: Channel) -> Self {
        Self { migration, channel }
    }

    /// No channel of a migration, but the question whether it could be reached: answered once the caller has proved who it is, and
    /// closed. UIDs of Kubernetes have 36 characters, so it is no migration's name.
    pub(crate) fn probe() -> Self {
        Self::new(Migration(PROBE.to_owned()), Channel::RPC)
    }

    pub(crate) fn is_probe(&self) -> bool {
        self.migration.as_str() == PROBE
    }

    /// The name that the dialling side asks for.
    pub fn server_name(&self) -> String {
        format!("{}.{}{SUFFIX}", self.channel, self.migration)
    }

    pub fn from_server_name(name: &str) -> Result<Self, RouteError> {
        let (channel, migration) = name
            .strip_suffix(SUFFIX)
            .and_then(|name| name.split_once('.'))
            .ok_or_else(|| RouteError::ServerName { value: name.to_owned() })?;
        Ok(Self::new(Migration::new(migration)?, channel.parse()?))
    }
}

impl fmt::Display for Route {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "channel {} of migration {}", self.channel, self.migration)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_route_survives_its_server_name(uid in "[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?", channel: u16) {
            let route = Route::new(Migration::new(&uid).unwrap(), Channel(channel));
            prop_assert_eq!(Route::from_server_name(&route.server_name()).unwrap(), route);
        }

        #[test]
        fn whatever_is_accepted_is_written_back_letter_for_letter(name in "[0-9a-zA-Z.+-]{0,12}\\.migration") {
            if let Ok(route) = Route::from_server_name(&name) {
                prop_assert_eq!(route.server_name(), name);
            }
        }
    }

    #[test]
    fn a_probe_is_told_apart_from_channels() {
        assert!(Route::from_server_name(&Route::probe().server_name()).unwrap().is_probe());
        assert!(!Route::from_server_name("0.5f0c.migration").unwrap().is_probe());
    }

    #[test]
    fn other_names_are_refused() {
        let bad = [
            "",
            ".migration",
            "migration",
            "1.migration",
            "1..migration",
            "01.a.migration",
            "+1.a.migration",
        ];
        let bad = bad.into_iter().chain([
            "65536.a.migration",
            "1.A.migration",
            "1.a.b.migration",
            "1.a.migration.",
        ]);
        for name in bad.chain(["1.-a.migration", "x.a.migration", "1.a.Migration"]) {
            assert!(Route::from_server_name(name).is_err(), "{name:?}");
        }
        assert!(Migration::new(&"a".repeat(64)).is_err());
    }
}
