//! Whether a network is in the way of others.
//!
//! Two networks are in each other's way if they have an address in common and a packet can be meant for either: on one
//! layer-2 segment, or if one of them is routed. Equal addresses on two segments that nothing routes between are fine.

use std::fmt;

use crate::AddressSet;

/// Addresses that someone uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedNetwork {
    /// For people: `the pod network`, `the setting storage-network`.
    pub name: String,
    /// The layer-2 segment that the addresses stay on, as a cluster network and a VLAN; none: they are routed, or it is not
    /// known.
    pub segment: Option<String>,
    /// The whole network, or what is left of it for others to carve from.
    pub addresses: AddressSet,
}

/// Another network that is in the way, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap<'a> {
    pub other: &'a NamedNetwork,
    pub addresses: AddressSet,
}

impl fmt::Display for Overlap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "overlaps with {} in {}", self.other.name, self.addresses)
    }
}

impl NamedNetwork {
    fn meets(&self, other: &Self) -> bool {
        match (&self.segment, &other.segment) {
            (Some(one), Some(two)) => one == two,
            _ => true,
        }
    }

    /// Every one of the others that this one is in the way of, in their order.
    pub fn overlaps<'a>(&self, others: impl IntoIterator<Item = &'a Self>) -> Vec<Overlap<'a>> {
        let found = others
            .into_iter()
            .filter(|other| self.meets(other))
            .map(|other| Overlap { addresses: self.addresses.intersection(&other.addresses), other });
        found.filter(|overlap| !overlap.addresses.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Network;
    use crate::naive::{self, walk_set};

    fn named(name: &str, segment: Option<&str>, network: &str) -> NamedNetwork {
        let addresses = network.parse::<Network>().unwrap().into();
        NamedNetwork { name: name.to_owned(), segment: segment.map(str::to_owned), addresses }
    }

    #[test]
    fn overlaps_say_with_whom_and_where() {
        let candidate = named("the migration network", Some("vm 10"), "10.42.8.0/22");
        let others = [
            named("the pod network", None, "10.42.0.0/16"),
            named("storage-network", Some("vm 11"), "10.42.8.0/24"),
            named("rwx-network", Some("vm 10"), "10.42.9.0/24"),
            named("the service network", None, "10.43.0.0/16"),
            named("the pod network", None, "fd00::/64"),
        ];
        let said: Vec<String> = candidate.overlaps(&others).iter().map(Overlap::to_string).collect();
        assert_eq!(
            said,
            ["overlaps with the pod network in 10.42.8.0/22", "overlaps with rwx-network in 10.42.9.0/24"]
        );
    }

    proptest! {
        #[test]
        fn an_overlap_is_the_common_addresses(sets in prop::collection::vec((naive::set(), prop::option::of(0..2_u8)), 1..5)) {
            let networks: Vec<NamedNetwork> = sets
                .into_iter()
                .map(|(addresses, segment)| {
                    NamedNetwork { name: String::new(), segment: segment.map(|segment| segment.to_string()), addresses }
                })
                .collect();
            let (candidate, others) = networks.split_first().unwrap();
            let found: Vec<_> = candidate.overlaps(others).into_iter().map(|overlap| walk_set(&overlap.addresses)).collect();
            let model: Vec<_> = others
                .iter()
                .filter(|other| candidate.segment.is_none() || other.segment.is_none() || candidate.segment == other.segment)
                .map(|other| &walk_set(&candidate.addresses) & &walk_set(&other.addresses))
                .filter(|common| !common.is_empty())
                .collect();
            prop_assert_eq!(found, model);
        }
    }
}
