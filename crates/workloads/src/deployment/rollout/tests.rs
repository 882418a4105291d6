//! Whatever order things happen in, a rollout keeps to its bounds and comes to its end.

use proptest::prelude::*;

use super::*;

#[test]
fn steps_of_a_rollout() {
    let set = |wanted: i32, available: i32| Set { wanted, present: wanted, available };
    let bounds = Bounds::new(4, 1, 1);
    for (new, old, expected) in [
        (set(0, 0), vec![set(4, 4)], (1, vec![3])),
        (set(1, 0), vec![set(3, 3)], (2, vec![3])),
        (set(2, 2), vec![set(3, 3)], (2, vec![1])),
        (set(4, 4), vec![set(0, 0)], (4, vec![0])),
        // Broken old pods go first.
        (set(0, 0), vec![set(2, 2), set(2, 1)], (1, vec![2, 1])),
        // Nothing of the new works: what works of the old stays.
        (set(2, 0), vec![set(3, 3)], (2, vec![3])),
        (set(6, 6), vec![], (4, vec![])),
    ] {
        assert_eq!(roll(bounds, new, &old), expected, "{new:?} {old:?}");
    }
    // Pods that an old set has yet to give up still count.
    let slow = Set { wanted: 3, present: 5, available: 5 };
    assert_eq!(roll(bounds, set(0, 0), &[slow]).0, 0);
}

#[test]
fn bounds_that_allow_nothing_allow_one() {
    assert_eq!(Bounds::new(3, 0, 0).max_unavailable, 1);
    assert_eq!(Bounds::new(3, 1, 0).max_unavailable, 0);
    assert_eq!(Bounds::new(0, 0, 0).least_available(), 0);
    assert_eq!(Bounds::new(2, 0, 5).least_available(), 0);
}

#[test]
fn recreate_waits_for_the_last_old_pod() {
    let set = |wanted: i32| Set { wanted, present: wanted, available: wanted };
    assert_eq!(recreate(3, set(0), &[set(3)], true), (0, vec![0]));
    assert_eq!(recreate(3, set(0), &[set(0)], true), (0, vec![0]));
    assert_eq!(recreate(3, set(0), &[set(0)], false), (3, vec![0]));
}

proptest! {
    #[test]
    fn shares_add_up_and_keep_their_order(total in 0_i32..50, sets in proptest::collection::vec(0_i32..20, 1..6)) {
        let parts = share(total, &sets);
        if sets.iter().sum::<i32>() > 0 {
            prop_assert_eq!(parts.iter().sum::<i32>(), total);
        }
        for (had, got) in sets.iter().zip(&parts) {
            prop_assert!(*had > 0 || *got == 0, "who had nothing gets nothing: {:?} {:?}", sets, parts);
        }
        for (one, other) in (0..sets.len()).flat_map(|one| (0..sets.len()).map(move |other| (one, other))) {
            prop_assert!(sets[one] <= sets[other] || parts[one] >= parts[other], "{:?} {:?}", sets, parts);
        }
    }
}

#[derive(Debug, Clone)]
enum Happens {
    /// The Deployment looks and sizes its sets.
    Decides,
    /// A set makes or gives up pods, as it is asked to.
    Acts(usize),
    /// A pod becomes available.
    Works(usize),
    /// A pod breaks by itself.
    Breaks(usize),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => Just(Happens::Decides),
        4 => any::<usize>().prop_map(Happens::Acts),
        4 => any::<usize>().prop_map(Happens::Works),
        1 => any::<usize>().prop_map(Happens::Breaks),
    ]
}

fn act(set: &mut Set) {
    // It gives up what does not work first.
    set.present = set.wanted;
    set.available = set.available.min(set.wanted);
}

fn happen(event: &Happens, bounds: Bounds, sets: &mut [Set]) {
    let count = sets.len();
    match event {
        Happens::Decides => {
            let (new, old) = roll(bounds, sets[0], &sets[1..]);
            sets[0].wanted = new;
            for (set, wanted) in sets[1..].iter_mut().zip(old) {
                set.wanted = wanted;
            }
        }
        Happens::Acts(nth) => act(&mut sets[nth % count]),
        Happens::Works(nth) => {
            let set = &mut sets[nth % count];
            set.available = (set.available + 1).min(set.present);
        }
        Happens::Breaks(nth) => {
            let set = &mut sets[nth % count];
            set.available = (set.available - 1).max(0);
        }
    }
}

proptest! {
    #[test]
    fn no_order_of_events_breaks_the_bounds(
        desired in 0_i32..8,
        surge in 0_i32..4,
        unavailable in 0_i32..4,
        split in 0_i32..8,
        events in proptest::collection::vec(happens(), 0..150),
    ) {
        let bounds = Bounds::new(desired, surge, unavailable);
        let full = |number: i32| Set { wanted: number, present: number, available: number };
        // A rollout was changed in the middle: two old sets, and a new one without pods.
        let first = split.min(desired);
        let mut sets = vec![full(0), full(first), full(desired - first)];
        // Pods that broke by themselves and were not made good yet.
        let mut broken = 0;
        for event in &events {
            let before: i32 = sets.iter().map(|set| set.available).sum();
            happen(event, bounds, &mut sets);
            let after: i32 = sets.iter().map(|set| set.available).sum();
            let present: i32 = sets.iter().map(|set| set.present).sum();
            prop_assert!(present <= bounds.most(), "{} pods: {:?}", present, sets);
            if matches!(event, Happens::Breaks(_)) {
                broken += before - after;
            }
            prop_assert!(after + broken >= bounds.least_available(), "{} work: {:?}", after, sets);
        }
        for _ in 0..desired * 12 + 12 {
            for event in [Happens::Decides, Happens::Acts(0), Happens::Acts(1), Happens::Acts(2), Happens::Works(0)] {
                happen(&event, bounds, &mut sets);
            }
        }
        prop_assert_eq!(sets, vec![full(desired), full(0), full(0)], "it comes to its end");
    }
}
