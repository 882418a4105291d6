//! Settings against the model, and what is said of wrong ones.

use proptest::prelude::*;

use super::*;
use crate::naive::{self, Naive, walk, walk_set};
use crate::text;

fn one(range: &str, start: &str, end: &str, exclude: &[&str], gateway: &str) -> PoolSettings {
    let exclude = exclude.iter().map(ToString::to_string).collect();
    let [range, range_start, range_end, gateway] =
        [range, start, end, gateway].map(|text| Some(text.to_owned()));
    PoolSettings { range, range_start, range_end, exclude, gateway, ..Default::default() }
}

fn more(range: &str, exclude: &[&str]) -> RangeSettings {
    let exclude = exclude.iter().map(ToString::to_string).collect();
    RangeSettings { range: range.to_owned(), exclude, ..Default::default() }
}

#[test]
fn the_defaults_are_those_of_whereabouts() {
    for (settings, allocatable, warnings) in [
        (one("10.1.0.0/24", "", "", &[], ""), "10.1.0.1-10.1.0.254", vec![]),
        (one("10.1.0.0/29", "", "", &[], "10.1.0.1"), "10.1.0.2-10.1.0.6", vec![]),
        (one("10.1.0.0/24", "10.1.0.10", "10.1.0.12", &[], ""), "10.1.0.10-10.1.0.12", vec![]),
        (one("10.1.0.10-10.1.0.10/24", "", "", &[], ""), "10.1.0.10", vec![]),
        (one("10.1.0.10-10.1.0.12/24", "", "", &["10.1.0.11"], ""), "10.1.0.10, 10.1.0.12", vec![]),
        (one("fd00::/64", "fd00::10", "fd00::1f", &["fd00::18/125"], ""), "fd00::10/125", vec![]),
        (
            one("10.1.0.7/29", "10.1.0.0", "10.1.0.9", &["10.1.0.3/31", "10.9.0.1"], ""),
            "10.1.0.1, 10.1.0.4-10.1.0.6",
            vec![
                r#"range: "10.1.0.7/29" has host bits set: did you mean 10.1.0.0/29?"#,
                r#"exclude[0]: "10.1.0.3/31" has host bits set: did you mean 10.1.0.2/31?"#,
                "exclude[1]: 10.9.0.1 is outside of 10.1.0.0/29: nothing is excluded by it",
                "range_start: 10.1.0.0 is ignored: it is not one of the usable addresses 10.1.0.1-10.1.0.6",
                "range_end: 10.1.0.9 is ignored: it is not one of the usable addresses 10.1.0.1-10.1.0.6",
            ],
        ),
        (
            one("10.1.0.5-10.1.0.3/29", "10.1.0.1", "", &[], "10.1.0.7"),
            "10.1.0.5-10.1.0.6",
            vec![
                r#"range: "10.1.0.5-10.1.0.3/29" ends before it begins"#,
                "range_start: is ignored: range itself says where it starts and ends",
                "range: 10.1.0.3 is ignored: it is not one of the usable addresses 10.1.0.5-10.1.0.6",
                "gateway: 10.1.0.7 is the lowest or the highest address of 10.1.0.0/29, which no host can have",
            ],
        ),
        (
            one("10.1.0.0/29", "10.1.0.4", "10.1.0.2", &[], "fd00::1"),
            "10.1.0.4-10.1.0.6",
            vec![
                "range_end: 10.1.0.2 is ignored: it is not one of the usable addresses 10.1.0.4-10.1.0.6",
                "gateway: fd00::1 is in no network of the pool",
            ],
        ),
        (
            one("10.1.0.0/24", "", "", &["10.1.0.8/29", "10.1.0.1", "10.1.0.9", "10.1.0.15-10.1.0.20"], ""),
            "10.1.0.2-10.1.0.7, 10.1.0.21-10.1.0.254",
            vec![
                "exclude[2]: 10.1.0.9 is excluded by exclude[0] already",
                "exclude[3]: 10.1.0.15 is excluded by exclude[0] already",
            ],
        ),
    ] {
        let pool = Pool::read(&settings).unwrap();
        assert_eq!(pool.ranges()[0].allocatable().to_string(), allocatable);
        assert_eq!(pool.warnings().iter().map(Problem::to_string).collect::<Vec<_>>(), warnings);
        let strict = Pool::read_strictly(&settings);
        assert_eq!(strict.is_ok(), warnings.is_empty(), "{strict:?}");
    }
}

#[test]
fn all_problems_are_told_at_once_each_with_its_field() {
    let mut settings = one("10.1.0.0", "x", "", &["10.1.0.0/33", "10.1.0.1"], "gate");
    settings.network_name = Some("-net".to_owned());
    settings.ip_ranges = vec![
        more("fd00::/127", &["y"]),
        RangeSettings { gateway: Some("10.1.0.1".to_owned()), ..more("fd00::/64", &[]) },
        more("10.2.0.0/30", &["10.2.0.1-10.2.0.9"]),
    ];
    let problems = Pool::read(&settings).unwrap_err();
    let said: Vec<String> = problems.0.iter().map(Problem::to_string).collect();
    assert_eq!(
        said,
        [
            r#"network_name: "-net" is not a network name: letters, digits, '_', '.' and '-', beginning with a letter or digit"#,
            r#"gateway: "gate" is not an IP address"#,
            r#"range: "10.1.0.0" lacks the length of its prefix: a network is written as address/length"#,
            r#"range_start: "x" is not an IP address"#,
            r#"exclude[0]: "10.1.0.0/33" has no valid prefix length: for IPv4 it is a number from 0 to 32"#,
            r#"ipRanges[0].exclude[0]: "y" is not an IP address"#,
            "ipRanges[0].range: fd00::/127 is too small: its lowest and its highest address are never given, and it has no other",
            "ipRanges[1].gateway: 10.1.0.1 is not of the family of fd00::/64",
            "ipRanges[2].range: nothing is left of 10.2.0.1-10.2.0.2: all of it is excluded or the gateway",
        ]
    );
    assert_eq!(problems.to_string(), said.join("; "));
}

#[test]
fn a_pool_needs_a_range() {
    let settings = PoolSettings { exclude: vec!["10.1.0.1".to_owned()], ..one("", "10.1.0.1", "", &[], "") };
    assert_eq!(
        Pool::read(&settings).unwrap_err().to_string(),
        "range: no range is given: set range or ipRanges; \
         range_start: is ignored: it belongs to range, which is not set; \
         exclude[0]: is ignored: it belongs to range, which is not set"
    );
}

#[test]
fn an_address_is_given_by_one_range_only() {
    let mut settings = one("10.1.0.0/24", "", "10.1.0.20", &[], "");
    settings.ip_ranges = vec![more("10.1.0.16-10.1.0.30/24", &[])];
    assert_eq!(
        Pool::read(&settings).unwrap_err().to_string(),
        "ipRanges[0].range: 10.1.0.16-10.1.0.20 would be given by range as well"
    );
    settings.range_end = Some("10.1.0.15".to_owned());
    assert_eq!(Pool::read(&settings).unwrap().allocatable().to_string(), "10.1.0.1-10.1.0.30");
}

#[test]
fn a_gateway_belongs_to_the_ranges_of_its_family() {
    let mut settings = one("10.1.0.0/24", "", "", &[], "10.1.0.1");
    settings.ip_ranges = vec![more("fd00::/64", &[])];
    let pool = Pool::read_strictly(&settings).unwrap();
    let gateways: Vec<_> = pool.ranges().iter().map(PoolRange::gateway).collect();
    assert_eq!(gateways, [Some("10.1.0.1".parse().unwrap()), None]);
    assert_eq!(pool.capacity(), 253);
    settings.ip_ranges[0].gateway = Some("fd00::1".to_owned());
    let pool = Pool::read_strictly(&settings).unwrap();
    assert_eq!(pool.ranges()[1].gateway(), Some("fd00::1".parse().unwrap()));
    assert_eq!(pool.ranges()[1].capacity(), (1 << 64) - 3);
}

/// What whereabouts would walk through.
fn walked(
    network: Network,
    start: Option<IpAddr>,
    end: Option<IpAddr>,
    excluded: &Naive,
    gateway: Option<IpAddr>,
) -> Naive {
    let mut usable = walk(&network.interval());
    usable.pop_first();
    usable.pop_last();
    if let Some(start) = start.filter(|start| usable.contains(start)) {
        usable.retain(|address| *address >= start);
    }
    if let Some(end) = end.filter(|end| usable.contains(end)) {
        usable.retain(|address| *address <= end);
    }
    usable.retain(|address| !excluded.contains(address) && gateway != Some(*address));
    usable
}

proptest! {
    #[test]
    fn a_range_gives_what_whereabouts_gives_but_the_gateway(
        (window, start, end) in naive::window().prop_flat_map(|window| {
            let end = || prop::option::of(prop_oneof![3 => naive::address_in(window), 1 => naive::address()]);
            (Just(window), end(), end())
        }),
        in_range: bool,
        gateway in prop::option::of(naive::address()),
        exclusions in naive::intervals(),
        addresses in prop::collection::vec(naive::address(), 8),
    ) {
        let text = |address: Option<IpAddr>| address.map(|address| address.to_string());
        // Both ways to say where it starts and ends mean the same, where both can say it.
        let settings = match (start, end) {
            (Some(start), Some(end)) if in_range && window.contains(start) && window.contains(end) => PoolSettings {
                range: Some(format!("{start}-{end}/{}", window.prefix_length())),
                ..Default::default()
            },
            _ => PoolSettings {
                range: Some(window.to_string()),
                range_start: text(start),
                range_end: text(end),
                ..Default::default()
            },
        };
        let settings = PoolSettings {
            exclude: exclusions.iter().map(ToString::to_string).collect(),
            gateway: text(gateway),
            ..settings
        };
        let excluded: Naive = exclusions.iter().flat_map(walk).collect();
        let model = walked(window, start, end, &excluded, gateway);
        let read = Pool::read(&settings);
        prop_assert_eq!(read.is_ok(), !model.is_empty());
        let Ok(pool) = read else { return Ok(()) };
        let range = &pool.ranges()[0];
        prop_assert_eq!(walk_set(range.allocatable()), model.clone());
        prop_assert_eq!(pool.capacity(), model.len() as u128);
        for address in addresses {
            let standing = range.standing(address);
            prop_assert_eq!(standing == Standing::Allocatable, model.contains(&address));
            prop_assert_eq!(standing == Standing::Foreign, !window.contains(address));
            if standing == Standing::OutOfBounds {
                prop_assert!(!range.bounds().contains(address) && !excluded.contains(&address));
            }
        }
    }

    #[test]
    fn reading_never_panics(
        texts in prop::collection::vec("[0-9a-f:./-]{0,20}|10\\.0\\.0\\.[0-9]{1,2}(/[0-9]{2})?", 6),
    ) {
        let settings = PoolSettings {
            ip_ranges: vec![more(&texts[3], &[&texts[4]])],
            ..one(&texts[0], &texts[1], &texts[2], &[&texts[4], &texts[5]], &texts[3])
        };
        if let Ok(pool) = Pool::read(&settings) {
            prop_assert!(pool.capacity() > 0);
            prop_assert!(text::range(&texts[3]).is_ok());
        }
    }
}
