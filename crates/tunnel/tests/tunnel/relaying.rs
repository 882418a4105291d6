//! A gateway between the nodes: it learns where a connection wants to go, and nothing else.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use tunnel::relay::{Onward, RelayError, relay};
use tunnel::{Counters, Mover, Target, Timeouts};

use crate::fixture::{Fixture, bytes, eventually, read_to_end, route, take};

const SOME: usize = 3 * 1024 * 1024 + 5;

fn through_a_gateway(mover: Mover) {
    let fixture = Fixture::new();
    let listening = fixture.listen(fixture.credentials("target"));
    let (_registration, accepted) = fixture.expect(&listening, &route());
    let counters = Arc::new(Counters::default());
    // On the source's node, on its other address.
    let gateway = SocketAddr::new("198.51.100.3".parse().unwrap(), 9200);
    let onward =
        Onward { source: fixture.source.address, target: listening.address, counters: counters.clone() };
    fixture.target.with_handle(async |handle| {
        let address = net::Address::new("198.51.100.3/24".parse().unwrap());
        handle.add_address("migration0", address).await.unwrap();
        handle.set_up("lo").await.unwrap();
    });
    // The gateway lives on the target's node but comes to the listener from the source's, as another node would.
    let listener = fixture.target.namespace.run(|| TcpListener::bind(gateway)).unwrap().unwrap();
    let seen = Arc::new(Mutex::new(None));
    let outcome = {
        let (seen, namespace) = (seen.clone(), fixture.source.namespace.clone());
        std::thread::spawn(move || {
            let (accepted, _) = listener.accept().unwrap();
            let decide = |route: &tunnel::Route| {
                *seen.lock().unwrap() = Some(route.clone());
                Some(onward)
            };
            namespace.run(|| relay(accepted, &Timeouts::default(), mover, decide)).unwrap()
        })
    };
    let target = Target { address: gateway, member: fixture.target.member(), token: None };
    let _forward = fixture.forward_to(&fixture.dialler(fixture.credentials("source")), target, &route());
    std::thread::scope(|scope| {
        let (here, there) = (fixture.connect(), take(&accepted));
        for (stream, seed) in [(&here, 1), (&there, 2)] {
            let mut writer = stream.try_clone().unwrap();
            scope.spawn(move || {
                writer.write_all(&bytes(seed, SOME)).unwrap();
                writer.shutdown(Shutdown::Write).unwrap();
            });
        }
        scope.spawn(move || assert!(read_to_end(&there) == bytes(1, SOME), "there"));
        assert!(read_to_end(&here) == bytes(2, SOME), "back");
    });
    outcome.join().unwrap().unwrap();
    assert_eq!(seen.lock().unwrap().as_ref(), Some(&route()));
    let traffic = counters.traffic();
    assert!(traffic.sent > SOME as u64 && traffic.received > SOME as u64, "{traffic:?}");
}

#[test]
fn ciphertext_is_spliced() {
    through_a_gateway(Mover::Splice);
}

#[test]
fn ciphertext_is_copied() {
    through_a_gateway(Mover::Copy);
}

#[test]
fn what_leads_nowhere_is_closed() {
    let fixture = Fixture::new();
    let gateway = SocketAddr::new(fixture.target.address, 9200);
    let listener = fixture.target.namespace.run(|| TcpListener::bind(gateway)).unwrap().unwrap();
    let outcome = std::thread::spawn(move || {
        let (accepted, _) = listener.accept().unwrap();
        let refused = relay(accepted, &Timeouts::default(), Mover::Splice, |_| None);
        let (accepted, _) = listener.accept().unwrap();
        (refused, relay(accepted, &Timeouts::default(), Mover::Splice, |_| None))
    });
    let target = Target { address: gateway, member: fixture.target.member(), token: None };
    let forward = fixture.forward_to(&fixture.dialler(fixture.credentials("source")), target, &route());
    assert_eq!(fixture.connect().read(&mut [0]).unwrap_or_default(), 0);
    eventually("the failure", || forward.last_failure());
    let stranger = || std::net::TcpStream::connect(gateway);
    let mut stranger = fixture.source.namespace.run(stranger).unwrap().unwrap();
    stranger.write_all(b"\x16\x03\x01 nonsense").unwrap();
    stranger.shutdown(Shutdown::Write).unwrap();
    let (refused, nonsense) = outcome.join().unwrap();
    assert!(matches!(refused, Err(RelayError::Refused { .. })), "{refused:?}");
    assert!(matches!(nonsense, Err(RelayError::Hello(_))), "{nonsense:?}");
}
