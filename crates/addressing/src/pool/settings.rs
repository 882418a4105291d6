//! A pool as it is written: the keys of whereabouts, in plain text, and names for the places in it.
//!
//! It owns no rule. An empty text is one that was not given, as in whereabouts.

use std::fmt;

/// The addresses of a network, as text. The keys before `ip_ranges` describe one range, which comes before the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolSettings {
    /// `address/length` or `first-last/length`.
    pub range: Option<String>,
    pub range_start: Option<String>,
    pub range_end: Option<String>,
    /// Addresses, networks, and ranges `first-last`.
    pub exclude: Vec<String>,
    /// More ranges; one address is given of each.
    pub ip_ranges: Vec<RangeSettings>,
    /// Belongs to every range of its family.
    pub gateway: Option<String>,
    /// Pools of different names do not share addresses, even of equal ranges.
    pub network_name: Option<String>,
}

/// One range, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSettings {
    pub range: String,
    pub range_start: Option<String>,
    pub range_end: Option<String>,
    pub exclude: Vec<String>,
    /// Not a key of whereabouts: with one gateway for all, dual stack cannot have two.
    pub gateway: Option<String>,
}

/// A place in the settings. Its text is the path in a configuration of whereabouts; who keeps a pool in another shape
/// has the parts to say it in its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Field {
    /// Which of `ipRanges`; none: the settings themselves.
    pub range: Option<usize>,
    pub key: Key,
}

/// A key of the settings or of one range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    Range,
    RangeStart,
    RangeEnd,
    /// Which of the exclusions.
    Exclude(usize),
    Gateway,
    NetworkName,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(range) = self.range {
            write!(f, "ipRanges[{range}].")?;
        }
        match self.key {
            Key::Range => f.write_str("range"),
            Key::RangeStart => f.write_str("range_start"),
            Key::RangeEnd => f.write_str("range_end"),
            Key::Exclude(which) => write!(f, "exclude[{which}]"),
            Key::Gateway => f.write_str("gateway"),
            Key::NetworkName => f.write_str("network_name"),
        }
    }
}
