//! How connections end: when the other side dies, when nothing moves, when a door or a listener closes.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use tunnel::{Dialler, Forward, Mover, Registration, Timeouts};

use crate::fixture::{DEADLINE, Fixture, Listening, eventually, ping, route, take};

/// Writes until the other side is gone: how long that took.
fn write_until_it_breaks(mut stream: &UnixStream) -> Duration {
    let begun = Instant::now();
    let piece = vec![0; 65536];
    while stream.write_all(&piece).is_ok() {
        assert!(begun.elapsed() < DEADLINE, "the source still writes");
    }
    begun.elapsed()
}

fn swallow(mut stream: UnixStream) {
    let mut piece = vec![0; 65536];
    std::thread::spawn(move || while stream.read(&mut piece).is_ok_and(|read| read > 0) {});
}

/// Both sides, as they are when nothing is unusual.
fn together(fixture: &Fixture) -> (Listening, Registration, Receiver<UnixStream>, Forward) {
    let listening = fixture.listen(fixture.credentials("target"));
    let (registration, accepted) = fixture.expect(&listening, &route());
    let dialler = fixture.dialler(fixture.credentials("source"));
    let forward = fixture.forward(&dialler, &listening, &route(), None);
    (listening, registration, accepted, forward)
}

#[test]
fn a_target_that_ends_the_connection_is_noticed_at_once() {
    let fixture = Fixture::new();
    let (_listening, registration, accepted, forward) = together(&fixture);
    let (source, target) = (fixture.connect(), take(&accepted));
    ping(&source, &target, *b"together");
    swallow(target);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_until_it_breaks(&source));
        eventually("bytes to move", || (forward.counters().traffic().sent > 1 << 20).then_some(()));
        let begun = Instant::now();
        registration.cut();
        writer.join().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    });
    eventually("the connection to be gone", || (forward.counters().traffic().open == 0).then_some(()));
    let broke = eventually("the cause", || forward.first_break());
    assert!(broke.is_far(), "{broke:?}");
}

#[test]
fn a_connection_that_its_user_ended_was_not_broken_by_the_other_node() {
    let fixture = Fixture::new();
    let (_listening, registration, accepted, forward) = together(&fixture);
    let (source, target) = (fixture.connect(), take(&accepted));
    ping(&source, &target, *b"together");
    source.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!((&target).read(&mut [0]).unwrap(), 0, "the target knows that it is the end");
    registration.cut();
    eventually("the connection to be gone", || (forward.counters().traffic().open == 0).then_some(()));
    // Until another is made, which takes a handshake, what would be noted of the first has been.
    let (source, target) = (fixture.connect(), take(&accepted));
    ping(&source, &target, *b"together");
    assert!(forward.first_break().is_none(), "{:?}", forward.first_break());
}

#[test]
fn a_target_that_vanishes_without_a_word_is_noticed_by_what_it_does_not_acknowledge() {
    let fixture = Fixture::new();
    let listening = fixture.listen(fixture.credentials("target"));
    let (_registration, accepted) = fixture.expect(&listening, &route());
    let timeouts = Timeouts { unacknowledged: Duration::from_secs(1), ..Timeouts::default() };
    let dialler =
        Dialler::new_with(fixture.source.address, fixture.credentials("source"), timeouts, Mover::Splice);
    let forward = fixture.forward(&dialler, &listening, &route(), None);
    let (source, target) = (fixture.connect(), take(&accepted));
    swallow(target);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_until_it_breaks(&source));
        eventually("bytes to move", || (forward.counters().traffic().sent > 1 << 20).then_some(()));
        let begun = Instant::now();
        fixture.target.with_handle(async |handle| handle.set_down("migration0").await.unwrap());
        writer.join().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    });
}

fn impatient(fixture: &Fixture, timeouts: Timeouts) -> (Listening, Dialler) {
    let listening = fixture.listen_with(fixture.credentials("target"), timeouts.clone(), Mover::Splice);
    let credentials = fixture.credentials("source");
    (listening, Dialler::new_with(fixture.source.address, credentials, timeouts, Mover::Splice))
}

#[test]
fn a_connection_on_which_nothing_moves_is_ended() {
    let fixture = Fixture::new();
    let idle = Duration::from_millis(700);
    let (listening, dialler) = impatient(&fixture, Timeouts { idle, ..Timeouts::default() });
    let (_registration, accepted) = fixture.expect(&listening, &route());
    let _forward = fixture.forward(&dialler, &listening, &route(), None);
    let (mut source, mut target) = (fixture.connect(), take(&accepted));
    // One direction is quiet for longer than that; the other is not.
    let begun = Instant::now();
    while begun.elapsed() < 3 * idle {
        source.write_all(b"alive").unwrap();
        target.read_exact(&mut [0; 5]).unwrap();
        std::thread::sleep(idle / 7);
    }
    let quiet = Instant::now();
    assert_eq!(source.read(&mut [0]).unwrap_or_default(), 0);
    assert!(quiet.elapsed() >= idle / 2 && quiet.elapsed() < Duration::from_secs(5), "{:?}", quiet.elapsed());
}

#[test]
fn a_listener_that_stops_lets_open_connections_end() {
    let fixture = Fixture::new();
    let mut listening = fixture.listen(fixture.credentials("target"));
    let (_registration, accepted) = fixture.expect(&listening, &route());
    let dialler = fixture.dialler(fixture.credentials("source"));
    let _forward = fixture.forward(&dialler, &listening, &route(), None);
    let (source, target) = (fixture.connect(), take(&accepted));
    ping(&source, &target, *b"together");
    let mut ended = listening.stop();
    assert_eq!(fixture.connect().read(&mut [0]).unwrap_or_default(), 0, "nobody new comes in");
    ping(&source, &target, *b"still on");
    assert!(ended.try_recv().is_err(), "it waits for those that are open");
    drop((source, target));
    fixture.target.run(async { ended.await.unwrap() });
}

#[test]
fn a_listener_that_stops_does_not_wait_for_ever() {
    let fixture = Fixture::new();
    let drain = Duration::from_millis(300);
    let (mut listening, dialler) = impatient(&fixture, Timeouts { drain, ..Timeouts::default() });
    let (_registration, accepted) = fixture.expect(&listening, &route());
    let forward = fixture.forward(&dialler, &listening, &route(), None);
    let (mut source, target) = (fixture.connect(), take(&accepted));
    ping(&source, &target, *b"together");
    let ended = listening.stop();
    fixture.target.run(async { ended.await.unwrap() });
    assert_eq!(source.read(&mut [0]).unwrap_or_default(), 0);
    fixture.source.run(forward.stop());
    assert!(!fixture.path("forward").exists());
}

#[test]
fn a_door_that_closes_leaves_open_connections_alone() {
    let fixture = Fixture::new();
    let (listening, registration, accepted, forward) = together(&fixture);
    let (source, target) = (fixture.connect(), take(&accepted));
    ping(&source, &target, *b"together");
    drop((registration, forward));
    ping(&source, &target, *b"still on");
    listening.await_refusal(tunnel::Refusal::Timeout, 0);
}
