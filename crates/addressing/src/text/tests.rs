//! What is accepted, what is refused, and in which words.

use proptest::prelude::*;

use super::*;

fn said<T: std::fmt::Debug>(result: Result<T, TextError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn addresses_are_refused_with_the_text_and_the_rule() {
    for (text, message) in [
        ("", r#""" is not an IP address"#),
        ("10.1.2", r#""10.1.2" is not an IP address"#),
        (" 10.1.2.3", r#"" 10.1.2.3" is not an IP address"#),
        ("10.1.2.256", r#""10.1.2.256" is not an IP address"#),
        ("10.1.+2.3", r#""10.1.+2.3" is not an IP address"#),
        ("fe80::1%eth0", r#""fe80::1%eth0" is not an IP address"#),
        ("10.01.2.3", r#""10.01.2.3" has a leading zero, which some read as octal: did you mean 10.1.2.3?"#),
        (
            "::ffff:10.1.2.3",
            r#""::ffff:10.1.2.3" is an IPv4 address written as IPv6: did you mean 10.1.2.3?"#,
        ),
    ] {
        assert_eq!(said(address(text)), message);
    }
}

#[test]
fn networks_are_refused_with_the_text_and_the_rule() {
    for (text, message) in [
        ("10.1.0.0", r#""10.1.0.0" lacks the length of its prefix: a network is written as address/length"#),
        ("net", r#""net" is not an IP address"#),
        ("10.1.0.0/", r#""10.1.0.0/" has no valid prefix length: for IPv4 it is a number from 0 to 32"#),
        ("10.1.0.0/33", r#""10.1.0.0/33" has no valid prefix length: for IPv4 it is a number from 0 to 32"#),
        ("10.1.0.0/+8", r#""10.1.0.0/+8" has no valid prefix length: for IPv4 it is a number from 0 to 32"#),
        ("fd00::/129", r#""fd00::/129" has no valid prefix length: for IPv6 it is a number from 0 to 128"#),
        ("fd00::/999", r#""fd00::/999" has no valid prefix length: for IPv6 it is a number from 0 to 128"#),
        ("10.1.0.7/24", r#""10.1.0.7/24" has host bits set: did you mean 10.1.0.0/24?"#),
        ("fd00::7/64", r#""fd00::7/64" has host bits set: did you mean fd00::/64?"#),
    ] {
        assert_eq!(said(text.parse::<Network>()), message);
    }
    let tolerated = network("10.1.0.7/24").unwrap();
    assert_eq!(tolerated.value.to_string(), "10.1.0.0/24");
    assert_eq!("0.0.0.0/0".parse::<Network>().unwrap().interval(), Interval::whole(Family::V4));
}

#[test]
fn exclusions_are_an_address_a_network_or_a_range() {
    for (text, meaning) in [
        ("10.1.0.7", "10.1.0.7"),
        ("10.1.0.7/32", "10.1.0.7"),
        ("10.1.0.0/28", "10.1.0.0/28"),
        ("10.1.0.3-10.1.0.9", "10.1.0.3-10.1.0.9"),
        ("10.1.0.0-10.1.0.255", "10.1.0.0/24"),
        ("fd00::1", "fd00::1"),
        ("fd00::1-fd00::1", "fd00::1"),
    ] {
        assert_eq!(exclusion(text).unwrap().strictly().unwrap().to_string(), meaning);
    }
    for (text, message) in [
        ("10.1.0.9-10.1.0.3", r#""10.1.0.9-10.1.0.3" ends before it begins"#),
        ("10.1.0.9-fd00::1", r#""10.1.0.9-fd00::1" begins in one family and ends in the other"#),
        ("10.1.0.1-", r#""" in "10.1.0.1-" is not an IP address: a range is written as first-last"#),
        (
            "10.1.0.1-10.1.0.3/24",
            r#""10.1.0.3/24" in "10.1.0.1-10.1.0.3/24" is not an IP address: a range is written as first-last"#,
        ),
        ("10.1.0.1-3", r#""3" in "10.1.0.1-3" is not an IP address: a range is written as first-last"#),
    ] {
        assert_eq!(said(exclusion(text)), message);
    }
    let tolerated = exclusion("10.1.0.7/30").unwrap();
    assert_eq!(tolerated.value.to_string(), "10.1.0.4/30");
    assert_eq!(said(tolerated.strictly()), r#""10.1.0.7/30" has host bits set: did you mean 10.1.0.4/30?"#);
}

#[test]
fn ranges_are_a_network_or_its_part() {
    let part = range("10.1.0.10-10.1.0.20/24").unwrap().strictly().unwrap();
    assert_eq!(part.network.to_string(), "10.1.0.0/24");
    assert_eq!(part.ends, Some(("10.1.0.10".parse().unwrap(), "10.1.0.20".parse().unwrap())));
    for (text, message) in [
        (
            "10.2.0.10-10.1.0.20/24",
            r#""10.2.0.10-10.1.0.20/24" begins outside of 10.1.0.0/24, the network of its end"#,
        ),
        ("fd00::1-10.1.0.20/24", r#""fd00::1-10.1.0.20/24" begins in one family and ends in the other"#),
        (
            "10.1.0.10-10.1.0.20",
            r#""10.1.0.20" lacks the length of its prefix: a network is written as address/length"#,
        ),
    ] {
        assert_eq!(said(range(text)), message);
    }
    let backwards = range("10.1.0.20-10.1.0.10/24").unwrap();
    assert_eq!(said(backwards.strictly()), r#""10.1.0.20-10.1.0.10/24" ends before it begins"#);
}

proptest! {
    #[test]
    fn reading_never_panics(text in "[0-9a-f:./%+ -]{0,45}") {
        let _ = (address(&text), network(&text), exclusion(&text), range(&text));
    }

    #[test]
    fn an_address_reads_as_the_standard_library_reads_it(address: IpAddr) {
        let text = address.to_string();
        match super::address(&text) {
            Ok(read) => prop_assert_eq!(read, address),
            Err(TextError::Mapped { meant, .. }) => prop_assert_eq!(IpAddr::from(meant), address.to_canonical()),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}
