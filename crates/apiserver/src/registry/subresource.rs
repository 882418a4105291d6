//! Subresources: which there are, and who answers them.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::modify::Changed;
use super::write::Intent;
use super::{Registry, Verb, present};
use crate::http::Call;
use crate::http::reply::Reply;
use crate::kinds::{Kind, Scale};
use crate::status::{ApiError, ApiResult};
use crate::{body, object, patch};

impl Registry {
    pub(super) async fn subresource(&self, call: &Call, kind: &Arc<Kind>) -> ApiResult<Reply> {
        let name = call.route.subresource.as_str();
        match name {
            "status" if kind.status => self.object_verbs(call, kind).await,
            "scale" if kind.scale.is_some() => self.scale(call, kind).await,
            _ if kind.custom.is_some() => Err(kind.not_found(call.route.name())),
            _ if !kind.subresources.contains(&name) => Err(ApiError::not_served()),
            "binding" => self.bind(call, kind).await,
            "eviction" => self.evict(call, kind).await,
            "log" => self.log(call, kind).await,
            "exec" | "attach" => self.connect(call, kind).await,
            "token" => self.token(call, kind),
            // These write parts of the object itself.
            "finalize" | "approval" => self.object_verbs(call, kind).await,
            _ => Err(ApiError::not_served()),
        }
    }

    async fn object_verbs(&self, call: &Call, kind: &Arc<Kind>) -> ApiResult<Reply> {
        match call.verb {
            Verb::Get => self.get(call, kind).await,
            Verb::Update => self.replace(call, kind).await,
            Verb::Patch => self.patch(call, kind).await,
            _ => Err(unsupported(call, kind)),
        }
    }

    /// `/scale` shows and sets the number of replicas, wherever the kind keeps it.
    async fn scale(&self, call: &Call, kind: &Arc<Kind>) -> ApiResult<Reply> {
        let Some(scale) = &kind.scale else { return Err(ApiError::no_such_resource()) };
        let live = present(kind, &*self.stored(kind, call.route.namespace(), call.route.name())?);
        if call.verb == Verb::Get {
            let path = &scale.spec_replicas;
            if object::at_path(&live, path).is_none() {
                return Err(ApiError::internal(format!("the spec replicas field {path:?} does not exist")));
            }
            return Ok(Reply::json(StatusCode::OK, &scale_of(scale, &live)));
        }
        if !matches!(call.verb, Verb::Update | Verb::Patch) {
            return Err(unsupported(call, kind));
        }
        let intent = Intent::new(self, call, kind)?;
        let decoded = body::decode(&call.content_type, &call.body)?.value;
        let outcome = self
            .modify(&intent, &|old| {
                let shown = scale_of(scale, old);
                let wanted = wanted_scale(call, &shown, &decoded)?;
                let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or_default();
                // A custom resource is judged as a whole, when it has the number.
                if replicas < 0 && kind.custom.is_none() {
                    let error = crate::status::FieldError::invalid(
                        "spec.replicas",
                        &json!(replicas),
                        "must be greater than or equal to 0",
                    );
                    return Err(ApiError::invalid("autoscaling", "Scale", object::name(old), vec![error]));
                }
                let mut object = old.clone();
                object::set_path(&mut object, &scale.spec_replicas, replicas.into());
                let asked = object::meta_str(&wanted, "resourceVersion");
                if !asked.is_empty() {
                    object::set_meta(&mut object, "resourceVersion", asked.into());
                }
                Ok(Changed::to(object))
            })
            .await?;
        Ok(Reply::json(StatusCode::OK, &scale_of(scale, &outcome.object)).with_warnings(outcome.warnings))
    }
}

fn wanted_scale(call: &Call, shown: &Value, sent: &Value) -> ApiResult<Value> {
    let media = call.content_type.split(';').next().unwrap_or_default();
    match (call.verb, media) {
        (Verb::Update, _) => Ok(sent.clone()),
        (Verb::Patch, "application/json-patch+json") => patch::json(shown, sent),
        // A Scale has no lists: strategic, merge and apply come to the same.
        _ => {
            let mut wanted = shown.clone();
            patch::merge(&mut wanted, sent);
            Ok(wanted)
        }
    }
}

/// A built-in has no such endpoint; a custom resource's takes the request and declines it.
fn unsupported(call: &Call, kind: &Kind) -> ApiError {
    if kind.custom.is_some() {
        ApiError::method_not_supported(&kind.group, &kind.plural, call.verb.name())
    } else {
        ApiError::method_not_allowed()
    }
}

fn scale_of(scale: &Scale, object: &Value) -> Value {
    let number = |path: &str| object::at_path(object, path).and_then(Value::as_i64).unwrap_or_default();
    let mut meta = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            meta[field] = value.clone();
        }
    }
    let mut shown = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta,
        "spec": {}, "status": { "replicas": number(&scale.status_replicas) },
    });
    if let Some(replicas) = object::at_path(object, &scale.spec_replicas).and_then(Value::as_i64) {
        shown["spec"]["replicas"] = replicas.into();
    }
    let selector = scale.selector.as_ref().and_then(|path| object::at_path(object, path));
    match selector {
        Some(Value::String(text)) => shown["status"]["selector"] = text.clone().into(),
        Some(labels) => {
            let pairs = labels["matchLabels"].as_object().into_iter().flatten();
            let text: Vec<String> =
                pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
            shown["status"]["selector"] = text.join(",").into();
        }
        None => {}
    }
    shown
}
