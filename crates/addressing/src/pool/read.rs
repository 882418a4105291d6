//! From text to a pool: every rule is asked, and everything that is wrong is told at once.
//!
//! A range means here what it means to whereabouts: host bits are masked, a start or an end that is not usable does not
//! count, an exclusion may lie anywhere. Unlike there, each of those is told.

use std::net::IpAddr;

use super::{Field, Key, Pool, PoolRange, PoolSettings, Problem, Problems, RangeSettings, Rule};
use crate::{AddressSet, Family, Interval, Network, TextError, text};

pub(super) fn pool(settings: &PoolSettings) -> Result<Pool, Problems> {
    let mut findings = Findings::default();
    let network_name = given(settings.network_name.as_ref()).map(str::to_owned);
    if let Some(name) = network_name.as_ref().filter(|name| !is_network_name(name)) {
        findings
            .refuse(Field { range: None, key: Key::NetworkName }, Rule::NetworkName { name: name.clone() });
    }

    let first = first_range(settings, &mut findings);
    let written: Vec<(Option<usize>, &RangeSettings)> = (first.iter().map(|range| (None, range)))
        .chain(settings.ip_ranges.iter().enumerate().map(|(which, range)| (Some(which), range)))
        .collect();
    if written.is_empty() {
        findings.refuse(Field { range: None, key: Key::Range }, Rule::NoRange);
    }

    let field = Field { range: None, key: Key::Gateway };
    let gateway = given(settings.gateway.as_ref()).and_then(|text| findings.take(field, text::address(text)));
    let ranges: Vec<PoolRange> = (written.iter())
        .filter_map(|(which, range)| Reader { which: *which, findings: &mut findings }.range(range, gateway))
        .collect();
    let complete = ranges.len() == written.len();
    if let Some(gateway) = gateway.filter(|_| complete && !ranges.is_empty()) {
        let networks: Vec<Network> = ranges.iter().map(|range| range.network).collect();
        findings.gateway(field, gateway, &networks);
    }
    for (position, range) in ranges.iter().enumerate() {
        for earlier in &ranges[..position] {
            let addresses = range.allocatable.intersection(&earlier.allocatable);
            if !addresses.is_empty() {
                findings.refuse(range.field, Rule::GivenTwice { addresses, other: earlier.field });
            }
        }
    }

    if findings.refusals.is_empty() {
        Ok(Pool { network_name, ranges, warnings: findings.warnings })
    } else {
        // Who has to change it anyway wants to hear all of it.
        Err(Problems([findings.refusals, findings.warnings].concat()))
    }
}

/// The range that the settings themselves describe. Its gateway is that of the pool.
fn first_range(settings: &PoolSettings, findings: &mut Findings) -> Option<RangeSettings> {
    let Some(range) = given(settings.range.as_ref()) else {
        let start = given(settings.range_start.as_ref()).map(|_| Key::RangeStart);
        let end = given(settings.range_end.as_ref()).map(|_| Key::RangeEnd);
        let excluded = (0..settings.exclude.len()).map(Key::Exclude);
        for key in start.into_iter().chain(end).chain(excluded) {
            findings.warn(Field { range: None, key }, Rule::WithoutRange);
        }
        return None;
    };
    Some(RangeSettings {
        range: range.to_owned(),
        range_start: settings.range_start.clone(),
        range_end: settings.range_end.clone(),
        exclude: settings.exclude.clone(),
        gateway: None,
    })
}

fn given(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

/// The rule of CNI.
fn is_network_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

#[derive(Default)]
struct Findings {
    refusals: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Findings {
    fn refuse(&mut self, field: Field, rule: Rule) {
        self.refusals.push(Problem { field, rule });
    }

    fn warn(&mut self, field: Field, rule: Rule) {
        self.warnings.push(Problem { field, rule });
    }

    fn take<T>(&mut self, field: Field, read: Result<T, TextError>) -> Option<T> {
        read.map_err(|error| self.refuse(field, error.into())).ok()
    }

    /// The value; its fault becomes a warning.
    fn tolerate<T>(&mut self, field: Field, read: Result<text::Read<T>, TextError>) -> Option<T> {
        let read = self.take(field, read)?;
        if let Some(fault) = read.fault {
            self.warn(field, fault.into());
        }
        Some(read.value)
    }

    fn gateway(&mut self, field: Field, gateway: IpAddr, networks: &[Network]) {
        match networks.iter().find(|network| network.contains(gateway)) {
            None => self.warn(field, Rule::GatewayOutside { gateway }),
            Some(network) if !network.usable().is_some_and(|usable| usable.contains(gateway)) => {
                self.warn(field, Rule::GatewayUnusable { gateway, network: *network });
            }
            Some(_) => {}
        }
    }
}

/// Reads one range.
struct Reader<'a> {
    which: Option<usize>,
    findings: &'a mut Findings,
}

impl Reader<'_> {
    fn field(&self, key: Key) -> Field {
        Field { range: self.which, key }
    }

    fn range(&mut self, settings: &RangeSettings, of_pool: Option<IpAddr>) -> Option<PoolRange> {
        let field = self.field(Key::Range);
        let read = self.findings.tolerate(field, text::range(&settings.range));
        // The rest is read also when the range cannot be: its faults belong to the same answer.
        let start = self.address(Key::RangeStart, settings.range_start.as_ref());
        let end = self.address(Key::RangeEnd, settings.range_end.as_ref());
        let exclusions = self.exclusions(&settings.exclude);
        let own_gateway = self.address(Key::Gateway, settings.gateway.as_ref());
        let read = read?;
        let network = read.network;

        for (which, excluded) in &exclusions {
            if !network.interval().overlaps(excluded) {
                let rule = Rule::ExcludesNothing { excluded: *excluded, network };
                self.findings.warn(self.field(Key::Exclude(*which)), rule);
            }
        }
        let gateway = self.gateway(network, own_gateway, of_pool);
        let Some(usable) = network.usable() else {
            self.findings.refuse(field, Rule::TooSmall { network });
            return None;
        };
        let bounds = if let Some((first, last)) = read.ends {
            for (key, _) in
                [(Key::RangeStart, start), (Key::RangeEnd, end)].iter().filter(|(_, end)| end.is_some())
            {
                self.findings.warn(self.field(*key), Rule::Overridden);
            }
            self.bounds(usable, (Key::Range, Some(first)), (Key::Range, Some(last)))
        } else {
            self.bounds(usable, (Key::RangeStart, start), (Key::RangeEnd, end))
        };

        let exclusions: AddressSet = exclusions.into_iter().map(|(_, interval)| interval).collect();
        let reserved: AddressSet = gateway.into_iter().collect();
        let allocatable = AddressSet::from(bounds).difference(&exclusions).difference(&reserved);
        if allocatable.is_empty() {
            self.findings.refuse(field, Rule::NothingLeft { bounds });
        }
        Some(PoolRange { field, network, bounds, exclusions, gateway, allocatable })
    }

    fn address(&mut self, key: Key, text: Option<&String>) -> Option<IpAddr> {
        let field = self.field(key);
        given(text).and_then(|text| self.findings.take(field, text::address(text)))
    }

    /// The exclusions with their positions. Two that overlap are a sign that one was meant to be another.
    fn exclusions(&mut self, texts: &[String]) -> Vec<(usize, Interval)> {
        let mut read = Vec::new();
        for (which, text) in texts.iter().enumerate() {
            let interval = self.findings.tolerate(self.field(Key::Exclude(which)), text::exclusion(text));
            read.extend(interval.map(|interval| (which, interval)));
        }
        let mut sorted = read.clone();
        sorted.sort_unstable_by_key(|(which, interval)| (*interval, *which));
        let mut highest: Option<(usize, Interval)> = None;
        for (which, interval) in sorted {
            if let Some((other, addresses)) =
                highest.and_then(|(other, reach)| Some((other, reach.intersection(&interval)?)))
            {
                let rule =
                    Rule::ExcludedTwice { addresses, other: self.field(Key::Exclude(other.min(which))) };
                self.findings.warn(self.field(Key::Exclude(other.max(which))), rule);
            }
            if highest.is_none_or(|(_, reach)| reach.last() < interval.last()) {
                highest = Some((which, interval));
            }
        }
        read
    }

    /// The gateway that goes with the addresses: the range's own, else that of the pool if it is of the family.
    fn gateway(&mut self, network: Network, own: Option<IpAddr>, of_pool: Option<IpAddr>) -> Option<IpAddr> {
        let Some(gateway) = own else {
            return of_pool.filter(|gateway| Family::of(*gateway) == network.family());
        };
        let field = self.field(Key::Gateway);
        if Family::of(gateway) == network.family() {
            self.findings.gateway(field, gateway, &[network]);
        } else {
            self.findings.refuse(field, Rule::GatewayFamily { gateway, network });
        }
        Some(gateway)
    }

    /// What lies between start and end; one that is not usable does not count.
    fn bounds(
        &mut self,
        usable: Interval,
        (start_key, start): (Key, Option<IpAddr>),
        (end_key, end): (Key, Option<IpAddr>),
    ) -> Interval {
        let mut bounds = usable;
        if let Some(start) = start {
            match Interval::new(start, bounds.last()).filter(|_| bounds.contains(start)) {
                Some(from_start) => bounds = from_start,
                None => {
                    self.findings.warn(self.field(start_key), Rule::StartIgnored { start, usable: bounds });
                }
            }
        }
        if let Some(end) = end {
            match Interval::new(bounds.first(), end).filter(|_| bounds.contains(end)) {
                Some(to_end) => bounds = to_end,
                None => self.findings.warn(self.field(end_key), Rule::EndIgnored { end, usable: bounds }),
            }
        }
        bounds
    }
}
