//! Networks against the model, and what is usable of small and large ones.

use proptest::prelude::*;

use super::*;
use crate::naive::{self, walk};

#[test]
fn usable_is_all_but_the_ends() {
    for (network, usable) in [
        ("10.1.0.0/24", Some(("10.1.0.1", "10.1.0.254", 254))),
        ("10.1.0.4/30", Some(("10.1.0.5", "10.1.0.6", 2))),
        ("10.1.0.4/31", None),
        ("10.1.0.4/32", None),
        ("10.0.0.0/8", Some(("10.0.0.1", "10.255.255.254", (1 << 24) - 2))),
        ("0.0.0.0/0", Some(("0.0.0.1", "255.255.255.254", (1 << 32) - 2))),
        ("fd00::/64", Some(("fd00::1", "fd00::ffff:ffff:ffff:fffe", (1 << 64) - 2))),
        ("fd00::4/126", Some(("fd00::5", "fd00::6", 2))),
        ("fd00::4/127", None),
        ("fd00::4/128", None),
        ("::/0", Some(("::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe", u128::MAX - 1))),
    ] {
        let network: Network = network.parse().unwrap();
        let expected =
            usable.map(|(first, last, count)| (first.parse().unwrap(), last.parse().unwrap(), count));
        let found = network.usable().map(|usable| (usable.first(), usable.last(), usable.count()));
        assert_eq!(found, expected, "{network}");
        assert_eq!(
            network.first_usable().zip(network.last_usable()),
            expected.map(|(first, last, _)| (first, last))
        );
    }
}

#[test]
fn a_length_beyond_the_family_is_no_network() {
    assert_eq!(Network::around("10.0.0.1".parse().unwrap(), 33), None);
    assert_eq!(Network::around("::1".parse().unwrap(), 129), None);
}

#[test]
fn the_smallest_network_around_an_interval() {
    for (first, last, network) in [
        ("10.42.1.0", "10.42.9.255", "10.42.0.0/20"),
        ("192.168.1.7", "192.168.1.7", "192.168.1.7/32"),
        ("127.255.255.255", "128.0.0.0", "0.0.0.0/0"),
        ("fd42:0:0:1::", "fd42::9:ffff:ffff:ffff:ffff", "fd42::/60"),
        ("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::/0"),
        ("::1", "::1", "::1/128"),
    ] {
        let interval = Interval::new(first.parse().unwrap(), last.parse().unwrap()).unwrap();
        assert_eq!(Network::covering(&interval).to_string(), network);
    }
}

proptest! {
    #[test]
    fn no_smaller_network_has_both_ends(interval in naive::interval()) {
        let covering = Network::covering(&interval);
        prop_assert!(covering.interval().covers(&interval));
        let halves = [interval.first(), interval.last()]
            .map(|end| Network::around(end, covering.prefix_length() + 1));
        prop_assert!(halves[0].is_none() || halves[0] != halves[1]);
    }

    #[test]
    fn a_network_is_its_addresses(one in naive::network(), two in naive::network(), address in naive::address()) {
        let (ones, twos) = (walk(&one.interval()), walk(&two.interval()));
        let bits = one.family().bits();
        prop_assert_eq!(ones.len(), 1 << (bits - one.prefix_length()));
        prop_assert_eq!(one.contains(address), ones.contains(&address));
        prop_assert_eq!(one.overlaps(&two), !ones.is_disjoint(&twos));
        prop_assert_eq!(ones.first(), Some(&one.base()));
        prop_assert_eq!(ones.last(), Some(&one.top()));
        let inner: naive::Naive =
            ones.iter().copied().filter(|address| *address != one.base() && *address != one.top()).collect();
        prop_assert_eq!(one.usable().map_or_else(naive::Naive::new, |usable| walk(&usable)), inner);
        prop_assert_eq!(one.interval().network(), Some(one));
        prop_assert_eq!(one.to_string().parse::<Network>(), Ok(one));
        for address in ones {
            prop_assert_eq!(Network::around(address, one.prefix_length()), Some(one));
        }
    }

    #[test]
    fn an_interval_is_a_network_only_if_it_has_all_of_it(interval in naive::interval()) {
        let bits = interval.family().bits();
        let networks = (0..=bits).filter_map(|length| Network::around(interval.first(), length));
        let exact = networks.into_iter().find(|network| network.interval() == interval);
        prop_assert_eq!(interval.network(), exact);
    }
}
