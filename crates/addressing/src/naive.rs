//! The model that the tests compare with: sets of single addresses in small windows, walked one by one.
//!
//! Windows lie in the middle and at both ends of each family, where arithmetic would overflow.

use std::collections::BTreeSet;
use std::net::IpAddr;

use proptest::prelude::*;

use crate::{AddressSet, Interval, Network};

pub type Naive = BTreeSet<IpAddr>;

pub const WINDOWS: [&str; 6] = [
    "10.1.2.0/27",
    "0.0.0.0/28",
    "255.255.255.240/28",
    "fd00::40/123",
    "::/124",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0/124",
];

/// Every address of a small interval.
pub fn walk(interval: &Interval) -> Naive {
    (0..interval.count()).map(|position| interval.nth(position).unwrap()).collect()
}

pub fn walk_set(set: &AddressSet) -> Naive {
    set.intervals().iter().flat_map(walk).collect()
}

pub fn window() -> impl Strategy<Value = Network> {
    prop::sample::select(&WINDOWS[..]).prop_map(|text| text.parse().unwrap())
}

pub fn address_in(window: Network) -> impl Strategy<Value = IpAddr> {
    let interval = window.interval();
    (0..interval.count()).prop_map(move |position| interval.nth(position).unwrap())
}

pub fn address() -> impl Strategy<Value = IpAddr> {
    window().prop_flat_map(address_in)
}

pub fn interval_in(window: Network) -> impl Strategy<Value = Interval> {
    (address_in(window), address_in(window))
        .prop_map(|(one, two)| Interval::new(one.min(two), one.max(two)).unwrap())
}

pub fn interval() -> impl Strategy<Value = Interval> {
    window().prop_flat_map(interval_in)
}

/// A network inside of a window.
pub fn network() -> impl Strategy<Value = Network> {
    (window().prop_flat_map(|window| (Just(window), address_in(window))), 0..6_u8).prop_map(
        |((window, address), longer)| {
            let length = (window.prefix_length() + longer).min(window.family().bits());
            Network::around(address, length).unwrap()
        },
    )
}

/// Intervals of all windows, of both families, as they come.
pub fn intervals() -> impl Strategy<Value = Vec<Interval>> {
    prop::collection::vec(interval(), 0..8)
}

pub fn set() -> impl Strategy<Value = AddressSet> {
    intervals().prop_map(|intervals| intervals.into_iter().collect())
}
