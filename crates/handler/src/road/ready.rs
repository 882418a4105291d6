//! Whether this pod is what it was made for, for those who roll handlers out: HTTP on the pod's address.
//!
//! A pod is made for the network in its template. While the `KubeVirt` object names another one, guest memory takes no road from
//! here, and yet the pod is ready: what it lacks is its successor. Otherwise a change would make every handler unready at once,
//! and nobody could tell a bad one.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::Unavailable;

const READY: &str = "/readyz";
const ALIVE: &str = "/healthz";
/// How soon an address that cannot be listened on is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Who asks says so at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers until dropped.
pub async fn serve(address: SocketAddr, readiness: watch::Receiver<Result<(), Unavailable>>) {
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => accept(&listener, &readiness).await,
            Err(error) => {
                tracing::warn!(%address, %error, "nobody can ask whether the handler is ready; trying again");
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Returns when the socket is of no use any more.
async fn accept(listener: &TcpListener, readiness: &watch::Receiver<Result<(), Unavailable>>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => _ = connections.spawn(converse(stream, readiness.clone())),
            Err(error) => return tracing::warn!(%error, "a question whether the handler is ready was lost"),
        }
        // Those that are over leave nothing behind.
        while connections.try_join_next().is_some() {}
    }
}

async fn converse(stream: TcpStream, readiness: watch::Receiver<Result<(), Unavailable>>) {
    let answer = service_fn(move |request| {
        let answer = answer(&request, &readiness.borrow());
        async { Ok::<_, Infallible>(answer) }
    });
    let conversation = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    if let Err(error) = conversation.await {
        tracing::debug!(%error, "a question whether the handler is ready ended early");
    }
}

fn answer(request: &Request<Incoming>, readiness: &Result<(), Unavailable>) -> Response<Full<Bytes>> {
    let (status, text) = match (request.uri().path(), readiness) {
        (ALIVE, _) | (READY, Ok(())) => (StatusCode::OK, "ok".to_owned()),
        (READY, Err(why)) => (StatusCode::SERVICE_UNAVAILABLE, why.to_string()),
        _ => (StatusCode::NOT_FOUND, "no such page".to_owned()),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}
