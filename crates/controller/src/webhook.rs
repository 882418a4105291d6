//! The webhooks: HTTPS in front of [`crate::admission`], on every replica.
//!
//! It owns the socket, the certificate and the registration with the API server; it must never judge an object itself. A certificate
//! is made at every start from the installation's own authority, and again long before it ends and when the authorities change;
//! nobody has to put one anywhere.

mod addresses;
mod moves;
mod registration;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::kubevirt::KubeVirt;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use identity::{Authority, Subject};
use kube::Client;
use kube::runtime::reflector::Store;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::{Error, admission, installation, operator, setting, trust};

/// A certificate is valid for a day, if its authority is, and renewed in the middle of it.
const VALID_FOR: Duration = Duration::from_hours(24);
/// How often it is looked whether the authorities are still the same.
const LOOK: Duration = Duration::from_mins(1);
const HANDSHAKE: Duration = Duration::from_secs(10);
/// As much as the API server sends: two objects of the largest size, and room.
const LARGEST_REVIEW: usize = 8 << 20;

/// Paths of the two kinds of review.
const MUTATE: &str = "/mutate";
const VALIDATE: &str = "/validate";
const HEALTH: &str = "/healthz";

/// Where the webhooks are.
pub struct Webhook {
    /// Listens already: whoever binds it knows where.
    pub listener: std::net::TcpListener,
    /// The service in the installation's namespace that leads here.
    pub service: String,
    /// Port of the service.
    pub port: u16,
}

impl Webhook {
    /// Serves and stays registered until dropped; returns only with a failure.
    pub(crate) async fn serve(
        self,
        client: Client,
        namespace: &str,
        store: Store<KubeVirt>,
    ) -> Result<(), Error> {
        self.listener.set_nonblocking(true).map_err(Error::Socket)?;
        let listener = TcpListener::from_std(self.listener).map_err(Error::Socket)?;
        let mut authorities = trust::authorities(client.clone(), namespace).await?;
        let subject = subject(&self.service, namespace);
        let judge = Judge { client: client.clone(), namespace: namespace.to_owned(), store };
        let mut connections = JoinSet::new();
        loop {
            let acceptor = acceptor(&authorities.signing, &subject)?;
            let registration = registration::Registration {
                namespace: namespace.to_owned(),
                service: self.service.clone(),
                port: self.port,
                authorities: authorities.bundle.clone(),
            };
            let accepting = accept(&listener, &acceptor, &judge, &mut connections);
            let registered = async {
                registration.apply(&client).await;
                outdated(&client, namespace, &authorities.bundle).await
            };
            let new = tokio::select! { () = accepting => None, new = registered => new };
            authorities = match new {
                Some(new) => new,
                None => trust::authorities(client.clone(), namespace).await.unwrap_or(authorities),
            };
        }
    }
}

/// Returns when it is time for another certificate: with the authorities, if those have changed.
async fn outdated(client: &Client, namespace: &str, bundle: &str) -> Option<trust::Authorities> {
    let renew = tokio::time::Instant::now() + VALID_FOR / 2;
    while tokio::time::Instant::now() < renew {
        tokio::time::sleep(LOOK).await;
        match trust::authorities(client.clone(), namespace).await {
            Ok(found) if found.bundle != bundle => return Some(found),
            Ok(_) => {}
            // What is served and registered still counts.
            Err(error) => tracing::warn!("{}", error.explain()),
        }
    }
    None
}

/// What the answers are given from.
#[derive(Clone)]
struct Judge {
    client: Client,
    /// Of the installation.
    namespace: String,
    store: Store<KubeVirt>,
}

impl Judge {
    async fn review(&self, asked: &Value, mutating: bool) -> Result<admission::Answer, Error> {
        if admission::setting::concerns(asked) {
            return Ok(setting::review(&self.client, &self.namespace, asked).await);
        }
        if let Some(answer) = operator::admission::review(&self.client, asked, &self.namespace).await {
            return Ok(answer);
        }
        let moves = moves::review(&self.client, asked, mutating, &self.namespace, &self.store).await?;
        if let Some(answer) = moves {
            return Ok(answer);
        }
        let answer = admission::review(asked, mutating, &installation::rules(&self.store));
        if mutating { Ok(answer) } else { addresses::review(&self.client, asked, answer).await }
    }
}

fn subject(service: &str, namespace: &str) -> Subject {
    let name = format!("{service}.{namespace}.svc");
    Subject {
        common_name: name.clone(),
        dns_names: vec![format!("{name}.cluster.local"), format!("{service}.{namespace}"), name],
        ..Subject::default()
    }
}

fn acceptor(authority: &Authority, subject: &Subject) -> Result<TlsAcceptor, Error> {
    let identity = authority.issue(subject, VALID_FOR)?;
    let chain =
        CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn accept(
    listener: &TcpListener,
    acceptor: &TlsAcceptor,
    judge: &Judge,
    connections: &mut JoinSet<()>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(converse(stream, acceptor.clone(), judge.clone()));
            }
            // Out of file descriptors, most likely: those that are open must end first.
            Err(error) => {
                tracing::warn!(%error, "a connection to the webhooks could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        // Those that are over leave nothing behind.
        while connections.try_join_next().is_some() {}
    }
}

async fn converse(stream: TcpStream, acceptor: TlsAcceptor, judge: Judge) {
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake with the webhooks failed"),
        Err(_) => return tracing::debug!("a TLS handshake with the webhooks took too long"),
    };
    let service = service_fn(move |request| answer(request, judge.clone()));
    if let Err(error) =
        Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await
    {
        tracing::debug!(error, "a connection to the webhooks ended early");
    }
}

async fn answer(request: Request<Incoming>, judge: Judge) -> Result<Response<Full<Bytes>>, Infallible> {
    let mutating = match (request.method(), request.uri().path()) {
        (&Method::POST, MUTATE) => true,
        (&Method::POST, VALIDATE) => false,
        (&Method::GET, HEALTH) => return Ok(plain(StatusCode::OK, "ok")),
        _ => return Ok(plain(StatusCode::NOT_FOUND, "no such webhook")),
    };
    let Ok(body) = Limited::new(request.into_body(), LARGEST_REVIEW).collect().await else {
        return Ok(plain(StatusCode::PAYLOAD_TOO_LARGE, "the review is too large or was cut off"));
    };
    let Ok(review) = serde_json::from_slice::<Value>(&body.to_bytes()) else {
        return Ok(plain(StatusCode::BAD_REQUEST, "this is not an AdmissionReview"));
    };
    let asked = &review["request"];
    let answer = match judge.review(asked, mutating).await {
        Ok(answer) => answer.into_review(asked),
        // The API server refuses what nobody could judge, and shows this.
        Err(error) => {
            let mut response = Response::new(Full::from(error.explain()));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            return Ok(response);
        }
    };
    let mut response = Response::new(Full::from(answer.to_string()));
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    Ok(response)
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}
