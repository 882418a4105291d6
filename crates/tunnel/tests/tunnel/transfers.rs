//! Bytes come out as they went in, on every road, in both directions at once.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use tunnel::{Credentials, Dialler, Forward, Mover, Registration, Source, Timeouts, Token};

use crate::fixture::{Fixture, Listening, bytes, ping, read_to_end, route, take};

const SOME: usize = 3 * 1024 * 1024 + 17;

struct Road {
    tls: bool,
    mover: Mover,
    connections: u64,
}

/// A listener and a forward that leads to it, and what connects there.
fn open_road(fixture: &Fixture, road: &Road) -> (Listening, Registration, Receiver<UnixStream>, Forward) {
    let Road { tls, mover, .. } = *road;
    let token = Token::generate().unwrap();
    let credentials = |node| if tls { fixture.credentials(node) } else { Credentials::plain() };
    let listening = fixture.listen_with(credentials("target"), Timeouts::default(), mover);
    let source = if tls {
        Source::Certificate(fixture.source.member())
    } else {
        Source::Token { token: token.clone(), address: fixture.source.address }
    };
    let (registration, accepted) = fixture.expect_from(&listening, &route(), source);
    let dialler =
        Dialler::new_with(fixture.source.address, credentials("source"), Timeouts::default(), mover);
    let forward = fixture.forward(&dialler, &listening, &route(), Some(&token));
    (listening, registration, accepted, forward)
}

fn both_directions(road: &Road) {
    let fixture = Fixture::new();
    let (_listening, registration, accepted, forward) = open_road(&fixture, road);
    let connections = road.connections;

    std::thread::scope(|scope| {
        for number in 0..connections {
            // Dialled one after the other: the connection here is the connection there.
            let (here, there) = (fixture.connect(), take(&accepted));
            let [there_seed, back_seed] = [2 * number, 2 * number + 1];
            for (stream, seed) in [(&here, there_seed), (&there, back_seed)] {
                let mut writer = stream.try_clone().unwrap();
                scope.spawn(move || {
                    writer.write_all(&bytes(seed, SOME)).unwrap();
                    writer.shutdown(Shutdown::Write).unwrap();
                });
            }
            scope.spawn(move || assert!(read_to_end(&there) == bytes(there_seed, SOME), "there"));
            scope.spawn(move || assert!(read_to_end(&here) == bytes(back_seed, SOME), "back"));
        }
    });
    let all = connections * SOME as u64;
    for traffic in [forward.counters().traffic(), registration.counters().next().unwrap().1.traffic()] {
        assert_eq!((traffic.sent, traffic.received, traffic.opened), (all, all, connections));
    }
}

#[test]
fn one_connection_through_tls() {
    both_directions(&Road { tls: true, mover: Mover::Splice, connections: 1 });
}

#[test]
fn eight_connections_through_tls() {
    both_directions(&Road { tls: true, mover: Mover::Splice, connections: 8 });
}

#[test]
fn one_connection_spliced() {
    both_directions(&Road { tls: false, mover: Mover::Splice, connections: 1 });
}

#[test]
fn eight_connections_spliced() {
    both_directions(&Road { tls: false, mover: Mover::Splice, connections: 8 });
}

#[test]
fn eight_connections_copied() {
    both_directions(&Road { tls: false, mover: Mover::Copy, connections: 8 });
}

#[test]
fn an_end_in_one_direction_leaves_the_other_open() {
    let fixture = Fixture::new();
    let listening = fixture.listen(fixture.credentials("target"));
    let (_registration, accepted) = fixture.expect(&listening, &route());
    let dialler = fixture.dialler(fixture.credentials("source"));
    let _forward = fixture.forward(&dialler, &listening, &route(), None);

    for source_first in [true, false] {
        let (source, target) = (fixture.connect(), take(&accepted));
        let (first, mut second) = if source_first { (&source, &target) } else { (&target, &source) };
        ping(first, second, *b"together");
        first.shutdown(Shutdown::Write).unwrap();
        assert!(read_to_end(second).is_empty(), "the end arrives, and nothing else");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                second.write_all(&bytes(1, SOME)).unwrap();
                second.shutdown(Shutdown::Write).unwrap();
            });
            assert!(read_to_end(first) == bytes(1, SOME), "what comes the other way still arrives");
        });
    }
}

#[test]
fn a_slow_reader_slows_the_writer_and_loses_nothing() {
    let fixture = Fixture::new();
    let listening = fixture.listen(fixture.credentials("target"));
    let (_registration, accepted) = fixture.expect(&listening, &route());
    let dialler = fixture.dialler(fixture.credentials("source"));
    let _forward = fixture.forward(&dialler, &listening, &route(), None);
    let (mut source, mut target) = (fixture.connect(), take(&accepted));

    // More than all buffers on the way can hold.
    let piece = bytes(7, 1 << 20);
    let pieces = 96;
    let (done, finished) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..pieces {
                source.write_all(&piece).unwrap();
            }
            source.shutdown(Shutdown::Write).unwrap();
            done.send(()).unwrap();
        });
        let waited = finished.recv_timeout(Duration::from_secs(2));
        assert!(waited.is_err(), "the writer must wait for the reader");
        let mut heard = vec![0; piece.len()];
        for number in 0..pieces {
            target.read_exact(&mut heard).unwrap();
            assert!(heard == piece, "piece {number}");
        }
        assert!(read_to_end(&target).is_empty());
    });
}

#[test]
fn connections_arrive_in_the_order_in_which_they_were_made() {
    let fixture = Fixture::new();
    let listening = fixture.listen(fixture.credentials("target"));
    let (_registration, accepted) = fixture.expect(&listening, &route());
    let dialler = fixture.dialler(fixture.credentials("source"));
    let _forward = fixture.forward(&dialler, &listening, &route(), None);
    // All are made before the first is looked at.
    let here: Vec<_> = (0..32_u64)
        .map(|number| {
            let mut stream = fixture.connect();
            stream.write_all(&number.to_le_bytes()).unwrap();
            stream
        })
        .collect();
    for number in 0..here.len() as u64 {
        let mut heard = [0; 8];
        take(&accepted).read_exact(&mut heard).unwrap();
        assert_eq!(u64::from_le_bytes(heard), number);
    }
}

/// The direction in which nothing moves would take the processor from a page that a guest waits for.
fn sleeps_through_what_moves_the_other_way(tls: bool) {
    let fixture = Fixture::new();
    let road = Road { tls, mover: Mover::Splice, connections: 1 };
    let (_listening, _registration, accepted, _forward) = open_road(&fixture, &road);
    let (mut source, mut target) = (fixture.connect(), take(&accepted));

    let mut piece = bytes(5, 64 << 10);
    for _ in 0..512 {
        source.write_all(&piece).unwrap();
        target.read_exact(&mut piece).unwrap();
    }
    let mut woken = fixture.target.times_threads_slept("tunnel");
    woken.sort_unstable();
    let busy = woken.pop().unwrap();
    assert!(busy > 100, "the one that receives slept {busy} times");
    assert!(woken.iter().all(|times| *times < 10), "the others slept {woken:?} times, and it {busy}");
}

#[test]
fn a_silent_direction_sleeps_through_tls() {
    sleeps_through_what_moves_the_other_way(true);
}

#[test]
fn a_silent_direction_sleeps_through_splicing() {
    sleeps_through_what_moves_the_other_way(false);
}
