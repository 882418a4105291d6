//! One question to a container, and its answer. An error is a text for a person.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{ExecAction, HTTPGetAction, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error as TlsError, SignatureScheme};

use super::Asked;
use crate::error::chain;

/// How much of a command's output is told.
const OUTPUT_MAX: usize = 512;

/// Asks once.
pub(super) async fn check(asked: &Asked, timeout: Duration) -> Result<(), String> {
    let probe = &asked.probe;
    if let Some(exec) = &probe.exec {
        command(asked, exec, timeout).await
    } else if let Some(get) = &probe.http_get {
        http_get(asked, get).await
    } else if let Some(socket) = &probe.tcp_socket {
        tcp(asked, socket).await
    } else {
        // What cannot be asked is not held against the container; an event has said so.
        Ok(())
    }
}

async fn command(asked: &Asked, exec: &ExecAction, timeout: Duration) -> Result<(), String> {
    let command = exec.command.clone().unwrap_or_default();
    let result =
        asked.runtime.exec(&asked.container, &command, timeout).await.map_err(|cause| chain(&cause))?;
    if result.code == 0 {
        return Ok(());
    }
    let output = String::from_utf8_lossy(&result.output);
    let output = output.trim();
    let shown = output.get(..output.floor_char_boundary(OUTPUT_MAX)).unwrap_or_default();
    Err(format!("{command:?} ended with code {}: {shown}", result.code))
}

async fn connect(
    asked: &Asked,
    host: Option<&String>,
    port: &IntOrString,
) -> Result<(String, TcpStream), String> {
    let port = port_number(asked, port).ok_or_else(|| format!("the container has no port {port:?}"))?;
    let host = match (host.filter(|host| !host.is_empty()), asked.address) {
        (Some(host), _) => host.clone(),
        (None, Some(address)) => address.to_string(),
        (None, None) => return Err("the pod has no address".to_owned()),
    };
    let stream = TcpStream::connect((host.as_str(), port)).await;
    let stream = stream.map_err(|cause| format!("connecting to {host} port {port} failed: {cause}"))?;
    Ok((host, stream))
}

fn port_number(asked: &Asked, port: &IntOrString) -> Option<u16> {
    match port {
        IntOrString::Int(number) => u16::try_from(*number).ok(),
        IntOrString::String(name) => {
            let ports = asked.spec.ports.iter().flatten();
            let mut named =
                ports.filter(|port| port.name.as_deref() == Some(name)).map(|port| port.container_port);
            named.find_map(|number| u16::try_from(number).ok()).or_else(|| name.parse().ok())
        }
    }
}

async fn tcp(asked: &Asked, socket: &TCPSocketAction) -> Result<(), String> {
    connect(asked, socket.host.as_ref(), &socket.port).await.map(drop)
}

async fn http_get(asked: &Asked, get: &HTTPGetAction) -> Result<(), String> {
    let (host, stream) = connect(asked, get.host.as_ref(), &get.port).await?;
    if !get.scheme.as_deref().unwrap_or("HTTP").eq_ignore_ascii_case("https") {
        return request(get, &host, stream).await;
    }
    let name = ServerName::try_from(host.clone()).map_err(|cause| cause.to_string())?;
    let tls = TlsConnector::from(trusting_tls().map_err(|cause| chain(&cause))?);
    let stream =
        tls.connect(name, stream).await.map_err(|cause| format!("TLS with {host} failed: {cause}"))?;
    request(get, &host, stream).await
}

async fn request(
    get: &HTTPGetAction,
    host: &str,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<(), String> {
    let path = get.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let mut request = Request::get(&path).header("user-agent", "kube-probe/1.36");
    let headers = get.http_headers.iter().flatten();
    let own_host = headers.clone().any(|header| header.name.eq_ignore_ascii_case("host"));
    for header in headers {
        request = request.header(&header.name, &header.value);
    }
    if !own_host {
        request = request.header("host", host);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|cause| cause.to_string())?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|cause| chain(&cause))?;
    let driver = tokio::spawn(connection);
    let answer = sender.send_request(request).await;
    driver.abort();
    let status = answer.map_err(|cause| chain(&cause))?.status();
    if (200..400).contains(&status.as_u16()) { Ok(()) } else { Err(format!("HTTP status {status}")) }
}

pub(super) fn trusting_tls() -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Takes every certificate, as probes do.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
