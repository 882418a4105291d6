//! HTTP on one address: numbers, readiness, life. It reads nothing but the path, and keeps no connection.
//!
//! Without TLS and without asking who it is, as the kubelet's probes need it: what is shown are names of machines and how far they are,
//! no secret. Who must not see that is kept away by the network.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::Numbers;

/// Whether the process answers at all.
pub const ALIVE: &str = "/healthz";
/// Whether it can do what it is for; if not, why.
pub const READY: &str = "/readyz";
/// Its numbers.
pub const METRICS: &str = "/metrics";

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
/// How soon an address that cannot be listened on is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Who asks says so at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many ask at a time; more wait in the kernel.
const MOST: usize = 64;

/// What is to be seen of a part.
pub struct Pages {
    /// Nothing, or what is missing.
    pub ready: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
    pub numbers: Numbers,
}

/// Shows the pages until dropped.
pub async fn serve(address: SocketAddr, pages: Pages) {
    let pages = Arc::new(pages);
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => accept(&listener, &pages).await,
            Err(error) => {
                tracing::warn!(%address, %error, "nobody can ask how this part is; trying again");
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Returns when the socket is of no use any more.
async fn accept(listener: &TcpListener, pages: &Arc<Pages>) {
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => _ = connections.spawn(converse(stream, Arc::clone(pages))),
            Err(error) => return tracing::warn!(%error, "a question how this part is was lost"),
        }
        // Those that are over leave nothing behind.
        while connections.try_join_next().is_some() {}
        if connections.len() >= MOST {
            _ = connections.join_next().await;
        }
    }
}

async fn converse(stream: TcpStream, pages: Arc<Pages>) {
    let answer = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let answer = pages.answer(request.uri().path());
        async { Ok::<_, Infallible>(answer) }
    });
    let conversation = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    match tokio::time::timeout(2 * PATIENCE, conversation).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a question how this part is ended early"),
        Err(_) => tracing::debug!("a question how this part is took too long"),
    }
}

impl Pages {
    fn answer(&self, path: &str) -> Response<Full<Bytes>> {
        let (status, type_, text) = match path {
            ALIVE => (StatusCode::OK, TEXT, "ok".to_owned()),
            READY => match (self.ready)() {
                Ok(()) => (StatusCode::OK, TEXT, "ok".to_owned()),
                Err(why) => (StatusCode::SERVICE_UNAVAILABLE, TEXT, why),
            },
            METRICS => match self.numbers.text() {
                Ok(text) => (StatusCode::OK, OPEN_METRICS, text),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, TEXT, error.to_string()),
            },
            _ => (StatusCode::NOT_FOUND, TEXT, "no such page".to_owned()),
        };
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, type_);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_says_what_it_is_for() {
        let ready = Box::new(|| Err("the road is closed".to_owned()));
        let pages = Pages { ready, numbers: Numbers::default() };
        for (path, status) in [(ALIVE, 200), (READY, 503), (METRICS, 200), ("/", 404)] {
            assert_eq!(pages.answer(path).status(), status, "{path}");
        }
        assert_eq!(pages.answer(METRICS).headers()[CONTENT_TYPE], OPEN_METRICS);
    }
}
