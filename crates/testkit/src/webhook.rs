//! An admission webhook on loopback: HTTPS with a certificate of its own, answers by a closure, and a record of what it was asked.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;

type Answer = dyn Fn(&Value) -> Value + Send + Sync;

/// A running webhook; it stops when dropped.
pub struct Webhook {
    url: String,
    ca_bundle: String,
    asked: Arc<Mutex<Vec<Value>>>,
    serving: AbortHandle,
}

impl Webhook {
    /// Serves; `answer` gets the `request` of a review and gives its `response`, to which the uid is added.
    pub async fn serve(answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        Self::serve_on(listener, answer)
    }

    /// The same on a loopback socket that listens already, perhaps in another network namespace.
    pub fn serve_on(listener: TcpListener, answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        let key = KeyPair::generate().expect("a key");
        let certificate = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()])
            .and_then(|params| params.self_signed(&key))
            .expect("a certificate");
        let private = PrivateKeyDer::try_from(key.serialize_der()).expect("a private key");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| {
                config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], private)
            })
            .expect("a TLS configuration");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let url = format!("https://{}/", listener.local_addr().expect("a bound address"));

        let asked = Arc::new(Mutex::new(Vec::new()));
        let answer: Arc<Answer> = Arc::new(answer);
        let record = Arc::clone(&asked);
        let serving = tokio::spawn(async move {
            // Ends with this task: a stopped webhook answers on no connection.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer, record) = (acceptor.clone(), Arc::clone(&answer), Arc::clone(&record));
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = service_fn(|request| review(request, &answer, &record));
                    // The API server hangs up as it likes.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        })
        .abort_handle();
        Self { url, ca_bundle: BASE64_STANDARD.encode(certificate.pem()), asked, serving }
    }

    /// For the `clientConfig` of a webhook configuration.
    pub fn client_config(&self) -> Value {
        json!({"url": self.url, "caBundle": self.ca_bundle})
    }

    /// Every request so far, in order.
    pub fn asked(&self) -> Vec<Value> {
        self.asked.lock().expect("no answer panicked").clone()
    }
}

async fn review(
    request: Request<Incoming>,
    answer: &Arc<Answer>,
    record: &Mutex<Vec<Value>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
    let review: Value = body.ok().and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or_default();
    let asked = &review["request"];
    record.lock().expect("no answer panicked").push(asked.clone());
    let mut response = answer(asked);
    response["uid"] = asked["uid"].clone();
    let review =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Ok(Response::builder()
        .header("content-type", "application/json")
        .body(Full::from(review.to_string()))
        .expect("a well-formed answer"))
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
