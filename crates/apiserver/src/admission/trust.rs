//! Which webhook servers are believed: those with a certificate of the hook's `caBundle`, and of nobody else's.
//!
//! Owns one deviation from what rustls does by itself: a certificate that is in the bundle is believed even if it
//! calls itself an authority. Go has it so, and quick scripts make such certificates for webhooks.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use x509_parser::time::ASN1Time;

/// Settings that trust this bundle (PEM in base64) and nothing else. An empty bundle trusts nobody.
pub fn only(ca_bundle: &str) -> Result<ClientConfig, String> {
    let unusable = |error: &dyn std::fmt::Display| format!("unable to load root certificates: {error}");
    let provider = Arc::new(ring::default_provider());
    let pem = STANDARD.decode(ca_bundle).map_err(|error| unusable(&error))?;
    let bundle: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().map_err(|error| unusable(&error))?;
    let mut roots = RootCertStore::empty();
    for certificate in &bundle {
        roots.add(certificate.clone()).map_err(|error| unusable(&error))?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?;
    if roots.is_empty() {
        return Ok(builder.with_root_certificates(roots).with_no_client_auth());
    }
    let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| unusable(&error))?;
    let verifier = BundleVerifier { bundle, chains };
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

#[derive(Debug)]
struct BundleVerifier {
    bundle: Vec<CertificateDer<'static>>,
    chains: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for BundleVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.bundle.contains(end_entity) {
            let chains = &self.chains;
            return chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        }
        // Trusted itself, so no chain is needed; the name and the dates still count.
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        let (_, parsed) =
            x509_parser::parse_x509_certificate(end_entity).map_err(|_| CertificateError::BadEncoding)?;
        let now =
            i64::try_from(now.as_secs()).ok().and_then(|seconds| ASN1Time::from_timestamp(seconds).ok());
        if now.is_some_and(|now| parsed.validity().is_valid_at(now)) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::Expired.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}
