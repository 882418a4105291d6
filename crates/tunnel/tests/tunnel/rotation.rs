//! Certificates change while bytes move.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use identity::{Authority, Subject};
use tunnel::{Credentials, DialError, Refusal};

use crate::fixture::{Fixture, bytes, eventually, issue, member, ping, route, take};

#[test]
fn open_connections_go_on_and_new_ones_use_the_new_certificates() {
    const PIECE: usize = 1 << 20;
    let fixture = Fixture::new();
    let (here, there) = (fixture.credentials("source"), fixture.credentials("target"));
    let listening = fixture.listen(there.clone());
    let (_registration, accepted) = fixture.expect(&listening, &route());
    let forward = fixture.forward(&fixture.dialler(here.clone()), &listening, &route(), None);
    let (mut source, mut target) = (fixture.connect(), take(&accepted));

    let next = Authority::generate("tunnel", Duration::from_hours(1)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for piece in 0..24 {
                source.write_all(&bytes(piece, PIECE)).unwrap();
            }
        });
        let mut heard = vec![0; PIECE];
        for piece in 0..24 {
            target.read_exact(&mut heard).unwrap();
            assert!(heard == bytes(piece, PIECE), "piece {piece}");
            if piece == 8 {
                there.replace_with_tls(&issue(&next, "target"), &[next.certificate()]).unwrap();
            }
            if piece == 16 {
                here.replace_with_tls(&issue(&next, "source"), &[next.certificate()]).unwrap();
            }
        }
    });
    ping(&source, &target, *b"still on");
    ping(&fixture.connect(), &take(&accepted), *b"new ones");

    // Who still has the old ones is a stranger now, and thinks so of the other, too.
    let refused = listening.refusals.counts();
    assert!(refused.is_empty(), "{refused:?}");
    here.replace_with_tls(&fixture.identity("source"), &[next.certificate()]).unwrap();
    assert_eq!(fixture.connect().read(&mut [0]).unwrap_or_default(), 0);
    listening.await_refusal(Refusal::UntrustedCertificate, 1);
    here.replace_with_tls(&issue(&next, "source"), &[fixture.authority.certificate()]).unwrap();
    assert_eq!(fixture.connect().read(&mut [0]).unwrap_or_default(), 0);
    eventually("the source to refuse the target", || {
        forward.last_failure().filter(|failure| matches!(&**failure, DialError::Handshake { .. }))
    });
    ping(&source, &target, *b"still on");
}

#[test]
fn a_certificate_whose_time_ends_is_refused_although_its_session_could_go_on() {
    let fixture = Fixture::new();
    let listening = fixture.listen(fixture.credentials("target"));
    let (_registration, accepted) = fixture.expect(&listening, &route());
    let subject =
        Subject { common_name: "source".into(), member: Some(member("source")), ..Subject::default() };
    let life = Duration::from_secs(3);
    let begun = Instant::now();
    let identity = fixture.authority.issue(&subject, life).unwrap();
    let credentials = Credentials::tls(&identity, &[fixture.authority.certificate()]).unwrap();
    let _forward = fixture.forward(&fixture.dialler(credentials), &listening, &route(), None);
    ping(&fixture.connect(), &take(&accepted), *b"in time!");
    // The dates of certificates are whole seconds.
    eventually("the end of the certificate", || {
        (begun.elapsed() > life + Duration::from_secs(1)).then_some(())
    });
    assert_eq!(fixture.connect().read(&mut [0]).unwrap_or_default(), 0);
    listening.await_refusal(Refusal::ExpiredCertificate, 1);
    assert!(accepted.try_recv().is_err());
}
