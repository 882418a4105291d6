//! Intervals against the model, and at the ends of a family.

use proptest::prelude::*;

use super::*;
use crate::naive::{self, walk};

fn interval(first: &str, last: &str) -> Interval {
    Interval::new(first.parse().unwrap(), last.parse().unwrap()).unwrap()
}

#[test]
fn the_whole_of_a_family_does_not_overflow() {
    assert_eq!(Interval::whole(Family::V4).count(), 1 << 32);
    let v6 = Interval::whole(Family::V6);
    assert_eq!(v6.count(), u128::MAX);
    assert_eq!(v6.nth(u128::MAX), Some("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap()));
    assert_eq!(v6.to_string(), "::/0");
    assert_eq!(v6.after(v6.last()), None);
}

#[test]
fn two_families_and_a_wrong_order_are_no_interval() {
    let parse = |text: &str| text.parse::<IpAddr>().unwrap();
    assert_eq!(Interval::new(parse("10.0.0.1"), parse("::1")), None);
    assert_eq!(Interval::new(parse("10.0.0.2"), parse("10.0.0.1")), None);
}

#[test]
fn text_is_the_shortest_that_says_it() {
    assert_eq!(interval("10.0.0.1", "10.0.0.1").to_string(), "10.0.0.1");
    assert_eq!(interval("10.0.0.0", "10.0.0.255").to_string(), "10.0.0.0/24");
    assert_eq!(interval("10.0.0.1", "10.0.0.4").to_string(), "10.0.0.1-10.0.0.4");
    assert_eq!(interval("fd00::1", "fd00::3").to_string(), "fd00::1-fd00::3");
}

proptest! {
    #[test]
    fn an_interval_is_its_addresses(one in naive::interval(), two in naive::interval(), address in naive::address()) {
        let (ones, twos) = (walk(&one), walk(&two));
        prop_assert_eq!(one.count(), ones.len() as u128);
        prop_assert_eq!(one.contains(address), ones.contains(&address));
        prop_assert_eq!(one.covers(&two), twos.is_subset(&ones));
        prop_assert_eq!(one.overlaps(&two), !ones.is_disjoint(&twos));
        let both: naive::Naive = ones.intersection(&twos).copied().collect();
        prop_assert_eq!(one.intersection(&two).map_or_else(naive::Naive::new, |both| walk(&both)), both);
        let after = ones.contains(&address).then(|| ones.iter().find(|other| **other > address)).flatten();
        prop_assert_eq!(one.after(address), after.copied());
        prop_assert_eq!(one.nth(one.count()), None);
    }

    #[test]
    fn text_reads_back(interval in naive::interval()) {
        prop_assert_eq!(crate::text::exclusion(&interval.to_string()).unwrap().strictly().unwrap(), interval);
    }
}
