//! Whether another node can be reached: answered to whoever proves to be a member, and to nobody else.

use std::net::SocketAddr;
use std::time::Duration;

use identity::{Authority, Member};
use tunnel::{Credentials, DialError, Dialler, Mover, Refusal, Timeouts};

use crate::fixture::{Fixture, Listening, eventually, issue, member, route, take};

fn dialler(fixture: &Fixture, credentials: Credentials) -> Dialler {
    let timeouts = Timeouts { dial: Duration::from_secs(2), ..Timeouts::default() };
    Dialler::new_with(fixture.source.address, credentials, timeouts, Mover::Splice)
}

fn probe(
    fixture: &Fixture,
    credentials: Credentials,
    address: SocketAddr,
    who: Member,
) -> Result<(), DialError> {
    let dialler = dialler(fixture, credentials);
    fixture.source.namespace.run(|| dialler.probe(address, who)).unwrap()
}

fn refused_as(listening: &Listening, reason: Refusal) {
    eventually("the refusal", || (listening.refusals.count(reason) == 1).then_some(()));
    assert_eq!(listening.probes.count(), 0);
}

#[test]
fn a_member_is_answered_and_counted_apart_and_no_channel_hears_of_it() {
    let fixture = Fixture::new();
    let listening = fixture.listen(fixture.credentials("target"));
    let (registration, accepted) = fixture.expect(&listening, &route());
    for count in 1..=3 {
        probe(&fixture, fixture.credentials("source"), listening.address, member("target")).unwrap();
        eventually("the count", || (listening.probes.count() == count).then_some(()));
    }
    assert!(listening.refusals.counts().is_empty());
    assert!(registration.counters().all(|(_, counters)| counters.traffic().opened == 0));
    // The road that was found is a road.
    let road = fixture.dialler(fixture.credentials("source"));
    let _forward = fixture.forward(&road, &listening, &route(), None);
    let _connected = (fixture.connect(), take(&accepted));
}

#[test]
fn one_who_is_not_whom_the_caller_meant_is_no_answer() {
    let fixture = Fixture::new();
    let listening = fixture.listen(fixture.credentials("target"));
    let found = probe(&fixture, fixture.credentials("source"), listening.address, member("other"));
    assert!(matches!(found, Err(DialError::OtherMember { .. })), "{found:?}");
}

#[test]
fn a_stranger_is_not_answered() {
    let fixture = Fixture::new();
    let listening = fixture.listen(fixture.credentials("target"));
    let other = Authority::generate("other", Duration::from_mins(5)).unwrap();
    let credentials = Credentials::tls(&issue(&other, "source"), &[fixture.authority.certificate()]).unwrap();
    let found = probe(&fixture, credentials, listening.address, member("target"));
    assert!(found.is_err());
    refused_as(&listening, Refusal::UntrustedCertificate);
}

#[test]
fn nobody_at_the_address_is_an_error_that_says_so() {
    let fixture = Fixture::new();
    let nowhere = SocketAddr::new(fixture.target.address, tunnel::PORT);
    let found = probe(&fixture, fixture.credentials("source"), nowhere, member("target"));
    assert!(matches!(found, Err(DialError::Connect { .. })), "{found:?}");
}

#[test]
fn without_tls_the_road_is_shown_too() {
    let fixture = Fixture::new();
    let listening = fixture.listen(Credentials::plain());
    probe(&fixture, Credentials::plain(), listening.address, member("target")).unwrap();
    eventually("the count", || (listening.probes.count() == 1).then_some(()));
    assert!(probe(&fixture, fixture.credentials("source"), listening.address, member("target")).is_err());
}
