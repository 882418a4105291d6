//! Bytes take the migration network or none.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tunnel::{Channel, DialError, Dialler, Error, Listener, PORT, Registrations, Target, Timeouts};

use crate::fixture::{Fixture, bytes, eventually, ping, read_to_end, route, take};

#[test]
fn a_transfer_leaves_no_trace_on_the_other_network() {
    const SOME: usize = 4 << 20;
    let fixture = Fixture::new();
    let listening = fixture.listen(fixture.credentials("target"));
    let (_registration, accepted) = fixture.expect(&listening, &route());
    let dialler = fixture.dialler(fixture.credentials("source"));
    let _forward = fixture.forward(&dialler, &listening, &route(), None);
    silence(&fixture);
    let before = [&fixture.source, &fixture.target].map(|node| node.sent_by("eth0"));
    let migration = fixture.source.sent_by("migration0");
    let (mut source, target) = (fixture.connect(), take(&accepted));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            source.write_all(&bytes(3, SOME)).unwrap();
        });
        assert!(read_to_end(&target) == bytes(3, SOME));
    });
    assert_eq!(before, [&fixture.source, &fixture.target].map(|node| node.sent_by("eth0")));
    assert!(fixture.source.sent_by("migration0") - migration > SOME as u64);
}

#[test]
fn a_route_that_leads_elsewhere_is_not_taken_not_even_when_there_is_no_other() {
    let fixture = Fixture::new();
    let listening = fixture.listen(fixture.credentials("target"));
    let (_registration, accepted) = fixture.expect(&listening, &route());
    silence(&fixture);
    // The management network is a road to the target's migration address: one that works, and must not be taken.
    fixture.source.with_handle(async |handle| {
        handle.flush_addresses("migration0").await.unwrap();
        let alone = net::Address::new("198.51.100.1/32".parse().unwrap());
        handle.add_address("migration0", alone).await.unwrap();
        let to = net::Route::to("198.51.100.2/32".parse().unwrap());
        handle.add_route(&to.gateway("192.0.2.2".parse().unwrap())).await.unwrap();
    });
    // The listener takes nothing from there either.
    let elsewhere = || std::net::TcpStream::connect_timeout(&listening.address, Duration::from_secs(5));
    assert!(fixture.source.namespace.run(elsewhere).unwrap().is_err(), "came in by the management network");

    let before = fixture.source.sent_by("eth0");
    let timeouts = Timeouts { dial: Duration::from_secs(1), ..Timeouts::default() };
    let credentials = fixture.credentials("source");
    let dialler = Dialler::new_with(fixture.source.address, credentials, timeouts, tunnel::Mover::Splice);
    let forward = fixture.forward(&dialler, &listening, &route(), None);
    ping(&fixture.connect(), &take(&accepted), *b"this way");
    fixture.target.with_handle(async |handle| handle.set_down("migration0").await.unwrap());
    assert_eq!(fixture.connect().read(&mut [0]).unwrap_or_default(), 0);
    let failure = eventually("the failure", || forward.last_failure());
    assert!(matches!(&*failure, DialError::Connect { .. }), "{failure}");
    assert_eq!(fixture.source.sent_by("eth0"), before);
}

/// Ends what IPv6 says about itself on a new link: from here on every byte is ours.
fn silence(fixture: &Fixture) {
    for node in [&fixture.source, &fixture.target] {
        for link in ["eth0", "migration0"] {
            node.namespace.set_sysctl(&net::Sysctl::disable_ipv6(link).unwrap(), "1").unwrap();
        }
    }
}

#[test]
fn an_address_that_the_node_does_not_have_is_no_address_to_dial_from() {
    let fixture = Fixture::new();
    let listening = fixture.listen(fixture.credentials("target"));
    let dialler = Dialler::new([203, 0, 113, 1].into(), fixture.credentials("source"));
    let forward = fixture.forward(&dialler, &listening, &route(), None);
    assert_eq!(fixture.connect().read(&mut [0]).unwrap_or_default(), 0);
    let failure = eventually("the failure", || forward.last_failure());
    assert!(matches!(&*failure, DialError::Source(Error::NoInterface { .. })), "{failure}");
}

#[test]
fn a_listener_is_bound_to_one_address() {
    let fixture = Fixture::new();
    let credentials = fixture.credentials("target");
    let bind = |address: &str| {
        let (address, credentials) = (SocketAddr::new(address.parse().unwrap(), PORT), credentials.clone());
        fixture
            .target
            .run(async move { Listener::bind(address, credentials, Arc::new(Registrations::default())) })
    };
    assert!(matches!(bind("0.0.0.0"), Err(Error::Unspecified { .. })));
    assert!(matches!(bind("203.0.113.7"), Err(Error::NoInterface { .. })));
    let listener = bind("198.51.100.2").unwrap();
    let management: SocketAddr = format!("192.0.2.2:{PORT}").parse().unwrap();
    let try_it = || std::net::TcpStream::connect_timeout(&management, Duration::from_secs(5));
    assert!(fixture.source.namespace.run(try_it).unwrap().is_err());
    fixture.target.run(async move { drop(listener) });
}

#[test]
fn a_target_that_does_not_answer_is_given_up_in_time() {
    let fixture = Fixture::new();
    let dial = Duration::from_millis(300);
    let dialler = Dialler::new_with(
        fixture.source.address,
        fixture.credentials("source"),
        Timeouts { dial, ..Timeouts::default() },
        tunnel::Mover::Splice,
    );
    let nobody: SocketAddr = format!("198.51.100.77:{PORT}").parse().unwrap();
    let target = Target { address: nobody, member: fixture.target.member(), token: None };
    let forward = fixture.forward_to(&dialler, target, &route());
    let begun = Instant::now();
    assert_eq!(fixture.connect().read(&mut [0]).unwrap_or_default(), 0);
    assert!(begun.elapsed() > dial / 2 && begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    let failure = eventually("the failure", || forward.last_failure());
    let timed_out = |error: &std::io::Error| error.kind() == std::io::ErrorKind::TimedOut;
    assert!(matches!(&*failure, DialError::Connect { source, .. } if timed_out(source)), "{failure}");
    assert_eq!(forward.counters().traffic().opened, 0);
}

#[test]
fn addresses_may_be_ipv6() {
    let fixture = Fixture::new();
    for (node, address) in [(&fixture.source, "2001:db8::1/64"), (&fixture.target, "2001:db8::2/64")] {
        let address = net::Address::new(address.parse().unwrap()).detection(net::DuplicateDetection::Skip);
        node.with_handle(async move |handle| handle.add_address("migration0", address).await.unwrap());
    }
    let registrations = Registrations::default();
    let path = fixture.path("destination");
    let accepted = crate::fixture::destination(&path);
    let source = tunnel::Source::Certificate(fixture.source.member());
    let channels = [(Channel::MEMORY, path)];
    let _registration = registrations.register(route().migration, source, channels).unwrap();
    let address: SocketAddr = format!("[2001:db8::2]:{PORT}").parse().unwrap();
    let credentials = fixture.credentials("target");
    let listener = fixture
        .target
        .run(async move { Listener::bind(address, credentials, Arc::new(registrations)).unwrap() });
    fixture.target.spawn(listener.run(std::future::pending()));
    let dialler = Dialler::new("2001:db8::1".parse().unwrap(), fixture.credentials("source"));
    let target = Target { address, member: fixture.target.member(), token: None };
    let _forward = fixture.forward_to(&dialler, target, &route());
    ping(&fixture.connect(), &take(&accepted), *b"long way");
}
