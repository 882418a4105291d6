//! The way to a node's kubelet, for logs. Kubernetes does the same: the node says in its status where it listens.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, BodyStream, Empty};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::http::query::Query;
use crate::http::reply::Reply;
use crate::object;
use crate::status::{ApiError, ApiResult};

/// Calls kubelets with the server's own client certificate.
#[derive(Clone)]
pub struct NodeClient {
    tls: Arc<ClientConfig>,
}

impl NodeClient {
    pub fn new(tls: Arc<ClientConfig>) -> Self {
        Self { tls }
    }

    pub(super) async fn log(
        &self,
        node: &Value,
        pod: &Value,
        container: &str,
        query: &Query,
    ) -> ApiResult<Reply> {
        let options =
            ["follow", "tailLines", "previous", "timestamps", "sinceSeconds", "sinceTime", "limitBytes"]
                .into_iter()
                .filter_map(|name| query.get(name).map(|value| (name, value)));
        let options = form_urlencoded::Serializer::new(String::new()).extend_pairs(options).finish();
        let path =
            format!("/containerLogs/{}/{}/{container}?{options}", object::namespace(pod), object::name(pod));
        let unreachable = |cause: &dyn std::fmt::Display| {
            ApiError::internal(format!("reading the log from node {} failed: {cause}", object::name(node)))
        };
        let address = kubelet_address(node)
            .ok_or_else(|| unreachable(&"the node's status gives no address and kubelet port"))?;
        let response = self.get(address, &path).await.map_err(|cause| unreachable(&cause))?;
        let status = response.status();
        if !status.is_success() {
            let body = response.into_body().collect().await.map_err(|cause| unreachable(&cause))?.to_bytes();
            let text = String::from_utf8_lossy(&body).trim().to_owned();
            return Err(ApiError::new(
                status.as_u16(),
                if status == StatusCode::NOT_FOUND { "NotFound" } else { "BadRequest" },
                text,
            ));
        }
        let pieces = BodyStream::new(response.into_body())
            .filter_map(|frame| std::future::ready(frame.ok().and_then(|frame| frame.into_data().ok())));
        Ok(Reply::stream("text/plain", Box::pin(pieces)))
    }

    async fn get(
        &self,
        address: SocketAddr,
        path: &str,
    ) -> Result<http::Response<hyper::body::Incoming>, Box<dyn std::error::Error + Send + Sync>> {
        let tcp = tokio::net::TcpStream::connect(address).await?;
        let tls = tokio_rustls::TlsConnector::from(self.tls.clone());
        let stream = tls.connect(ServerName::from(address.ip()), tcp).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::get(path).header("host", address.to_string()).body(Empty::<Bytes>::new())?;
        Ok(sender.send_request(request).await?)
    }
}

fn kubelet_address(node: &Value) -> Option<SocketAddr> {
    let status = &node["status"];
    let port = u16::try_from(status["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64()?).ok()?;
    let addresses = status["addresses"].as_array()?;
    let internal = addresses.iter().find(|address| address["type"] == "InternalIP")?;
    Some(SocketAddr::new(internal["address"].as_str()?.parse().ok()?, port))
}
