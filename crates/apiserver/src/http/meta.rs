//! Requests that are about the server, not about an object: version, health, discovery, OpenAPI.

use http::StatusCode;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::negotiate::aggregated_discovery;
use super::path::Route;
use super::reply::{Body, Reply};
use crate::registry::Registry;
use crate::status::{ApiError, ApiResult};
use crate::{discovery, openapi};

/// Probes and the version answer without credentials: they tell nothing of what is stored.
pub(super) fn public(path: &str) -> Option<Reply> {
    match path {
        "/healthz" | "/livez" | "/readyz" => {
            Some(Reply::bytes(StatusCode::OK, "text/plain; charset=utf-8", "ok"))
        }
        "/version" => Some(Reply::json(StatusCode::OK, &version())),
        _ => None,
    }
}

pub(super) fn answer(registry: &Registry, route: &Route, accept: &str, known: &str) -> ApiResult<Reply> {
    if *route == Route::OpenApiV2 && accept.contains(OPENAPI_V2_PROTOBUF) {
        return Ok(Reply::bytes(StatusCode::OK, OPENAPI_V2_PROTOBUF_ANSWER, NO_DEFINITIONS));
    }
    let kinds = registry.kinds.load();
    let found = |value: Option<Value>| value.map(json_type).ok_or_else(ApiError::no_such_resource);
    let (value, content_type) = match route {
        Route::Groups { core } => match aggregated_discovery(accept) {
            Some("v2") => (
                discovery::aggregated(&kinds, *core, "v2"),
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            ),
            Some(_) => (
                discovery::aggregated(&kinds, *core, "v2beta1"),
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
            ),
            _ if *core => json_type(discovery::core_versions(&registry.address())),
            _ => json_type(discovery::group_list(&kinds)),
        },
        Route::Group(group) => found(discovery::group(&kinds, group))?,
        Route::GroupVersion { group, version } => found(discovery::resource_list(&kinds, group, version))?,
        Route::OpenApiV2 => json_type(
            json!({ "swagger": "2.0", "info": { "title": "Kubernetes", "version": "v1.36.4" }, "paths": {} }),
        ),
        // The real server names no type, and its framework takes JSON for text.
        Route::OpenApiIndex => (openapi::index(&kinds), "text/plain; charset=utf-8"),
        Route::OpenApi(path) => match openapi::document(&kinds, path) {
            Some(document) => json_type(document),
            None => return Ok(Reply::nothing(StatusCode::NOT_FOUND)),
        },
        Route::Resource(_) => return Err(ApiError::no_such_resource()),
    };
    let body = value.to_string();
    let etag =
        Sha256::digest(&body).iter().take(16).fold(String::new(), |text, byte| format!("{text}{byte:02X}"));
    let unchanged = known.trim_matches('"') == etag;
    let mut reply =
        Reply::bytes(if unchanged { StatusCode::NOT_MODIFIED } else { StatusCode::OK }, content_type, body);
    if unchanged {
        reply.body = Body::empty();
    }
    reply.etag = Some(etag);
    Ok(reply)
}

/// Everything is described in version 3; here is only said that there is nothing.
const NO_DEFINITIONS: &[u8] = b"\x0a\x032.0\x12\x15\x0a\x0aKubernetes\x12\x07v1.36.4";
const OPENAPI_V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const OPENAPI_V2_PROTOBUF_ANSWER: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

fn json_type(value: Value) -> (Value, &'static str) {
    (value, "application/json")
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": concat!("v1.36.4+godwit-", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "rustc",
        "platform": "linux/amd64", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
    })
}
