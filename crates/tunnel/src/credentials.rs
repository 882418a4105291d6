//! What a node shows and whom it believes: its certificate and the authorities of its peers, or nothing when TLS is disabled.
//!
//! Credentials are replaced while connections run: a handshake takes those of the moment in which it begins, and what is open goes
//! on.
//!
//! The parallel connections of one channel resume the first one's session, which spares both sides four signatures each time. That is
//! as safe as the first handshake was: a session is good for the same server name only, so for the same channel of the same migration;
//! for one resumption, with keys of its own; and only until the credentials are replaced, because they hold all sessions. Who may
//! connect is asked each time, and so is whether the certificate is still current.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use identity::Identity;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use tokio_rustls::rustls::crypto::ring::{cipher_suite, default_provider};
use tokio_rustls::rustls::crypto::{CryptoProvider, SupportedKxGroup as _, verify_tls13_signature};
use tokio_rustls::rustls::server::{ParsedCertificate, ServerSessionMemoryCache, WebPkiClientVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, PeerIncompatible, RootCertStore, ServerConfig, SignatureScheme,
};

use crate::agreement;
use crate::error::Error;
use crate::hello::PROTOCOL;

/// Sessions that can be resumed. The oldest are forgotten first, and cost their next connection a full handshake.
const SESSIONS: usize = 256;

/// Shared by a listener and a dialler. Clones are the same: what replaces one replaces all.
#[derive(Clone)]
pub struct Credentials(Arc<ArcSwap<Mode>>);

pub(crate) enum Mode {
    Tls { server: Arc<ServerConfig>, client: Arc<ClientConfig> },
    Plain,
}

impl Credentials {
    /// Mutual TLS: this node's certificate and key, and the certificates (PEM) of the authorities that it believes.
    pub fn tls(identity: &Identity, authorities: &[&str]) -> Result<Self, Error> {
        Ok(Self(Arc::new(ArcSwap::from_pointee(tls(identity, authorities)?))))
    }

    /// No TLS, as `disableTLS` asks for: tokens in place of certificates, and nothing is secret.
    pub fn plain() -> Self {
        Self(Arc::new(ArcSwap::from_pointee(Mode::Plain)))
    }

    /// From now on, new handshakes use these.
    pub fn replace_with_tls(&self, identity: &Identity, authorities: &[&str]) -> Result<(), Error> {
        self.0.store(Arc::new(tls(identity, authorities)?));
        Ok(())
    }

    /// From now on, new connections are without TLS.
    pub fn replace_with_plain(&self) {
        self.0.store(Arc::new(Mode::Plain));
    }

    pub(crate) fn mode(&self) -> Arc<Mode> {
        self.0.load_full()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if matches!(*self.mode(), Mode::Plain) {
            "Credentials(plain)"
        } else {
            "Credentials(TLS)"
        })
    }
}

/// AES-128-GCM first: on processors that have AES it is the fastest by far, and it is what everyone else takes too.
fn provider() -> Arc<CryptoProvider> {
    let cipher_suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    let mut provider = CryptoProvider { cipher_suites, ..default_provider() };
    for group in &mut provider.kx_groups {
        if group.name() == agreement::Group.name() {
            *group = &agreement::Group;
        }
    }
    Arc::new(provider)
}

fn tls(identity: &Identity, authorities: &[&str]) -> Result<Mode, Error> {
    let unusable =
        |what, problem: &dyn fmt::Display| Error::Credentials { what, problem: problem.to_string() };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(identity.certificate.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|problem| unusable("certificate", &problem))?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())
        .map_err(|problem| unusable("key", &problem))?;
    let mut roots = RootCertStore::empty();
    for authority in authorities.iter().flat_map(|pem| CertificateDer::pem_slice_iter(pem.as_bytes())) {
        let authority = authority.map_err(|problem| unusable("authority", &problem))?;
        roots.add(authority).map_err(|problem| unusable("authority", &problem))?;
    }
    let (roots, provider) = (Arc::new(roots), provider());

    let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
        .build()
        .map_err(|problem| unusable("authority", &problem))?;
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .and_then(|builder| {
            builder.with_client_cert_verifier(clients).with_single_cert(chain.clone(), key.clone_key())
        })
        .map_err(Error::Tls)?;
    server.alpn_protocols = vec![PROTOCOL.to_vec()];
    server.session_storage = ServerSessionMemoryCache::new(SESSIONS);
    server.send_tls13_tickets = 1;
    server.enable_secret_extraction = true;

    let servers = Arc::new(SignedByAuthority { roots, provider: Arc::clone(&provider) });
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .and_then(|builder| {
            let builder = builder.dangerous().with_custom_certificate_verifier(servers);
            builder.with_client_auth_cert(chain, key)
        })
        .map_err(Error::Tls)?;
    client.alpn_protocols = vec![PROTOCOL.to_vec()];
    client.resumption = Resumption::in_memory_sessions(SESSIONS);
    client.enable_secret_extraction = true;
    Ok(Mode::Tls { server: Arc::new(server), client: Arc::new(client) })
}

/// Believes a target that one of the authorities signed. Its name is no host's: the server name of a connection says which
/// channel is wanted, and which member must answer is checked by the dialler before it sends a byte.
#[derive(Debug)]
struct SignedByAuthority {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for SignedByAuthority {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
