//! The way to a node's kubelet, for logs and for conversations with containers. Kubernetes does the same: the node says in its
//! status where it listens.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, BodyStream, Empty};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::sync::watch;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::Verb;
use super::connect::Place;
use crate::http::query::Query;
use crate::http::reply::Reply;
use crate::http::{Upgrade, switching};
use crate::object;
use crate::status::{ApiError, ApiResult};

/// How long a node may take until it begins to answer.
const PATIENCE: Duration = Duration::from_secs(15);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Calls kubelets with the server's own client certificate.
#[derive(Clone)]
pub struct NodeClient {
    tls: Arc<ClientConfig>,
}

impl NodeClient {
    pub fn new(tls: Arc<ClientConfig>) -> Self {
        Self { tls }
    }

    pub(super) async fn log(&self, place: &Place, query: &Query) -> ApiResult<Reply> {
        let options =
            ["follow", "tailLines", "previous", "timestamps", "sinceSeconds", "sinceTime", "limitBytes"]
                .into_iter()
                .filter_map(|name| query.get(name).map(|value| (name, value)));
        let options = form_urlencoded::Serializer::new(String::new()).extend_pairs(options).finish();
        let path = format!("{}?{options}", place.path("containerLogs"));
        let response = self.ask(place, Method::GET, &path, &HeaderMap::new()).await?;
        if !response.status().is_success() {
            return Err(refusal(place, response).await);
        }
        let pieces = BodyStream::new(response.into_body())
            .filter_map(|frame| std::future::ready(frame.ok().and_then(|frame| frame.into_data().ok())));
        Ok(Reply::stream("text/plain", Box::pin(pieces)))
    }

    /// Has the node change the protocol, and then joins the caller's connection with the node's until either ends.
    pub(super) async fn connect(
        &self,
        place: &Place,
        verb: Verb,
        path: &str,
        upgrade: &Upgrade,
        stopping: watch::Receiver<bool>,
    ) -> ApiResult<Reply> {
        let method = if verb == Verb::Create { Method::POST } else { Method::GET };
        let Some(caller) = upgrade.connection.clone() else {
            return Err(ApiError::bad_request(
                "a conversation with a container needs a connection of its own, by HTTP/1.1",
            ));
        };
        let mut response = self.ask(place, method, path, &upgrade.headers).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(refusal(place, response).await);
        }
        let node = hyper::upgrade::on(&mut response);
        tokio::spawn(join(caller, node, stopping));
        Ok(Reply::switching(switching(response.headers())))
    }

    async fn ask(
        &self,
        place: &Place,
        method: Method,
        path: &str,
        headers: &HeaderMap,
    ) -> ApiResult<Response<Incoming>> {
        let failed = |cause: &dyn std::fmt::Display| unreachable(place, cause);
        let address = kubelet_address(&place.node)
            .ok_or_else(|| failed(&"its status gives no address and kubelet port"))?;
        let answer = self.call(address, method, path, headers);
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(answer) => answer.map_err(|cause| failed(&cause)),
            Err(_) => Err(failed(&format!("it did not answer within {} s", PATIENCE.as_secs()))),
        }
    }

    async fn call(
        &self,
        address: SocketAddr,
        method: Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Response<Incoming>, BoxError> {
        let tcp = tokio::net::TcpStream::connect(address).await?;
        // A key that is pressed is one small packet.
        tcp.set_nodelay(true)?;
        let tls = tokio_rustls::TlsConnector::from(self.tls.clone());
        let stream = tls.connect(ServerName::from(address.ip()), tcp).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection.with_upgrades());
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.method_mut() = method;
        *request.uri_mut() = path.parse()?;
        *request.headers_mut() = headers.clone();
        request.headers_mut().insert(http::header::HOST, address.to_string().parse()?);
        Ok(sender.send_request(request).await?)
    }
}

/// Moves bytes both ways until both ends are done, one fails, or this server stops.
async fn join(caller: OnUpgrade, node: OnUpgrade, mut stopping: watch::Receiver<bool>) {
    let joined = async {
        let (caller, node) = tokio::try_join!(caller, node)?;
        tokio::io::copy_bidirectional(&mut TokioIo::new(caller), &mut TokioIo::new(node)).await?;
        Ok::<_, BoxError>(())
    };
    tokio::select! {
        ended = joined => if let Err(cause) = ended {
            // Both connections are closed by it, which is how each side learns of the other's end.
            tracing::debug!(%cause, "a conversation with a container was cut");
        },
        _ = stopping.wait_for(|stopping| *stopping) => {}
    }
}

fn unreachable(place: &Place, cause: &dyn std::fmt::Display) -> ApiError {
    ApiError::internal(format!("asking node {} failed: {cause}", object::name(&place.node)))
}

/// What the node itself says against it.
async fn refusal(place: &Place, response: Response<Incoming>) -> ApiError {
    let status = response.status();
    let body = match response.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(cause) => return unreachable(place, &cause),
    };
    let text = String::from_utf8_lossy(&body).trim().to_owned();
    let (code, reason) = match status {
        StatusCode::NOT_FOUND => (404, "NotFound"),
        status if status.is_client_error() => (status.as_u16(), "BadRequest"),
        // Also an answer that nobody expected: that it is no success is all that is known of it.
        _ => (500, "InternalError"),
    };
    ApiError::new(code, reason, text)
}

fn kubelet_address(node: &Value) -> Option<SocketAddr> {
    let status = &node["status"];
    let port = u16::try_from(status["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64()?).ok()?;
    let addresses = status["addresses"].as_array()?;
    let internal = addresses.iter().find(|address| address["type"] == "InternalIP")?;
    Some(SocketAddr::new(internal["address"].as_str()?.parse().ok()?, port))
}
