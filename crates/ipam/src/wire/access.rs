//! A kubeconfig: where the API server is, how to know it, and how to be known.
//!
//! Certificates, tokens, and files of either. A user that a program must be run for is refused: a plugin that is started for
//! every pod cannot wait for a login.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::crypto::ring::{cipher_suite, default_provider};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// Why a kubeconfig does not lead to an API server.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// It cannot be read.
    #[error("{} cannot be read", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is no kubeconfig.
    #[error("it is not a kubeconfig: {cause}")]
    Form {
        /// Where and why.
        cause: String,
    },
    /// Something is named that is not there.
    #[error("it has no {what} {name:?}")]
    Missing {
        /// `context`, `cluster` or `user`.
        what: &'static str,
        /// Which.
        name: String,
    },
    /// The server cannot be trusted, or we cannot be known.
    #[error("{what}")]
    Unusable {
        /// What, and what to do.
        what: &'static str,
    },
    /// A certificate or key is none.
    #[error("{what} is not base64 of PEM, or of no kind that is known")]
    Pem {
        /// Which key of the kubeconfig.
        what: &'static str,
    },
    /// Certificate and key cannot be used.
    #[error("its certificates cannot be used")]
    Tls {
        /// Why.
        #[from]
        source: rustls::Error,
    },
}

pub(super) struct Access {
    /// Host and port.
    pub(super) authority: String,
    /// What comes before every path.
    pub(super) prefix: String,
    pub(super) name: ServerName<'static>,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    #[serde(default)]
    current_context: String,
    #[serde(default)]
    contexts: Vec<NamedContext>,
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    users: Vec<NamedUser>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    #[serde(default)]
    user: String,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    tls_server_name: Option<String>,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
}

impl Access {
    pub(super) fn read(path: &Path) -> Result<Self, AccessError> {
        let text = read(path)?;
        // Ours are JSON, which is read many times faster than YAML.
        let config: Kubeconfig = if text.trim_ascii_start().starts_with(b"{") {
            serde_json::from_slice(&text).map_err(|cause| AccessError::Form { cause: cause.to_string() })?
        } else {
            serde_saphyr::from_slice(&text).map_err(|cause| AccessError::Form { cause: cause.to_string() })?
        };
        let Kubeconfig { current_context, contexts, clusters, users } = config;
        let missing = |what, name: &str| AccessError::Missing { what, name: name.to_owned() };
        let context = contexts.into_iter().find(|context| context.name == current_context);
        let context = context.ok_or_else(|| missing("context", &current_context))?.context;
        let cluster = clusters.into_iter().find(|cluster| cluster.name == context.cluster);
        let cluster = cluster.ok_or_else(|| missing("cluster", &context.cluster))?.cluster;
        let user = users.into_iter().find(|user| user.name == context.user);
        let user = user.ok_or_else(|| missing("user", &context.user))?.user;
        // Files are named relative to the kubeconfig.
        let directory = path.parent().unwrap_or(Path::new("/"));
        Self::new(&cluster, user, directory)
    }

    fn new(cluster: &Cluster, user: User, directory: &Path) -> Result<Self, AccessError> {
        let url = cluster.server.strip_prefix("https://");
        let url = url.ok_or(AccessError::Unusable { what: "its server does not begin with https://" })?;
        let (authority, prefix) = url.find('/').map_or((url, ""), |slash| url.split_at(slash));
        let (host, port) = split_port(authority);
        let name = cluster.tls_server_name.clone().unwrap_or_else(|| host.to_owned());
        let name = ServerName::try_from(name)
            .map_err(|_| AccessError::Unusable { what: "its server is neither a name nor an address" })?;
        if cluster.insecure_skip_tls_verify {
            let what = "it does not verify the server: give certificate-authority-data instead of insecure-skip-tls-verify";
            return Err(AccessError::Unusable { what });
        }
        let authorities = material(
            ("certificate-authority-data", cluster.certificate_authority_data.as_deref()),
            cluster.certificate_authority.as_deref(),
            directory,
        )?;
        let what = "it does not say by which authority the server is known: give certificate-authority-data";
        let authorities = authorities.ok_or(AccessError::Unusable { what })?;
        let mut roots = RootCertStore::empty();
        for certificate in certificates("certificate-authority-data", &authorities)? {
            roots.add(certificate)?;
        }
        let tls = ClientConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let certificate = material(
            ("client-certificate-data", user.client_certificate_data.as_deref()),
            user.client_certificate.as_deref(),
            directory,
        )?;
        let key = material(
            ("client-key-data", user.client_key_data.as_deref()),
            user.client_key.as_deref(),
            directory,
        )?;
        let token = match (user.token, user.token_file) {
            (Some(token), _) if !token.is_empty() => Some(token),
            (_, Some(file)) => {
                let text = read(&directory.join(file))?;
                Some(String::from_utf8_lossy(text.trim_ascii()).into_owned())
            }
            _ => None,
        };
        let mut tls = match (certificate, key) {
            (Some(certificate), Some(key)) => {
                let key = PrivateKeyDer::from_pem_slice(&key)
                    .map_err(|_| AccessError::Pem { what: "client-key-data" })?;
                tls.with_client_auth_cert(certificates("client-certificate-data", &certificate)?, key)?
            }
            _ if token.is_some() => tls.with_no_client_auth(),
            _ => {
                let what = "its user has neither a certificate with its key nor a token";
                return Err(AccessError::Unusable { what });
            }
        };
        // This process makes one connection.
        tls.resumption = Resumption::disabled();
        Ok(Self {
            authority: format!("{}:{port}", bracketed(host)),
            prefix: prefix.trim_end_matches('/').to_owned(),
            name,
            tls: Arc::new(tls),
            token,
        })
    }
}

/// The one with the shortest hash first: of a connection with two requests, the handshake is what costs.
fn provider() -> CryptoProvider {
    let mut provider = default_provider();
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != cipher_suite::TLS13_AES_128_GCM_SHA256.suite());
    provider
}

/// Host, without the brackets of IPv6, and port.
fn split_port(authority: &str) -> (&str, &str) {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port),
        _ => (authority, "443"),
    };
    (host.trim_start_matches('[').trim_end_matches(']'), port)
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn read(path: &Path) -> Result<Vec<u8>, AccessError> {
    std::fs::read(path).map_err(|source| AccessError::File { path: path.to_owned(), source })
}

/// What is in the kubeconfig, or in the file that it names.
fn material(
    (what, data): (&'static str, Option<&str>),
    file: Option<&Path>,
    directory: &Path,
) -> Result<Option<Vec<u8>>, AccessError> {
    match (data.filter(|data| !data.is_empty()), file) {
        (Some(data), _) => STANDARD.decode(data).map(Some).map_err(|_| AccessError::Pem { what }),
        (None, Some(file)) => read(&directory.join(file)).map(Some),
        (None, None) => Ok(None),
    }
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, AccessError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    read.ok().filter(|read| !read.is_empty()).ok_or(AccessError::Pem { what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_a_host_and_a_port() {
        assert_eq!(split_port("127.0.0.1:6443"), ("127.0.0.1", "6443"));
        assert_eq!(split_port("[fd00::1]:6443"), ("fd00::1", "6443"));
        assert_eq!(split_port("[fd00::1]"), ("fd00::1", "443"));
        assert_eq!(split_port("api.example"), ("api.example", "443"));
    }
}
