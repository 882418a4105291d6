//! The ranges and exclusions of a value, read into a pool; everything that is wrong is told at once, each with its field.
//!
//! Stricter than a pool itself: a range is a network and nothing else, an exclusion lies inside of a range, and nothing is passed
//! over. Ranges are intervals and are never walked through: a /8 and a /64 are read as fast as a /30.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use addressing::pool::{Key, Rule};
use addressing::{AddressSet, Family, Interval, Network, Pool, PoolSettings, RangeSettings, text};
use api::harvester::MigrationNetworkValue;

use crate::admission::Causes;

/// Addresses that no handler takes for its migration address, by base and length, and what they are.
const NOT_FOR_HOSTS: [(IpAddr, u8, &str); 10] = [
    (v4(0, 0), 8, "which no host can have"),
    (v4(127, 0), 8, "which are loopback addresses"),
    (v4(169, 254), 16, "which are link-local addresses"),
    (v4(224, 0), 4, "which are multicast addresses"),
    (v4(240, 0), 4, "which are reserved"),
    (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 128, "which no host can have"),
    (IpAddr::V6(Ipv6Addr::LOCALHOST), 128, "which is the loopback address"),
    (IpAddr::V6(Ipv4Addr::UNSPECIFIED.to_ipv6_mapped()), 96, "which are IPv4 addresses written as IPv6"),
    (v6(0xfe80), 10, "which are link-local addresses"),
    (v6(0xff00), 8, "which are multicast addresses"),
];

const fn v4(first: u8, second: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(first, second, 0, 0))
}

const fn v6(first: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 0))
}

/// The addresses of a value, and the field of each range. None: something was refused.
pub(super) fn pool(
    written: &MigrationNetworkValue,
    root: &str,
    causes: &mut Causes,
) -> Option<(Pool, Vec<&'static str>)> {
    let mut reader = Reader { written, root, causes };
    let ranges = reader.ranges();
    let networks: Vec<Network> = ranges.iter().map(|range| range.network).collect();
    let excluded = reader.exclusions(&networks);
    if ranges.is_empty() {
        return None;
    }
    let pool = reader.judge(&ranges, &excluded)?;
    Some((pool, ranges.iter().map(|range| range.field).collect()))
}

/// A range that is a network, and where it is written.
struct Range<'a> {
    network: Network,
    field: &'static str,
    start: Option<&'a str>,
    end: Option<&'a str>,
}

struct Reader<'a> {
    written: &'a MigrationNetworkValue,
    root: &'a str,
    causes: &'a mut Causes,
}

impl<'a> Reader<'a> {
    fn refuse(&mut self, field: &str, message: impl Into<String>) {
        self.causes.invalid(format!("{}.{field}", self.root), message);
    }

    /// The ranges that are there and are networks.
    fn ranges(&mut self) -> Vec<Range<'a>> {
        let written = self.written;
        let given = |text: &'a Option<String>| text.as_deref().filter(|text| !text.is_empty());
        let (start, end) = (given(&written.range_v6_start), given(&written.range_v6_end));
        let second = given(&written.range_v6);
        if written.range.is_empty() && second.is_none() {
            let field = format!("{}.range", self.root);
            self.causes
                .required(field, "Give the addresses of the network, such as 10.1.0.0/24 or fd00:1::/64.");
        }
        for (field, text) in [("rangeV6Start", start), ("rangeV6End", end)] {
            if let Some(text) = text.filter(|_| second.is_none()) {
                self.refuse(
                    field,
                    format!("{text} belongs to rangeV6, which is not set: set it, or leave out {field}."),
                );
            }
        }
        let mut ranges = Vec::new();
        if !written.range.is_empty()
            && let Some(network) = self.network("range", &written.range)
        {
            ranges.push(Range { network, field: "range", start: None, end: None });
        }
        if let Some(text) = second
            && let Some(network) = self.network("rangeV6", text)
        {
            self.second_family(network, &ranges);
            ranges.push(Range { network, field: "rangeV6", start, end });
        }
        ranges
    }

    /// The second range is there to have both families.
    fn second_family(&mut self, network: Network, others: &[Range<'_>]) {
        if network.family() == Family::V4 {
            self.refuse("rangeV6", format!("{network} is an IPv4 network: write it into range."));
        } else if let Some(other) = others.iter().find(|other| other.network.family() == Family::V6) {
            let message = format!(
                "{} and {network} are both IPv6: leave out one of range and rangeV6, or make range an IPv4 network.",
                other.network
            );
            self.refuse("rangeV6", message);
        }
    }

    fn network(&mut self, field: &str, written: &str) -> Option<Network> {
        if written.contains('-') {
            self.refuse(
                field,
                format!(
                    "{written:?} is not a network: write address/length, and exclude what is not to be given."
                ),
            );
            return None;
        }
        let network: Network = match written.parse() {
            Ok(network) => network,
            Err(error) => {
                self.refuse(field, sentence(&error.to_string()));
                return None;
            }
        };
        let addresses: AddressSet = network.into();
        for (base, length, what) in NOT_FOR_HOSTS {
            // No length is beyond its family: each of them refuses a value in the table of tests.
            let Some(block) = Network::around(base, length) else { continue };
            if addresses.overlaps(&block.into()) {
                self.refuse(
                    field,
                    format!("{network} has addresses of {block}, {what}: choose another range."),
                );
                return None;
            }
        }
        Some(network)
    }

    /// The exclusions that can be read and lie inside of a range, with their positions.
    fn exclusions(&mut self, networks: &[Network]) -> Vec<(usize, Interval)> {
        let mut inside = Vec::new();
        for (which, written) in self.written.exclude.iter().enumerate() {
            let field = format!("exclude[{which}]");
            match text::exclusion(written).and_then(text::Read::strictly) {
                Err(error) => self.refuse(&field, sentence(&error.to_string())),
                // What the range is must be settled first.
                Ok(_) if networks.is_empty() => {}
                Ok(interval) if networks.iter().any(|network| network.interval().covers(&interval)) => {
                    inside.push((which, interval));
                }
                Ok(interval) => {
                    let ranges: Vec<String> = networks.iter().map(ToString::to_string).collect();
                    let message = format!(
                        "{interval} is not inside of {}: leave out what is not in the range.",
                        ranges.join(" or of ")
                    );
                    self.refuse(&field, message);
                }
            }
        }
        inside
    }

    /// The pool, once every text can be read; what the pool finds is told in the fields of the value.
    fn judge(&mut self, ranges: &[Range<'_>], excluded: &[(usize, Interval)]) -> Option<Pool> {
        let own: Vec<Vec<usize>> = ranges
            .iter()
            .map(|range| {
                let all = range.network.interval();
                excluded
                    .iter()
                    .filter(|(_, interval)| all.covers(interval))
                    .map(|(which, _)| *which)
                    .collect()
            })
            .collect();
        let settings = PoolSettings {
            ip_ranges: ranges
                .iter()
                .zip(&own)
                .map(|(range, own)| RangeSettings {
                    range: range.network.to_string(),
                    range_start: range.start.map(str::to_owned),
                    range_end: range.end.map(str::to_owned),
                    exclude: own.iter().map(|which| self.written.exclude[*which].clone()).collect(),
                    gateway: None,
                })
                .collect(),
            ..PoolSettings::default()
        };
        let (pool, problems) = match Pool::read(&settings) {
            Ok(pool) if pool.warnings().is_empty() => return Some(pool),
            Ok(pool) => {
                let warnings = pool.warnings().to_vec();
                (Some(pool), warnings)
            }
            Err(problems) => (None, problems.0),
        };
        for problem in problems {
            // Every range is one of `ipRanges` here.
            let which = problem.field.range.unwrap_or_default();
            let field = |key: Key| match key {
                Key::RangeStart => "rangeV6Start".to_owned(),
                Key::RangeEnd => "rangeV6End".to_owned(),
                Key::Exclude(position) => format!("exclude[{}]", own[which][position]),
                _ => ranges[which].field.to_owned(),
            };
            self.refuse(&field(problem.field.key), advise(&problem.rule, field));
        }
        pool
    }
}

/// What a rule says, and what to do about it.
fn advise(rule: &Rule, field: impl Fn(Key) -> String) -> String {
    let advice = match rule {
        Rule::ExcludedTwice { addresses, other } => {
            return format!(
                "{addresses} is excluded by {} already: leave out one of the two.",
                field(other.key)
            );
        }
        Rule::TooSmall { .. } => "Choose a larger range.",
        Rule::NothingLeft { bounds } => {
            return format!("Nothing is left of {bounds}: exclude less, or choose a larger range.");
        }
        Rule::StartIgnored { start, usable } => {
            return format!("{start} is not one of the usable addresses {usable}: choose one of those.");
        }
        Rule::EndIgnored { end, usable } => {
            return format!("{end} is not one of the usable addresses {usable}: choose one of those.");
        }
        _ => "",
    };
    format!("{} {advice}", sentence(&rule.to_string())).trim_end().to_owned()
}

/// A rule's words as a sentence. It may begin with an address, which stays as it is.
fn sentence(words: &str) -> String {
    let end = if words.ends_with(['?', '.']) { "" } else { "." };
    format!("{words}{end}")
}
