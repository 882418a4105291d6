//! Without TLS: a token in place of a certificate.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Receiver;

use tunnel::{Credentials, DialError, Refusal, Registration, Source, Token};

use crate::fixture::{DEADLINE, Fixture, Listening, eventually, ping, route, take};

struct Scene {
    fixture: Fixture,
    listening: Listening,
    token: Token,
    registration: Option<Registration>,
    accepted: Receiver<UnixStream>,
}

impl Scene {
    fn new() -> Self {
        let fixture = Fixture::new();
        let listening = fixture.listen(Credentials::plain());
        let token = Token::generate().unwrap();
        let source = Source::Token { token: token.clone(), address: fixture.source.address };
        let (registration, accepted) = fixture.expect_from(&listening, &route(), source);
        Self { fixture, listening, token, registration: Some(registration), accepted }
    }

    /// What our own dialler says when it comes with this token.
    fn refused_by_target(&self, token: &Token) {
        let dialler = self.fixture.dialler(Credentials::plain());
        let forward = self.fixture.forward(&dialler, &self.listening, &route(), Some(token));
        assert_eq!(self.fixture.connect().read(&mut [0]).unwrap_or_default(), 0);
        let failure = eventually("the failure", || forward.last_failure());
        assert!(matches!(&*failure, DialError::Refused { .. }), "{failure}");
        assert!(self.accepted.try_recv().is_err(), "the destination was connected");
    }
}

#[test]
fn the_right_one_opens_every_connection_of_its_migration() {
    let scene = Scene::new();
    let dialler = scene.fixture.dialler(Credentials::plain());
    let _forward = scene.fixture.forward(&dialler, &scene.listening, &route(), Some(&scene.token));
    let open: Vec<_> = (0..4).map(|_| (scene.fixture.connect(), take(&scene.accepted))).collect();
    for (here, there) in &open {
        ping(here, there, *b"parallel");
    }
    assert!(scene.listening.refusals.counts().is_empty());
}

#[test]
fn a_wrong_one_is_refused() {
    let scene = Scene::new();
    scene.refused_by_target(&Token::generate().unwrap());
    scene.listening.await_refusal(Refusal::Token, 1);
}

#[test]
fn one_that_is_used_again_after_its_migration_is_refused() {
    let mut scene = Scene::new();
    let dialler = scene.fixture.dialler(Credentials::plain());
    let forward = scene.fixture.forward(&dialler, &scene.listening, &route(), Some(&scene.token));
    ping(&scene.fixture.connect(), &take(&scene.accepted), *b"the once");
    drop((forward, scene.registration.take()));
    scene.refused_by_target(&scene.token);
    scene.listening.await_refusal(Refusal::UnknownMigration, 1);
    // Nor does it open the next migration of the same machine.
    std::fs::remove_file(scene.fixture.path("destination")).unwrap();
    let source = Source::Token { token: Token::generate().unwrap(), address: scene.fixture.source.address };
    let (registration, accepted) = scene.fixture.expect_from(&scene.listening, &route(), source);
    (scene.registration, scene.accepted) = (Some(registration), accepted);
    scene.refused_by_target(&scene.token);
    eventually("the refusal", || (scene.listening.refusals.count(Refusal::Token) == 1).then_some(()));
}

#[test]
fn one_from_another_address_is_refused() {
    let scene = Scene::new();
    scene.fixture.source.with_handle(async |handle| {
        let other = net::Address::new("198.51.100.9/24".parse().unwrap());
        handle.add_address("migration0", other).await.unwrap();
    });
    let dialler = tunnel::Dialler::new([198, 51, 100, 9].into(), Credentials::plain());
    let _forward = scene.fixture.forward(&dialler, &scene.listening, &route(), Some(&scene.token));
    assert_eq!(scene.fixture.connect().read(&mut [0]).unwrap_or_default(), 0);
    scene.listening.await_refusal(Refusal::OtherAddress, 1);
    assert!(scene.accepted.try_recv().is_err());
}

#[test]
fn a_missing_one_is_noticed_before_anything_is_sent_and_by_the_target_too() {
    let scene = Scene::new();
    let dialler = scene.fixture.dialler(Credentials::plain());
    let forward = scene.fixture.forward(&dialler, &scene.listening, &route(), None);
    assert_eq!(scene.fixture.connect().read(&mut [0]).unwrap_or_default(), 0);
    let failure = eventually("the failure", || forward.last_failure());
    assert!(matches!(&*failure, DialError::NoToken), "{failure}");

    let connect = || TcpStream::connect(scene.listening.address);
    let mut stream = scene.fixture.source.namespace.run(connect).unwrap().unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut preamble = b"godwit\0\x01".to_vec();
    for field in [route().migration.as_str().as_bytes(), &route().channel.0.to_be_bytes(), b""] {
        preamble.push(u8::try_from(field.len()).unwrap());
        preamble.extend(field);
    }
    stream.write_all(&preamble).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_or_default(), 0, "no answer");
    eventually("the refusal", || (scene.listening.refusals.count(Refusal::Token) == 1).then_some(()));
    assert!(scene.accepted.try_recv().is_err());
}

#[test]
fn the_two_ways_do_not_mix() {
    let fixture = Fixture::new();
    let listening = fixture.listen(fixture.credentials("target"));
    let (_registration, accepted) = fixture.expect(&listening, &route());
    let token = Token::generate().unwrap();
    let plain = fixture.dialler(Credentials::plain());
    let _forward = fixture.forward(&plain, &listening, &route(), Some(&token));
    assert_eq!(fixture.connect().read(&mut [0]).unwrap_or_default(), 0);
    listening.await_refusal(Refusal::NotOurs, 1);
    assert!(accepted.try_recv().is_err());
}
