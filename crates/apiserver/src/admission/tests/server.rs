//! A webhook server over real HTTPS on loopback: the path says how it behaves.
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// The webhook server, and every request that it was sent, with its path.
pub struct Server {
    pub address: SocketAddr,
    pub ca_bundle: String,
    seen: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Server {
    /// With a certificate of an authority, as it should be.
    pub async fn start() -> Self {
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::new(vec![]).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
        let issuer = Issuer::new(ca, ca_key);
        let key = KeyPair::generate().unwrap();
        let certificate = params().signed_by(&key, &issuer).unwrap();
        Self::serve(&certificate, &key, &ca_pem).await
    }

    /// With a certificate that calls itself an authority and is its own, as quick scripts make them.
    pub async fn start_self_signed() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = params();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let pem = certificate.pem();
        Self::serve(&certificate, &key, &pem).await
    }

    async fn serve(certificate: &Certificate, key: &KeyPair, ca_pem: &str) -> Self {
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        tokio::spawn(async move {
            let acceptor = TlsAcceptor::from(Arc::new(config));
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, log) = (acceptor.clone(), Arc::clone(&log));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = service_fn(|request| respond(request, &log));
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, ca_bundle: STANDARD.encode(ca_pem), seen }
    }

    pub fn client_config(&self, path: &str) -> Value {
        json!({"url": format!("https://{}{path}", self.address), "caBundle": self.ca_bundle})
    }

    /// The paths that were called, in order.
    pub fn calls(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|(path, _)| path.clone()).collect()
    }

    /// The `request` of the latest review.
    pub fn last_request(&self) -> Value {
        self.seen.lock().unwrap().last().unwrap().1.clone()
    }
}

fn params() -> CertificateParams {
    CertificateParams::new(vec!["127.0.0.1".into(), "hook.lab.svc".into()]).unwrap()
}

async fn respond(
    request: Request<Incoming>,
    log: &Mutex<Vec<(String, Value)>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut review: Value = serde_json::from_slice(&body).unwrap();
    let asked = review["request"].take();
    log.lock().unwrap().push((path.clone(), asked.clone()));
    if path == "/slow" {
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let status = if path == "/500" { 500 } else { 200 };
    let body = if path == "/garbage" {
        "hello".to_owned()
    } else {
        let mut response = answer(&path, &asked);
        if !response.is_null() && response.get("uid").is_none() {
            response["uid"] = asked["uid"].clone();
        }
        let review =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        review.to_string()
    };
    Ok(Response::builder().status(status).body(Full::from(body)).unwrap())
}

fn answer(path: &str, request: &Value) -> Value {
    let patch = |patch: Value| json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string())});
    match path {
        "/warn" => json!({"allowed": true, "warnings": ["careful"]}),
        "/deny" => json!({"allowed": false}),
        "/deny-why" => json!({"allowed": false, "status": {"message": "no way", "code": 200,
            "details": {"causes": [{"message": "m", "field": "f", "reason": "FieldValueInvalid"}]}}}),
        "/deny-reason" => json!({"allowed": false, "status": {"reason": "Forbidden", "code": 451}}),
        "/grow" => {
            let size = request["object"]["spec"]["size"].as_i64().unwrap_or(0);
            patch(json!([{"op": "replace", "path": "/spec/size", "value": size + 1}]))
        }
        "/nothing" => patch(json!([])),
        "/bad-patch" => patch(json!([{"op": "remove", "path": "/nope/x"}])),
        "/bad-json" => json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode("zz")}),
        "/no-type" => json!({"allowed": true, "patch": STANDARD.encode("[]")}),
        "/wrong-uid" => json!({"uid": "x", "allowed": true}),
        "/absent" => Value::Null,
        _ => json!({"allowed": true}),
    }
}
