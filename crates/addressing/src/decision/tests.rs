//! Decisions against a model that walks every address, and the words of refusals.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::naive::{self, walk_set};
use crate::{PoolSettings, RangeSettings};

fn at(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(second)
}

const PERIOD: Duration = Duration::from_mins(1);

fn now() -> SystemTime {
    at(1000)
}

fn released<Owner>(second: u64) -> Holding<Owner> {
    Holding::Released(Rest { since: at(second), period: PERIOD })
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn pool(range: &str, more: &[&str]) -> Pool {
    let more = more.iter().map(|range| RangeSettings { range: (*range).to_owned(), ..Default::default() });
    let settings = PoolSettings {
        range: Some(range.to_owned()),
        exclude: vec!["10.1.0.4/31".to_owned()],
        gateway: Some("10.1.0.1".to_owned()),
        ip_ranges: more.collect(),
        ..Default::default()
    };
    Pool::read(&settings).unwrap()
}

fn ask<'a>(owner: &'a &'static str, wanted: &'a [IpAddr]) -> Request<'a, &'static str> {
    Request { owner, wanted, start: Start::Lowest }
}

fn told(decision: &Decision<&'static str>) -> String {
    match decision {
        Ok(choices) => {
            let told: Vec<String> =
                choices.iter().map(|choice| format!("{choice} {:?}", choice.taking)).collect();
            told.join(" ")
        }
        Err(refusal) => refusal.to_string(),
    }
}

#[test]
fn decisions_say_what_and_why() {
    // .2 .3 .6 and the whole of fd00::1..6
    let pool = pool("10.1.0.0/29", &["fd00::/125"]);
    let ledger: Ledger<&str> = [
        (ip("10.1.0.2"), Holding::Owned("vm-a/nic0")),
        (ip("10.1.0.3"), released(990)),
        (ip("fd00::2"), Holding::Owned("vm-b/nic0")),
        (ip("fd00::1"), released(900)),
        (ip("10.1.0.4"), Holding::Owned("vm-c/nic0")),
    ]
    .into_iter()
    .collect();
    for (owner, wanted, answer) in [
        ("new", vec![], "10.1.0.6/29 New fd00::1/125 Rested"),
        ("new", vec!["fd00::4"], "10.1.0.6/29 New fd00::4/125 New"),
        ("vm-a/nic0", vec![], "10.1.0.2/29 Kept fd00::1/125 Rested"),
        ("vm-a/nic0", vec!["10.1.0.2"], "10.1.0.2/29 Kept fd00::1/125 Rested"),
        ("vm-c/nic0", vec!["10.1.0.4"], "10.1.0.4/29 Kept fd00::1/125 Rested"),
        (
            "vm-a/nic0",
            vec!["10.1.0.6"],
            "10.1.0.2 is held already, so 10.1.0.6 cannot be had before it is released",
        ),
        ("new", vec!["10.1.0.2"], "10.1.0.2 is taken by vm-a/nic0"),
        ("new", vec!["10.1.0.3"], "10.1.0.3 was released a short while ago and can be given in 50 s"),
        ("new", vec!["10.1.0.1"], "10.1.0.1 is never given: it is the gateway"),
        (
            "new",
            vec!["10.1.0.7"],
            "10.1.0.7 is never given: the lowest and the highest address of 10.1.0.0/29 are never given",
        ),
        ("new", vec!["10.1.0.5"], "10.1.0.5 is never given: 10.1.0.4/31 is excluded"),
        (
            "new",
            vec!["10.2.0.1"],
            "10.2.0.1 is outside of 10.1.0.1-10.1.0.6, fd00::1-fd00::6, which the pool gives",
        ),
        (
            "new",
            vec!["fd00::4", "fd00::5"],
            "fd00::4 and fd00::5 are both of ipRanges[0].range, which gives one address",
        ),
    ] {
        let wanted: Vec<IpAddr> = wanted.into_iter().map(ip).collect();
        assert_eq!(told(&decide(&pool, &ledger, &ask(&owner, &wanted), now())), answer, "{owner} {wanted:?}");
    }
}

#[test]
fn a_full_range_refuses_all_of_them_and_says_when_to_come_again() {
    let pool = pool("10.1.0.0/29", &["fd00::/125"]);
    let ledger: Ledger<&str> = [
        (ip("10.1.0.2"), Holding::Owned("a")),
        (ip("10.1.0.3"), released(990)),
        (ip("10.1.0.6"), released(980)),
    ]
    .into_iter()
    .collect();
    let refusal = decide(&pool, &ledger, &ask(&"b", &[]), now()).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "10.1.0.0/29 has no free address: of 3 that can be given, 1 are taken and 2 are resting"
    );
    let Refusal::Exhausted { usage, .. } = refusal else { panic!("{refusal:?}") };
    assert_eq!(usage.rested_at, Some(at(1040)));
    assert_eq!(
        told(&decide(&pool, &ledger, &ask(&"b", &[]), at(1040))),
        "10.1.0.6/29 Rested fd00::1/125 New"
    );
}

#[test]
fn large_ranges_are_judged_by_what_is_taken() {
    let pool = pool("10.0.0.0/8", &["fd00::/64", "::/1"]);
    let ledger: Ledger<&str> = [(ip("10.0.0.1"), Holding::Owned("a"))].into_iter().collect();
    assert_eq!(
        told(&decide(&pool, &ledger, &ask(&"b", &[]), now())),
        "10.0.0.2/8 New fd00::1/64 New ::1/1 New"
    );
    let request = Request { start: Start::Spread(u128::MAX), ..ask(&"b", &[]) };
    assert!(decide(&pool, &ledger, &request, now()).is_ok());
    let last = [ip("fd00::ffff:ffff:ffff:fffe"), ip("10.0.0.255")];
    let request = Request { start: Start::After(&last), ..ask(&"b", &[]) };
    assert_eq!(told(&decide(&pool, &ledger, &request, now())), "10.0.1.0/8 New fd00::1/64 New ::1/1 New");
}

#[test]
fn the_wanted_one_of_two_is_kept() {
    let pool = pool("10.1.0.0/24", &[]);
    let ledger: Ledger<&str> =
        ["10.1.0.20", "10.1.0.30"].map(|address| (ip(address), Holding::Owned("a"))).into_iter().collect();
    assert_eq!(told(&decide(&pool, &ledger, &ask(&"a", &[ip("10.1.0.30")]), now())), "10.1.0.30/24 Kept");
    assert_eq!(told(&decide(&pool, &ledger, &ask(&"a", &[]), now())), "10.1.0.20/24 Kept");
}

#[test]
fn only_its_owner_releases_an_address_and_as_often_as_it_likes() {
    let address = ip("10.1.0.2");
    let mut ledger: Ledger<&str> = [(address, Holding::Owned("a"))].into_iter().collect();
    let rest = Rest { since: at(5), period: PERIOD };
    assert_eq!(release(&ledger, &"b", address, rest), Release::Anothers("a"));
    assert_eq!(release(&ledger, &"a", ip("10.1.0.3"), rest), Release::NotHeld);
    let Release::Rests(holding) = release(&ledger, &"a", address, rest) else { panic!("it is a's") };
    ledger.note(address, holding);
    assert_eq!(ledger.holding(address), Some(&Holding::Released(rest)));
    let later = Rest { since: at(6), ..rest };
    assert_eq!(release(&ledger, &"a", address, later), Release::NotHeld);
    assert_eq!(ledger.owned_by(&"a").count(), 0);
}

fn holding() -> impl Strategy<Value = Holding<u8>> {
    prop_oneof![
        (0..20_u8).prop_map(Holding::Owned),
        (900..1000_u64, prop_oneof![Just(PERIOD), Just(Duration::ZERO), Just(2 * PERIOD)])
            .prop_map(|(second, period)| Holding::Released(Rest { since: at(second), period }))
    ]
}

/// Dense enough that ranges are often full.
fn ledger() -> impl Strategy<Value = Ledger<u8>> {
    prop::collection::vec((naive::address(), holding()), 0..200).prop_map(|known| known.into_iter().collect())
}

fn pools() -> impl Strategy<Value = Pool> {
    let windows = prop::sample::subsequence(&naive::WINDOWS[..], 1..=3);
    (windows, naive::intervals()).prop_filter_map("nothing is left", |(windows, exclusions)| {
        let exclude: Vec<String> = exclusions.iter().map(ToString::to_string).collect();
        let range = |range: &&str| RangeSettings {
            range: (*range).to_owned(),
            exclude: exclude.clone(),
            ..Default::default()
        };
        Pool::read(&PoolSettings { ip_ranges: windows.iter().map(range).collect(), ..Default::default() })
            .ok()
    })
}

fn is_free(ledger: &Ledger<u8>, address: IpAddr) -> bool {
    match ledger.holding(address) {
        None => true,
        Some(Holding::Owned(_)) => false,
        Some(Holding::Released(rest)) => rest.since + rest.period <= now(),
    }
}

proptest! {
    #[test]
    fn a_decision_is_what_walking_finds(
        pool in pools(),
        ledger in ledger(),
        owner in 0..25_u8,
        last in prop::collection::vec(naive::address(), 0..4),
    ) {
        let request = Request { owner: &owner, wanted: &[], start: Start::After(&last) };
        let model: Option<Vec<IpAddr>> = pool
            .ranges()
            .iter()
            .map(|range| {
                let network = naive::walk(&range.network().interval());
                let addresses = walk_set(range.allocatable());
                let owns = |address: &&IpAddr| ledger.owned_by(&owner).any(|own| own == **address);
                let own = addresses.iter().find(owns).or_else(|| network.iter().find(owns));
                let start = last.iter().find(|last| network.contains(last)).copied();
                let round = match start {
                    Some(start) => {
                        let (low, high): (Vec<_>, Vec<_>) = addresses.iter().partition(|address| **address <= start);
                        [high, low].concat()
                    }
                    None => addresses.iter().collect(),
                };
                own.copied().or_else(|| round.into_iter().copied().find(|address| is_free(&ledger, *address)))
            })
            .collect();
        let decision = decide(&pool, &ledger, &request, now());
        let found = decision.as_ref().ok().map(|choices| choices.iter().map(|choice| choice.address).collect());
        prop_assert_eq!(&found, &model);
        match decision {
            Ok(choices) => for choice in choices {
                let taking = match ledger.holding(choice.address) {
                    None => Taking::New,
                    Some(Holding::Owned(by)) => { prop_assert_eq!(*by, owner); Taking::Kept }
                    Some(Holding::Released(_)) => Taking::Rested,
                };
                prop_assert_eq!(choice.taking, taking);
            }
            Err(Refusal::Exhausted { usage, .. }) => prop_assert_eq!(usage.free(), 0),
            Err(other) => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn usage_counts_every_address_once(pool in pools(), ledger in ledger()) {
        for range in pool.ranges() {
            let usage = usage(range, &ledger, now());
            let free = walk_set(range.allocatable()).into_iter().filter(|address| is_free(&ledger, *address)).count();
            prop_assert_eq!(usage.free(), free as u128);
            prop_assert_eq!(usage.free() + usage.taken + usage.resting, range.capacity());
            prop_assert_eq!(usage.rested_at.is_some(), usage.resting > 0);
        }
    }

    #[test]
    fn a_wanted_address_is_given_if_it_is_free_and_never_otherwise(
        pool in pools(),
        ledger in ledger(),
        address in naive::address(),
    ) {
        let owner = 99;
        let request = Request { owner: &owner, wanted: &[address], start: Start::Lowest };
        let allocatable = pool.ranges().iter().any(|range| walk_set(range.allocatable()).contains(&address));
        let others_full = pool.ranges().iter().any(|range| {
            !range.allocatable().contains(address) && usage(range, &ledger, now()).free() == 0
        });
        match decide(&pool, &ledger, &request, now()) {
            Ok(choices) => {
                prop_assert!(allocatable && is_free(&ledger, address));
                prop_assert!(choices.iter().any(|choice| choice.address == address));
            }
            Err(Refusal::Taken { by, .. }) => {
                prop_assert_eq!(ledger.holding(address), Some(&Holding::Owned(by)));
            }
            Err(Refusal::Resting { until, .. }) => prop_assert!(!is_free(&ledger, address) && until > now()),
            Err(Refusal::OutOfRange { .. } | Refusal::Excluded { .. }) => prop_assert!(!allocatable),
            Err(Refusal::Exhausted { .. }) => prop_assert!(others_full),
            Err(other) => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn everyone_gets_addresses_until_the_pool_is_full_and_keeps_them(
        pool in pools(),
        numbers in prop::collection::vec(any::<u128>(), 40),
    ) {
        let mut ledger = Ledger::default();
        let mut given = BTreeSet::new();
        let mut served = 0;
        for (owner, number) in numbers.iter().enumerate() {
            let request = Request { owner: &owner, wanted: &[], start: Start::Spread(*number) };
            let Ok(choices) = decide(&pool, &ledger, &request, now()) else { break };
            served += 1;
            for choice in &choices {
                prop_assert!(given.insert(choice.address), "{} was given twice", choice.address);
                ledger.note(choice.address, Holding::Owned(owner));
            }
            let again: Vec<IpAddr> = decide(&pool, &ledger, &request, now()).unwrap().iter().map(|choice| choice.address).collect();
            prop_assert_eq!(again, choices.iter().map(|choice| choice.address).collect::<Vec<_>>());
        }
        prop_assert_eq!(served, pool.capacity().min(numbers.len() as u128));
    }
}
