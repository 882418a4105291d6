//! The server's keys: its certificate authority, its certificates, and the kubeconfig of the administrator.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use identity::{Authority, Identity, Subject};
use ring::rand::SecureRandom as _;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto::ring::default_provider};

use crate::StartError;

const YEAR: Duration = Duration::from_hours(8760);
const NAMES: [&str; 4] = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];

pub(crate) struct Credentials {
    pub authority: Authority,
    /// Signs service-account tokens.
    pub token_key: Vec<u8>,
}

impl Credentials {
    pub(crate) fn generate() -> Result<Self, StartError> {
        Ok(Self { authority: Authority::generate("kubernetes", 10 * YEAR)?, token_key: random_key()? })
    }

    /// The keys in a data directory, made there the first time.
    pub(crate) fn load_or_generate(directory: &Path) -> Result<Self, StartError> {
        let path = directory.join("token.key");
        if !path.exists() {
            identity::write_private(&path, &random_key()?)?;
        }
        let token_key = std::fs::read(&path)
            .map_err(|source| identity::Error::File { path: path.display().to_string(), source })?;
        Ok(Self { authority: Authority::load_or_generate(directory, "ca", 10 * YEAR)?, token_key })
    }

    fn roots(&self) -> Result<Arc<RootCertStore>, StartError> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(self.authority.certificate())?)?;
        Ok(Arc::new(roots))
    }

    /// TLS of the server on an address. Clients may show a certificate; those without one need a token.
    pub(crate) fn server_tls(&self, address: IpAddr) -> Result<Arc<ServerConfig>, StartError> {
        let subject = Subject {
            common_name: "kube-apiserver".into(),
            dns_names: NAMES.map(str::to_owned).to_vec(),
            addresses: vec![address, IpAddr::from([127, 0, 0, 1]), IpAddr::from([10, 96, 0, 1])],
            ..Subject::default()
        };
        let identity = self.authority.issue(&subject, YEAR)?;
        let verifier =
            WebPkiClientVerifier::builder_with_provider(self.roots()?, Arc::new(default_provider()))
                .allow_unauthenticated()
                .build()
                .map_err(|cause| StartError::Certificate(cause.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate(&identity.certificate)?], private_key(&identity)?)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Clients keep their connections, and those that live for one request have nowhere to keep a session.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// TLS towards kubelets.
    pub(crate) fn client_tls(&self) -> Result<Arc<ClientConfig>, StartError> {
        let subject = Subject {
            common_name: "kube-apiserver-kubelet-client".into(),
            organisation: Some("system:masters".into()),
            ..Subject::default()
        };
        let identity = self.authority.issue(&subject, YEAR)?;
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(vec![certificate(&identity.certificate)?], private_key(&identity)?)?;
        Ok(Arc::new(config))
    }

    /// The administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self, address: SocketAddr) -> Result<String, StartError> {
        let subject = Subject {
            common_name: "admin".into(),
            organisation: Some("system:masters".into()),
            ..Subject::default()
        };
        let admin = self.authority.issue(&subject, YEAR)?;
        let server = format!("https://{address}");
        Ok(identity::kubeconfig("godwit", &server, self.authority.certificate(), "admin", &admin))
    }
}

fn random_key() -> Result<Vec<u8>, StartError> {
    let mut key = vec![0; 32];
    ring::rand::SystemRandom::new()
        .fill(&mut key)
        .map_err(|_| StartError::Certificate("the system gave no random bytes".into()))?;
    Ok(key)
}

fn certificate(pem: &str) -> Result<CertificateDer<'static>, StartError> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|cause| StartError::Certificate(cause.to_string()))
}

fn private_key(identity: &Identity) -> Result<PrivateKeyDer<'static>, StartError> {
    PrivateKeyDer::from_pem_slice(identity.key.as_bytes())
        .map_err(|cause| StartError::Certificate(cause.to_string()))
}
