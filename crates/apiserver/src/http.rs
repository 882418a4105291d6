//! The HTTP face: one request in, one response out.
//!
//! A `tower::Service`, so that a client in this process calls it without a socket and `serve` puts it behind TLS. This
//! module authenticates, routes and encodes; what a request means is the registry's business.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::upgrade::OnUpgrade;

use crate::auth::User;
use crate::registry::{Registry, Verb};
use crate::status::{ApiError, ApiResult};

pub mod negotiate;
pub mod path;
pub mod query;
pub mod reply;

mod meta;

pub use reply::Body;

use path::Route;
use reply::Reply;

/// What the real server accepts at most.
const MAX_BODY: usize = 3 << 20;

/// The service of one user: cheap to clone.
#[derive(Clone)]
pub struct Service {
    registry: Arc<Registry>,
    /// Who calls when the request itself carries no credentials.
    caller: Option<Arc<User>>,
}

/// A request as handlers see it.
pub struct Call {
    pub route: path::Resource,
    pub verb: Verb,
    pub query: query::Query,
    pub accept: negotiate::Accept,
    pub content_type: String,
    pub user_agent: String,
    pub user: Arc<User>,
    pub body: Bytes,
    pub upgrade: Option<Upgrade>,
}

/// The wish to go on in another protocol on the same connection.
pub struct Upgrade {
    /// Which protocol, and what it needs to begin.
    pub headers: HeaderMap,
    /// The connection, once it is answered with 101. A caller in this process has none, and HTTP/2 cannot give one.
    pub connection: Option<OnUpgrade>,
}

impl Upgrade {
    fn asked(parts: &mut http::request::Parts) -> Option<Self> {
        parts.headers.get(header::UPGRADE)?;
        let connection = parts.extensions.remove();
        Some(Self { headers: switching(&parts.headers), connection })
    }
}

/// Of these headers, those that are about the change of protocol: WebSocket's, and SPDY's as clients of Kubernetes use it.
pub(crate) fn switching(headers: &HeaderMap) -> HeaderMap {
    let is_one = |name: &str| {
        matches!(name, "upgrade" | "connection" | "x-stream-protocol-version")
            || name.starts_with("sec-websocket-")
    };
    let chosen = headers.iter().filter(|(name, _)| is_one(name.as_str()));
    chosen.map(|(name, value)| (name.clone(), value.clone())).collect()
}

impl Service {
    pub(crate) fn new(registry: Arc<Registry>, caller: Option<Arc<User>>) -> Self {
        Self { registry, caller }
    }

    /// The same server for another caller.
    #[must_use]
    pub fn with_caller(&self, caller: Option<Arc<User>>) -> Self {
        Self { registry: self.registry.clone(), caller }
    }

    async fn answer<B>(self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        match self.handle(request).await {
            Ok(reply) => reply.into_response(),
            Err(error) => Reply::error(&error).into_response(),
        }
    }

    async fn handle<B>(self, request: Request<B>) -> ApiResult<Reply>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (mut parts, body) = request.into_parts();
        let upgrade = Upgrade::asked(&mut parts);
        let text = |name: header::HeaderName| {
            parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let reads = parts.method == Method::GET || parts.method == Method::HEAD;
        if let Some(reply) = meta::public(parts.uri.path()) {
            return if reads { Ok(reply) } else { Err(ApiError::method_not_allowed()) };
        }
        let user = self.registry.caller(&parts.headers, self.caller.as_ref())?;
        let accept = text(header::ACCEPT);
        let route = path::parse(parts.uri.path())?;
        let query = query::Query::parse(parts.uri.query().unwrap_or_default());
        let route = match route {
            Route::Resource(route) => route,
            other => {
                if !reads {
                    return Err(ApiError::method_not_allowed());
                }
                return meta::answer(&self.registry, &other, &accept, &text(header::IF_NONE_MATCH));
            }
        };
        let body = Limited::new(body, MAX_BODY).collect().await.map_err(|cause| {
            if cause.is::<http_body_util::LengthLimitError>() {
                ApiError::too_large()
            } else {
                ApiError::bad_request(format!("reading the request's body failed: {cause}"))
            }
        })?;
        let verb = verb(&parts.method, &route, &query)?;
        let call = Call {
            accept: negotiate::Accept::parse(&accept)?,
            content_type: text(header::CONTENT_TYPE),
            user_agent: text(header::USER_AGENT),
            route,
            verb,
            query,
            user,
            body: body.to_bytes(),
            upgrade,
        };
        self.registry.handle(call).await
    }
}

fn verb(method: &Method, route: &path::Resource, query: &query::Query) -> ApiResult<Verb> {
    Ok(match (method.as_str(), route.name.is_some()) {
        ("GET" | "HEAD", true) if query.flag("watch") && route.subresource.is_empty() => Verb::Watch,
        ("GET" | "HEAD", true) => Verb::Get,
        ("GET" | "HEAD", false) if query.flag("watch") => Verb::Watch,
        ("GET" | "HEAD", false) => Verb::List,
        ("POST", false) => Verb::Create,
        ("POST", true) if !route.subresource.is_empty() => Verb::Create,
        ("PUT", true) => Verb::Update,
        ("PATCH", true) => Verb::Patch,
        ("DELETE", true) => Verb::Delete,
        ("DELETE", false) => Verb::DeleteCollection,
        _ => return Err(ApiError::method_not_allowed()),
    })
}

impl<B> tower::Service<Request<B>> for Service
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        let head = request.method() == Method::HEAD;
        Box::pin(async move {
            let mut response = service.answer(request).await;
            if head {
                *response.body_mut() = Body::empty();
            }
            Ok(response)
        })
    }
}

/// The status of a reply that carries an object.
pub(crate) fn status(created: bool) -> StatusCode {
    if created { StatusCode::CREATED } else { StatusCode::OK }
}
