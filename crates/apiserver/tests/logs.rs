//! Logs come from the pod's node: the server calls the kubelet where the node says that it listens, over TLS that each
//! side proves, and hands on what it says, bit by bit.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use apiserver::{ApiServer, Options};
use bytes::Bytes;
use futures::AsyncBufReadExt as _;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use identity::{Authority, Subject};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{LogParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

const HOUR: Duration = Duration::from_hours(1);

/// A kubelet's TLS: a certificate of the cluster's authority, and no caller without one.
fn kubelet_tls(authority: &Authority) -> ServerConfig {
    let address = IpAddr::from(Ipv4Addr::LOCALHOST);
    let subject = Subject { common_name: "node-1".into(), addresses: vec![address], ..Subject::default() };
    let identity = authority.issue(&subject, HOUR).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap(),
        )
        .unwrap()
}

/// A kubelet that answers with the path that it was asked for, and with 404 for a container called `gone`.
async fn kubelet(data: &Path) -> SocketAddr {
    let authority = Authority::load_or_generate(data, "ca", HOUR).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(kubelet_tls(&authority)));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let stream = acceptor.accept(stream).await.unwrap();
            let answer = hyper::service::service_fn(|request: Request<Incoming>| async move {
                let path = request.uri().path_and_query().unwrap().to_string();
                let mut response = Response::new(Full::new(Bytes::from(format!("first line\n{path}\n"))));
                if path.contains("/gone") {
                    *response.status_mut() = http::StatusCode::NOT_FOUND;
                }
                Ok::<_, Infallible>(response)
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer),
            );
        }
    });
    address
}

#[tokio::test]
async fn a_log_is_read_from_the_pods_node() {
    let data = tempfile::tempdir().unwrap();
    let options = Options { data: Some(data.path().to_owned()), ..Options::default() };
    let server = ApiServer::start(options).await.unwrap();
    let client = server.client("default");
    let kubelet = kubelet(data.path()).await;

    let (nodes, pods): (Api<Node>, Api<Pod>) = (Api::all(client.clone()), Api::default_namespaced(client));
    let node = serde_json::from_value(json!({ "metadata": { "name": "node-1" } })).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let status = json!({ "status": {
        "addresses": [{ "type": "InternalIP", "address": kubelet.ip().to_string() }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": kubelet.port() } },
    }});
    nodes.patch_status("node-1", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let pod = json!({
        "metadata": { "name": "vm" },
        "spec": {
            "nodeName": "node-1",
            "containers": [{ "name": "compute", "image": "launcher" }, { "name": "gone", "image": "launcher" }],
        },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();

    let of = |container: &str| LogParams { container: Some(container.into()), ..LogParams::default() };
    let asked = LogParams { tail_lines: Some(5), ..of("compute") };
    let text = pods.logs("vm", &asked).await.unwrap();
    assert_eq!(text, "first line\n/containerLogs/default/vm/compute?tailLines=5\n");
    let mut lines = pods.log_stream("vm", &of("compute")).await.unwrap().lines();
    let first = futures::StreamExt::next(&mut lines).await.unwrap().unwrap();
    assert_eq!(first, "first line");

    let code = |result: kube::Result<String>| match result {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("{other:?}"),
    };
    assert_eq!(code(pods.logs("vm", &LogParams::default()).await), 400, "two containers: one must be named");
    assert_eq!(code(pods.logs("vm", &of("other")).await), 400);
    assert_eq!(code(pods.logs("vm", &of("gone")).await), 404, "the kubelet's own answer is handed on");
    assert_eq!(code(pods.logs("nobody", &of("compute")).await), 404);
}
