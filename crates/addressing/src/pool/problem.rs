//! What can be wrong with the settings of a pool, each with its field.
//!
//! Some rules refuse; the others whereabouts passes over in silence, and they are warnings. A rule is the same value in
//! both, so who is strict turns warnings into refusals without a second check.

use std::fmt;
use std::net::IpAddr;

use super::Field;
use crate::{AddressSet, Interval, Network, TextError};

/// A rule that a field breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {rule}")]
pub struct Problem {
    pub field: Field,
    pub rule: Rule,
}

/// Everything that was found, at once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(Problem::to_string).collect();
        f.write_str(&texts.join("; "))
    }
}

/// The rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rule {
    // Refused: there is no pool.
    #[error(transparent)]
    Text(#[from] TextError),
    #[error("no range is given: set range or ipRanges")]
    NoRange,
    #[error(
        "{network} is too small: its lowest and its highest address are never given, and it has no other"
    )]
    TooSmall { network: Network },
    #[error("nothing is left of {bounds}: all of it is excluded or the gateway")]
    NothingLeft { bounds: Interval },
    #[error("{addresses} would be given by {other} as well")]
    GivenTwice { addresses: AddressSet, other: Field },
    #[error("{gateway} is not of the family of {network}")]
    GatewayFamily { gateway: IpAddr, network: Network },
    #[error(
        "{name:?} is not a network name: letters, digits, '_', '.' and '-', beginning with a letter or digit"
    )]
    NetworkName { name: String },

    // Warned of: the pool is there without it.
    #[error("{start} is ignored: it is not one of the usable addresses {usable}")]
    StartIgnored { start: IpAddr, usable: Interval },
    #[error("{end} is ignored: it is not one of the usable addresses {usable}")]
    EndIgnored { end: IpAddr, usable: Interval },
    #[error("is ignored: range itself says where it starts and ends")]
    Overridden,
    #[error("is ignored: it belongs to range, which is not set")]
    WithoutRange,
    #[error("{excluded} is outside of {network}: nothing is excluded by it")]
    ExcludesNothing { excluded: Interval, network: Network },
    #[error("{addresses} is excluded by {other} already")]
    ExcludedTwice { addresses: Interval, other: Field },
    #[error("{gateway} is in no network of the pool")]
    GatewayOutside { gateway: IpAddr },
    #[error("{gateway} is the lowest or the highest address of {network}, which no host can have")]
    GatewayUnusable { gateway: IpAddr, network: Network },
}
