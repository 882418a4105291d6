//! One line to the API server for all plugins of a node.
//!
//! A plugin lives for a few milliseconds, and would spend most of them on proving to the API server who it is. The pod that installs it
//! stays, and keeps its connections: what a plugin asks through the keeper's socket, which root alone can use, is passed on and answered.
//! Nothing is decided here, nothing is tried again. A plugin that finds no keeper asks the API server itself; and to one whose answer is
//! lost it makes no difference who lost it.

use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::net::{UnixListener, UnixStream};

use crate::error::with_causes;

/// The socket, beside the plugin's kubeconfig.
pub const SOCKET: &str = "keeper.sock";
/// A plugin writes objects of a few hundred bytes.
const REQUEST_MAX: usize = 1 << 20;

/// Answers plugins, until it cannot.
pub async fn serve(socket: &Path, client: Client) -> io::Result<Infallible> {
    match fs::remove_file(socket) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    fs::set_permissions(socket, Permissions::from_mode(0o600))?;
    loop {
        let (plugin, _) = listener.accept().await?;
        tokio::spawn(answer(plugin, client.clone()));
    }
}

async fn answer(plugin: UnixStream, client: Client) {
    let service = service_fn(|request| pass_on(&client, request));
    // It breaks when the plugin is gone: there is nobody to tell.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(plugin), service).await;
}

async fn pass_on(client: &Client, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let answered = match understood(request).await {
        Ok(request) => client.send(request).await.map_err(|cause| with_causes(&cause).join(": ")),
        Err(cause) => Err(cause.to_string()),
    };
    Ok(answered.unwrap_or_else(|cause| {
        let message = format!("the API server was not reached by the keeper of this node: {cause}");
        let mut failure = Response::new(Body::from(json!({ "message": message }).to_string().into_bytes()));
        *failure.status_mut() = StatusCode::BAD_GATEWAY;
        failure
    }))
}

/// All of it, as the client wants it: it knows itself whom it asks.
async fn understood(
    request: Request<Incoming>,
) -> Result<Request<Body>, Box<dyn std::error::Error + Send + Sync>> {
    let (mut parts, body) = request.into_parts();
    parts.headers.remove(HOST);
    let body = Limited::new(body, REQUEST_MAX).collect().await?.to_bytes();
    Ok(Request::from_parts(parts, Body::from(body)))
}
