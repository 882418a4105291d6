//! Everyone who must not come in: nothing reaches the destination, and each is counted under the right reason.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use identity::{Authority, Identity, Subject};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tunnel::{Channel, Migration, Refusal, Registration, Route, Timeouts};

use crate::fixture::{DEADLINE, Fixture, Listening, issue, member, route, take};

/// A listener that expects `source`, and someone else who comes.
struct Scene {
    fixture: Fixture,
    listening: Listening,
    accepted: Receiver<UnixStream>,
    registration: Option<Registration>,
}

/// How a stranger connects: with plain rustls, so that it can do what our own dialler never would.
struct Stranger {
    identity: Option<Identity>,
    name: String,
    protocols: Vec<Vec<u8>>,
    sni: bool,
    tls12: bool,
}

impl Scene {
    fn new() -> Self {
        let fixture = Fixture::new();
        let timeouts = Timeouts { handshake: Duration::from_secs(2), ..Timeouts::default() };
        let listening = fixture.listen_with(fixture.credentials("target"), timeouts, tunnel::Mover::Splice);
        let (registration, accepted) = fixture.expect(&listening, &route());
        Self { fixture, listening, accepted, registration: Some(registration) }
    }

    /// The rightful source, to begin with.
    fn stranger(&self) -> Stranger {
        Stranger {
            identity: Some(self.fixture.identity("source")),
            name: route().server_name(),
            protocols: vec![b"godwit/1".to_vec()],
            sni: true,
            tls12: false,
        }
    }

    fn tcp(&self) -> TcpStream {
        let address = self.listening.address;
        let stream = self.fixture.source.namespace.run(|| TcpStream::connect(address)).unwrap().unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    /// Connects and sends; what comes back until the end.
    fn attempt(&self, stranger: Stranger) -> Vec<u8> {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.fixture.authority.certificate().as_bytes()).unwrap())
            .unwrap();
        let version = if stranger.tls12 { &TLS12 } else { &TLS13 };
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(crate::interoperation::AnyServer));
        let mut config = match &stranger.identity {
            Some(Identity { certificate, key }) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = stranger.protocols;
        config.enable_sni = stranger.sni;
        let connection = ClientConnection::new(Arc::new(config), stranger.name.try_into().unwrap()).unwrap();
        let mut stream = StreamOwned::new(connection, self.tcp());
        let mut heard = Vec::new();
        // Either may fail: the other side hangs up.
        let _ = stream.write_all(b"guest memory").and_then(|()| stream.flush());
        let _ = stream.read_to_end(&mut heard);
        heard
    }

    /// Nobody came to the destination, nothing moved, and nothing was said but "no".
    fn nothing_arrived(&self, reason: Refusal) {
        self.listening.await_refusal(reason, 1);
        assert!(self.accepted.try_recv().is_err(), "the destination was connected");
        if let Some(registration) = &self.registration {
            let traffic = registration.counters().next().unwrap().1.traffic();
            assert_eq!((traffic.opened, traffic.received), (0, 0));
        }
    }

    fn refused(self, stranger: Stranger, reason: Refusal) {
        assert!(self.attempt(stranger).is_empty(), "a refused connection got an answer");
        self.nothing_arrived(reason);
    }
}

#[test]
fn the_rightful_source_comes_in_by_the_same_way() {
    let mut scene = Scene::new();
    let accepted = std::mem::replace(&mut scene.accepted, std::sync::mpsc::channel().1);
    let destination = std::thread::spawn(move || {
        let mut heard = [0; 12];
        take(&accepted).read_exact(&mut heard).unwrap();
        heard
    });
    assert_eq!(scene.attempt(scene.stranger()), [1], "the answer, then the end");
    assert_eq!(&destination.join().unwrap(), b"guest memory");
    assert!(scene.listening.refusals.counts().is_empty());
}

#[test]
fn without_a_certificate() {
    let scene = Scene::new();
    let stranger = Stranger { identity: None, ..scene.stranger() };
    scene.refused(stranger, Refusal::NoCertificate);
}

#[test]
fn with_a_certificate_of_another_authority() {
    let scene = Scene::new();
    let other = Authority::generate("tunnel", Duration::from_hours(1)).unwrap();
    let stranger = Stranger { identity: Some(issue(&other, "source")), ..scene.stranger() };
    scene.refused(stranger, Refusal::UntrustedCertificate);
}

#[test]
fn with_the_certificate_of_another_node() {
    let scene = Scene::new();
    let stranger = Stranger { identity: Some(scene.fixture.identity("other")), ..scene.stranger() };
    scene.refused(stranger, Refusal::OtherSource);
}

#[test]
fn with_a_certificate_that_names_no_member() {
    let scene = Scene::new();
    let subject = Subject { common_name: "source".into(), ..Subject::default() };
    let identity = scene.fixture.authority.issue(&subject, Duration::from_hours(1)).unwrap();
    let stranger = Stranger { identity: Some(identity), ..scene.stranger() };
    scene.refused(stranger, Refusal::UnnamedCertificate);
}

#[test]
fn with_a_certificate_whose_time_is_over() {
    let scene = Scene::new();
    // By hand, because our authority issues nothing that is over already.
    let key = std::fs::read_to_string(scene.fixture.path("authority.key")).unwrap();
    let key = rcgen::KeyPair::from_pem(&key).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_pem(scene.fixture.authority.certificate(), key).unwrap();
    let uri = member("source").to_string().try_into().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.subject_alt_names = vec![rcgen::SanType::URI(uri)];
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let identity = Identity { certificate: certificate.pem(), key: key.serialize_pem() };
    let stranger = Stranger { identity: Some(identity), ..scene.stranger() };
    scene.refused(stranger, Refusal::ExpiredCertificate);
}

#[test]
fn for_a_migration_that_nobody_expects() {
    let scene = Scene::new();
    let other = Route::new(Migration::new("another").unwrap(), Channel::MEMORY);
    let stranger = Stranger { name: other.server_name(), ..scene.stranger() };
    scene.refused(stranger, Refusal::UnknownMigration);
}

#[test]
fn for_a_migration_that_has_ended() {
    let mut scene = Scene::new();
    drop(scene.registration.take());
    let stranger = scene.stranger();
    scene.refused(stranger, Refusal::UnknownMigration);
}

#[test]
fn for_a_channel_that_the_migration_does_not_have() {
    let scene = Scene::new();
    let other = Route::new(route().migration, Channel::DISKS);
    let stranger = Stranger { name: other.server_name(), ..scene.stranger() };
    scene.refused(stranger, Refusal::UnknownChannel);
}

#[test]
fn for_another_server_name_or_none() {
    let scene = Scene::new();
    let stranger = Stranger { name: "node.example".into(), ..scene.stranger() };
    scene.refused(stranger, Refusal::ServerName);
    let scene = Scene::new();
    let stranger = Stranger { sni: false, ..scene.stranger() };
    scene.refused(stranger, Refusal::ServerName);
}

#[test]
fn with_another_protocol_or_none() {
    for protocols in [vec![b"h2".to_vec()], vec![]] {
        let scene = Scene::new();
        let stranger = Stranger { protocols, ..scene.stranger() };
        scene.refused(stranger, Refusal::Protocol);
    }
}

#[test]
fn with_an_older_tls() {
    let scene = Scene::new();
    let stranger = Stranger { tls12: true, ..scene.stranger() };
    scene.refused(stranger, Refusal::Handshake);
}

#[test]
fn who_speaks_no_tls_at_all() {
    let scene = Scene::new();
    let mut stream = scene.tcp();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
    let mut heard = Vec::new();
    // The end may come as a reset, because not all that was sent was read.
    let _ = stream.read_to_end(&mut heard);
    assert!(heard.is_empty());
    scene.nothing_arrived(Refusal::NotOurs);
}

#[test]
fn who_says_nothing() {
    let scene = Scene::new();
    let mut stream = scene.tcp();
    stream.write_all(&[22, 3, 1]).unwrap();
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard);
    assert!(heard.is_empty());
    scene.nothing_arrived(Refusal::Timeout);
}

#[test]
fn when_nobody_listens_at_the_destination() {
    let scene = Scene::new();
    std::fs::remove_file(scene.fixture.path("destination")).unwrap();
    let stranger = scene.stranger();
    scene.refused(stranger, Refusal::Destination);
}
