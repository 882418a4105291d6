//! Both our sides against rustls' own: what leaves is TLS 1.3, and what comes in is read as TLS 1.3.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::Arc;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{
    self, DigitallySignedStruct, RootCertStore, ServerConfig, ServerConnection, SignatureScheme, StreamOwned,
};
use tunnel::{DialError, Target};

use crate::fixture::{Fixture, bytes, eventually, member, read_to_end, route};

const SOME: usize = 2 * 1024 * 1024 + 3;

/// Believes any certificate: the tests that use it are about the other side's doubts.
#[derive(Debug)]
pub struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = default_provider().signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = default_provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A target made of rustls alone, with the certificate of `node`.
fn foreign_target(fixture: &Fixture, node: &str) -> (TcpListener, Arc<ServerConfig>) {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(fixture.authority.certificate().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    let identity = fixture.identity(node);
    let chain = vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.unwrap())
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"godwit/1".to_vec()];
    config.send_tls13_tickets = 0;
    let address = SocketAddr::new(fixture.target.address, 0);
    let listener = fixture.target.namespace.run(|| TcpListener::bind(address)).unwrap().unwrap();
    (listener, Arc::new(config))
}

#[test]
fn our_source_talks_to_a_target_of_plain_rustls() {
    let fixture = Fixture::new();
    let (listener, config) = foreign_target(&fixture, "target");
    let target =
        Target { address: listener.local_addr().unwrap(), member: fixture.target.member(), token: None };
    let dialler = fixture.dialler(fixture.credentials("source"));
    let _forward = fixture.forward_to(&dialler, target, &route());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (tcp, _) = listener.accept().unwrap();
            let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), tcp);
            stream.write_all(&[1]).unwrap();
            assert_eq!(stream.conn.server_name(), Some(route().server_name().as_str()));
            let mut all = Vec::new();
            // A clean end: rustls says so by an error if the closing message is missing.
            stream.read_to_end(&mut all).unwrap();
            assert!(all == bytes(1, SOME), "there");
            stream.write_all(&bytes(2, SOME)).unwrap();
            stream.conn.send_close_notify();
            stream.flush().unwrap();
        });
        let mut source = fixture.connect();
        source.write_all(&bytes(1, SOME)).unwrap();
        source.shutdown(Shutdown::Write).unwrap();
        assert!(read_to_end(&source) == bytes(2, SOME), "back");
    });
}

#[test]
fn a_target_that_is_another_member_gets_nothing() {
    let fixture = Fixture::new();
    let (listener, config) = foreign_target(&fixture, "other");
    let target =
        Target { address: listener.local_addr().unwrap(), member: fixture.target.member(), token: None };
    let dialler = fixture.dialler(fixture.credentials("source"));
    let forward = fixture.forward_to(&dialler, target, &route());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (tcp, _) = listener.accept().unwrap();
            let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), tcp);
            let mut all = Vec::new();
            assert!(stream.read_to_end(&mut all).is_err(), "the end is not a clean one");
            assert!(all.is_empty());
        });
        let mut source = fixture.connect();
        // It may be gone already.
        let _ = source.write_all(b"guest memory");
        let mut heard = Vec::new();
        let _ = source.read_to_end(&mut heard);
        assert!(heard.is_empty());
    });
    let failure = eventually("the failure", || forward.last_failure());
    assert!(
        matches!(&*failure, DialError::OtherMember { found, .. } if **found == member("other")),
        "{failure}"
    );
    assert_eq!(forward.counters().traffic().opened, 0);
}
