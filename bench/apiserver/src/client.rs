//! The load generator's HTTP: one keep-alive HTTP/1.1 connection over TLS, with the certificate of a kubeconfig.
//!
//! It does as little as a client can, because it shares the processors with the servers: no pool, no retry, no JSON. Both
//! servers are spoken to by this same code.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Where a server is and how to be its administrator.
#[derive(Clone)]
pub struct Api {
    authority: String,
    name: ServerName<'static>,
    tls: TlsConnector,
}

impl Api {
    pub fn from_kubeconfig(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)?;
        let config: Kubeconfig = serde_saphyr::from_str(&text).context("reading the kubeconfig")?;
        let (Some(cluster), Some(user)) = (config.clusters.first(), config.users.first()) else {
            bail!("the kubeconfig names no cluster or no user");
        };
        let (cluster, user) = (&cluster.cluster, &user.user);
        let authority = cluster.server.trim_start_matches("https://").trim_end_matches('/').to_owned();
        let host = authority.rsplit_once(':').map_or(authority.as_str(), |(host, _)| host);
        let name = ServerName::try_from(host.to_owned())?;

        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&STANDARD.decode(&cluster.certificate_authority_data)?)?)?;
        let certificate = CertificateDer::from_pem_slice(&STANDARD.decode(&user.client_certificate_data)?)?;
        let key = PrivateKeyDer::from_pem_slice(&STANDARD.decode(&user.client_key_data)?)?;
        let tls = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], key)?;
        Ok(Self { authority, name, tls: TlsConnector::from(Arc::new(tls)) })
    }

    pub async fn connect(&self) -> Result<Connection> {
        let tcp = TcpStream::connect(&self.authority).await.context("connecting")?;
        tcp.set_nodelay(true)?;
        let tls = self.tls.connect(self.name.clone(), tcp).await.context("TLS handshake")?;
        let (sender, driver) = handshake(TokioIo::new(tls)).await?;
        tokio::spawn(driver);
        Ok(Connection { sender, authority: self.authority.clone() })
    }

    pub async fn connections(&self, count: usize) -> Result<Vec<Connection>> {
        let mut connections = Vec::with_capacity(count);
        for _ in 0..count {
            connections.push(self.connect().await?);
        }
        Ok(connections)
    }
}

pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    authority: String,
}

impl Connection {
    pub async fn get(&mut self, path: &str) -> Result<Bytes> {
        self.send(Method::GET, path, "", Bytes::new()).await
    }

    pub async fn post(&mut self, path: &str, body: Bytes) -> Result<Bytes> {
        self.send(Method::POST, path, "application/json", body).await
    }

    pub async fn put(&mut self, path: &str, body: Bytes) -> Result<Bytes> {
        self.send(Method::PUT, path, "application/json", body).await
    }

    pub async fn merge_patch(&mut self, path: &str, body: Bytes) -> Result<Bytes> {
        self.send(Method::PATCH, path, "application/merge-patch+json", body).await
    }

    /// The response once its head has come; its body is still to be read. Any answer but success is an error.
    pub async fn open(
        &mut self,
        method: Method,
        path: &str,
        content: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        let mut request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header("host", &self.authority)
            .header("accept", "application/json");
        if !content.is_empty() {
            request = request.header("content-type", content);
        }
        self.sender.ready().await?;
        let response = self.sender.send_request(request.body(Full::new(body))?).await?;
        let status = response.status();
        if !status.is_success() {
            let body = response.into_body().collect().await?.to_bytes();
            bail!("{method} {path}: {status}: {}", String::from_utf8_lossy(&body[..body.len().min(500)]));
        }
        Ok(response)
    }

    async fn send(&mut self, method: Method, path: &str, content: &str, body: Bytes) -> Result<Bytes> {
        let response = self.open(method, path, content, body).await?;
        Ok(response.into_body().collect().await?.to_bytes())
    }
}

/// The value of the first `"key":"value"` in a JSON text, without parsing it.
pub fn field<'a>(json: &'a [u8], key: &str) -> Result<&'a str> {
    let quoted = format!("\"{key}\":\"");
    let start =
        memchr::memmem::find(json, quoted.as_bytes()).with_context(|| format!("no {key} in the answer"))?;
    let value = &json[start + quoted.len()..];
    let end = memchr::memchr(b'"', value).context("an unfinished string")?;
    ensure!(end > 0, "an empty {key}");
    Ok(std::str::from_utf8(&value[..end])?)
}

#[derive(Deserialize)]
struct Kubeconfig {
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
}

#[derive(Deserialize)]
struct NamedCluster {
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority_data: String,
}

#[derive(Deserialize)]
struct NamedUser {
    user: User,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate_data: String,
    client_key_data: String,
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn a_field_is_found_without_parsing() {
        let list =
            br#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"42","continue":""},"items":[]}"#;
        assert_eq!(field(list, "resourceVersion").unwrap(), "42");
        assert!(field(list, "continue").is_err(), "an empty token is no token");
        assert!(field(list, "uid").is_err());
    }
}
