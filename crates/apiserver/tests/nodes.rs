//! Logs of and conversations with containers come from the pod's node: the server calls the kubelet where the node says that it
//! listens, over TLS that each side proves, and hands on what it says, bit by bit.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use apiserver::{ApiServer, Options};
use bytes::Bytes;
use futures::AsyncBufReadExt as _;
use http::header::{CONNECTION, UPGRADE};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use identity::{Authority, Subject};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{LogParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
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

/// A kubelet that answers with the path that it was asked for, and with 404 for a container called `gone`. Asked for the protocol
/// `echo`, it says the path, then what it hears, and when it hears no more, `bye`.
async fn kubelet(data: &Path) -> SocketAddr {
    let authority = Authority::load_or_generate(data, "ca", HOUR).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(kubelet_tls(&authority)));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let stream = acceptor.accept(stream).await.unwrap();
            let answer = hyper::service::service_fn(|mut request: Request<Incoming>| async move {
                let path = request.uri().path_and_query().unwrap().to_string();
                let mut response = Response::new(Full::new(Bytes::from(format!("first line\n{path}\n"))));
                if path.contains("/gone") {
                    *response.status_mut() = http::StatusCode::NOT_FOUND;
                } else if request.headers().get(UPGRADE).is_some_and(|protocol| protocol == "echo") {
                    *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
                    response.headers_mut().insert(UPGRADE, "echo".parse().unwrap());
                    response.headers_mut().insert(CONNECTION, "Upgrade".parse().unwrap());
                    tokio::spawn(echo(hyper::upgrade::on(&mut request), path));
                }
                Ok::<_, Infallible>(response)
            });
            let connection =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            tokio::spawn(connection.with_upgrades());
        }
    });
    address
}

async fn echo(connection: OnUpgrade, path: String) {
    let (mut from, mut to) = tokio::io::split(TokioIo::new(connection.await.unwrap()));
    to.write_all(path.as_bytes()).await.unwrap();
    tokio::io::copy(&mut from, &mut to).await.unwrap();
    to.write_all(b"bye").await.unwrap();
    to.shutdown().await.unwrap();
}

/// A server with a node, and a pod on it with the containers `compute` and `gone`.
async fn server(data: &Path) -> (ApiServer, Api<Pod>) {
    let options = Options { data: Some(data.to_owned()), ..Options::default() };
    let server = ApiServer::start(options).await.unwrap();
    let client = server.client("default");
    let kubelet = kubelet(data).await;

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
    (server, pods)
}

#[tokio::test]
async fn a_log_is_read_from_the_pods_node() {
    let data = tempfile::tempdir().unwrap();
    let (_server, pods) = server(data.path()).await;
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

/// A wish for the protocol `echo` below the pod.
fn wish(what: &str) -> Request<Body> {
    let path = format!("/api/v1/namespaces/default/pods/vm/{what}");
    let request = Request::get(path).header(UPGRADE, "echo").header(CONNECTION, "Upgrade");
    request.body(Body::empty()).unwrap()
}

async fn refusal(client: &Client, request: Request<Body>) -> (u16, String) {
    let response = client.send(request).await.unwrap();
    let code = response.status().as_u16();
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    let status: serde_json::Value = serde_json::from_slice(&body).unwrap();
    (code, status["message"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_conversation_goes_to_the_pods_node_and_its_bytes_are_not_touched() {
    let data = tempfile::tempdir().unwrap();
    let (server, _pods) = server(data.path()).await;
    let listening = server.listen((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let kubeconfig: Kubeconfig = serde_json::from_str(&listening.kubeconfig).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(listening.run(async move { drop(stopped.await) }));
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let open = async |what: &str| {
        let response = client.send(wish(what)).await.unwrap();
        assert_eq!(response.status(), http::StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(response.headers()[UPGRADE], "echo");
        TokioIo::new(hyper::upgrade::on(response).await.unwrap())
    };

    let asked = "exec?container=compute&command=sh&command=-c&command=a%26b&stdin=true&stdout=1&stderr=false";
    let mut connection = open(asked).await;
    let bytes: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    let (mut from, mut to) = tokio::io::split(&mut connection);
    let mut heard = Vec::new();
    let (sent, read) = tokio::join!(
        async {
            to.write_all(&bytes).await?;
            to.shutdown().await
        },
        from.read_to_end(&mut heard),
    );
    sent.unwrap();
    read.unwrap();
    let path = b"/exec/default/vm/compute?command=sh&command=-c&command=a%26b&input=1&output=1";
    assert!(heard == [&path[..], &bytes, b"bye"].concat(), "{} bytes came", heard.len());

    assert_eq!(refusal(&client, wish("exec?container=gone")).await.0, 404, "the kubelet's own answer");
    assert_eq!(refusal(&client, wish("exec?container=other")).await.0, 400);
    assert_eq!(refusal(&client, wish("exec")).await.0, 400, "two containers: one must be named");
    let mut plain = wish("attach?container=compute");
    plain.headers_mut().clear();
    assert_eq!(refusal(&client, plain).await, (400, "Upgrade request required".to_owned()));
    assert_eq!(refusal(&client, wish("portforward")).await.0, 404);

    // A server that stops does not wait for people to stop talking.
    let mut connection = open("attach?container=compute").await;
    stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(30), serving).await.unwrap().unwrap();
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(30), connection.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the conversation ends with the server");
}
