//! Whole requests through the service of a server in memory. Input: a line `METHOD PATH`, lines `header: value`, an
//! empty line, the body.
#![allow(clippy::panic, reason = "a target that cannot start must say so")]

use std::sync::LazyLock;
use std::time::Duration;

use apiserver::auth::User;
use apiserver::http::Service;
use apiserver::{ApiServer, Options};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use tower::ServiceExt as _;

static SERVER: LazyLock<(tokio::runtime::Runtime, ApiServer, Service)> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.unwrap_or_else(|cause| panic!("no runtime: {cause}"));
    let started = runtime.block_on(ApiServer::start(Options::default()));
    let server = started.unwrap_or_else(|cause| panic!("no server: {cause}"));
    let service = server.service(User::admin());
    (runtime, server, service)
});

/// The first piece of a watch is enough: it would go on for half an hour.
const PATIENCE: Duration = Duration::from_millis(20);

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some(request) = request(data) else { return };
    let (runtime, _, service) = &*SERVER;
    runtime.block_on(async {
        let Ok(response) = service.clone().oneshot(request).await;
        assert!(response.status().as_u16() >= 200);
        let mut body = response.into_body();
        while let Ok(Some(Ok(_))) = tokio::time::timeout(PATIENCE, body.frame()).await {}
    });
}

fn request(data: &[u8]) -> Option<Request<Full<Bytes>>> {
    let end = data.windows(2).position(|pair| pair == b"\n\n").unwrap_or(data.len());
    let head = std::str::from_utf8(&data[..end]).ok()?;
    let body = data.get(end + 2..).unwrap_or_default();
    let mut lines = head.lines();
    let (method, path) = lines.next()?.split_once(' ')?;
    // A revision from the future is waited for, as on the real server: that is slow, and nothing to learn.
    if path.contains("resourceVersion") {
        return None;
    }
    let mut request = Request::builder().method(method).uri(path);
    for line in lines {
        let (name, value) = line.split_once(':')?;
        request = request.header(name.trim(), value.trim());
    }
    request.body(Full::new(Bytes::copy_from_slice(body))).ok()
}
