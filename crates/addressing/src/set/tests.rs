//! Sets against the model.

use proptest::prelude::*;

use super::*;
use crate::Family;
use crate::naive::{self, Naive, walk, walk_set};

/// Sorted, disjoint, not touching.
fn is_normal(set: &AddressSet) -> bool {
    set.intervals().windows(2).all(|pair| pair[0] < pair[1] && !pair[0].touches(&pair[1]))
}

#[test]
fn both_families_whole_do_not_overflow() {
    let all: AddressSet = [Interval::whole(Family::V6), Interval::whole(Family::V4)].into_iter().collect();
    assert_eq!(all.count(), u128::MAX);
    assert_eq!(all.to_string(), "0.0.0.0/0, ::/0");
    assert_eq!(all.nth(1 << 32), Some("::".parse().unwrap()));
    let last = Interval::whole(Family::V6).last();
    assert_eq!(all.next_round(last), Some("0.0.0.0".parse().unwrap()));
    assert_eq!(all.difference(&all), AddressSet::default());
    assert_eq!(AddressSet::default().to_string(), "none");
    assert_eq!(AddressSet::default().next_round(last), None);
}

proptest! {
    #[test]
    fn normalising_keeps_every_address(intervals in naive::intervals()) {
        let set: AddressSet = intervals.iter().copied().collect();
        let addresses: Naive = intervals.iter().flat_map(walk).collect();
        prop_assert!(is_normal(&set), "{set}");
        prop_assert_eq!(walk_set(&set), addresses.clone());
        prop_assert_eq!(addresses.into_iter().collect::<AddressSet>(), set);
    }

    #[test]
    fn sets_are_combined_as_their_addresses_are(one in naive::set(), two in naive::set(), interval in naive::interval()) {
        let (ones, twos) = (walk_set(&one), walk_set(&two));
        let results = [
            (one.union(&two), &ones | &twos),
            (one.intersection(&two), &ones & &twos),
            (one.difference(&two), &ones - &twos),
        ];
        for (set, addresses) in results {
            prop_assert!(is_normal(&set), "{set}");
            prop_assert_eq!(walk_set(&set), addresses);
        }
        prop_assert_eq!(one.overlaps(&two), !ones.is_disjoint(&twos));
        prop_assert_eq!(one.covers(&interval), walk(&interval).is_subset(&ones));
        prop_assert_eq!(one.count(), ones.len() as u128);
    }

    #[test]
    fn addresses_are_found(set in naive::set(), address in naive::address(), position in 0..200_u128) {
        let addresses = walk_set(&set);
        let after = addresses.iter().copied().find(|other| *other > address);
        prop_assert_eq!(set.contains(address), addresses.contains(&address));
        prop_assert_eq!(set.nth(position), addresses.iter().copied().nth(usize::try_from(position).unwrap()));
        prop_assert_eq!(set.at_or_after(address), addresses.range(address..).next().copied());
        prop_assert_eq!(set.next_round(address), after.or_else(|| addresses.first().copied()));
        let with = set.interval_with(address);
        prop_assert_eq!(with, set.intervals().iter().copied().find(|interval| interval.contains(address)));
    }

    #[test]
    fn a_round_meets_every_address_once_beginning_at_its_start(set in naive::set(), start in naive::address()) {
        let round: Vec<IpAddr> = set.round_from(start).flat_map(|interval| walk(&interval)).collect();
        let addresses = walk_set(&set);
        let expected: Vec<IpAddr> = addresses.range(start..).chain(addresses.range(..start)).copied().collect();
        prop_assert_eq!(round, expected);
    }
}
