//! PATCH: four content types, one road.

use std::sync::Arc;

use serde_json::Value;

use super::Registry;
use crate::body::{Decoded, PatchType};
use super::modify::Changed;
use super::write::{Intent, Outcome, check_type};
use crate::http::Call;
use crate::http::reply::Reply;
use crate::kinds::Kind;
use crate::status::{ApiError, ApiResult, FieldError};
use crate::{apply, body, object, patch};

/// What a custom resource accepts: strategic patches need types that only built-in kinds have.
const CUSTOM_ACCEPTS: &str = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

impl Registry {
    pub(super) async fn patch(&self, call: &Call, kind: &Arc<Kind>) -> ApiResult<Reply> {
        let intent = Intent::new(self, call, kind)?;
        let outcome = self.patch_object(&intent).await?;
        Self::outcome_reply(&intent, outcome)
    }

    pub(super) async fn patch_object(&self, intent: &Intent<'_>) -> ApiResult<Outcome> {
        let (call, kind) = (intent.call, intent.kind);
        if kind.custom.is_some() && body::Format::of(&call.content_type) == Some(body::Format::Patch(PatchType::Strategic)) {
            return Err(ApiError::unsupported_media_type(CUSTOM_ACCEPTS));
        }
        let (patch, decoded) = body::decode_patch(&call.content_type, &call.body)?;
        if patch == PatchType::Apply {
            return self.apply(intent, decoded).await;
        }
        if call.query.get("force").is_some() {
            let error = FieldError::forbidden("force", "may not be specified for non-apply patch");
            return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", vec![error]));
        }
        let (document, duplicates) = (decoded.value, decoded.duplicates);
        self.modify(intent, &|old| {
            let mut object = match patch {
                PatchType::Json => patch::json(old, &document)?,
                PatchType::Strategic => patch::strategic(kind.schema.get(), old, &document)?,
                PatchType::Merge | PatchType::Apply => {
                    let mut object = old.clone();
                    patch::merge(&mut object, &document);
                    object
                }
            };
            keep_type(kind, &mut object)?;
            if object::meta_str(&object, "resourceVersion").is_empty() {
                // A patch that removes the version does not mean to overwrite blindly: it applies to what is there.
                object::set_meta(&mut object, "resourceVersion", old["metadata"]["resourceVersion"].clone());
            }
            Ok(Changed { object, duplicates: duplicates.clone(), owned: false })
        })
        .await
    }

    async fn apply(&self, intent: &Intent<'_>, decoded: Decoded) -> ApiResult<Outcome> {
        let (call, kind) = (intent.call, intent.kind);
        if call.query.text("fieldManager").is_empty() {
            let error = FieldError::required("fieldManager", "is required for apply patch");
            return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", vec![error]));
        }
        let mut config = decoded.value;
        Self::check_config(intent, &config)?;
        object::set_meta(&mut config, "name", call.route.name().into());
        if kind.namespaced {
            object::set_meta(&mut config, "namespace", call.route.namespace().into());
        }
        let api_version = kind.api_version();
        let force = call.query.flag("force");
        if self
            .stored(kind, call.route.namespace(), call.route.name())
            .is_err()
            && call.route.subresource.is_empty()
        {
            let writer = intent.writer(&api_version);
            let mut applied = config.clone();
            if kind.status {
                object::as_map_mut(&mut applied).remove("status");
            }
            // Unknown fields are reported before they would be owned.
            let warnings = intent.normalise(&mut applied.clone(), &decoded.duplicates)?;
            let mut object = apply::apply(kind.schema.get(), None, &applied, &writer, force)?;
            object::remove_meta(&mut object, "resourceVersion");
            match self.create_object(intent, object, &[]).await {
                Err(error) if error.reason == "AlreadyExists" => {}
                other => {
                    return other.map(|outcome| Outcome {
                        warnings: [warnings, outcome.warnings].concat(),
                        ..outcome
                    });
                }
            }
        }
        self.modify(intent, &|old| {
            let sent = object::meta_str(&config, "resourceVersion");
            if !sent.is_empty() && sent != object::meta_str(old, "resourceVersion") {
                return Err(kind.stale(call.route.name()));
            }
            let writer = intent.writer(&api_version);
            let object = apply::apply(kind.schema.get(), Some(old), &config, &writer, force)?;
            Ok(Changed {
                object,
                duplicates: decoded.duplicates.clone(),
                owned: true,
            })
        })
        .await
    }

    fn check_config(intent: &Intent<'_>, config: &Value) -> ApiResult<()> {
        let (kind, route) = (intent.kind, &intent.call.route);
        let missing = |field: &str| config[field].as_str().unwrap_or_default().is_empty();
        if missing("kind") || missing("apiVersion") {
            let field = if missing("kind") { "Kind" } else { "apiVersion" };
            return Err(ApiError::bad_request(format!(
                "Object '{field}' is missing in '{config}'"
            )));
        }
        check_type(kind, config)?;
        if config["metadata"]["managedFields"]
            .as_array()
            .is_some_and(|list| !list.is_empty())
        {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        let named = object::name(config);
        if !named.is_empty() && named != route.name() {
            let message = format!(
                "the name of the object ({named}) does not match the name on the URL ({})",
                route.name()
            );
            return Err(ApiError::bad_request(message));
        }
        let namespace = object::namespace(config);
        if !namespace.is_empty() && namespace != route.namespace() {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        Ok(())
    }
}

/// A patch cannot turn an object into one of another kind.
fn keep_type(kind: &Kind, object: &mut Value) -> ApiResult<()> {
    if !object.is_object() {
        return Err(patch::does_not_apply());
    }
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let name = object["kind"].as_str().unwrap_or_default();
    if (!api_version.is_empty() && api_version != kind.api_version())
        || (!name.is_empty() && name != kind.kind)
    {
        return Err(ApiError::bad_request(format!(
            "the patch would turn this {} of {} into a {name} of {api_version}",
            kind.kind,
            kind.api_version()
        )));
    }
    let map = object::as_map_mut(object);
    map.insert("apiVersion".into(), kind.api_version().into());
    map.insert("kind".into(), kind.kind.clone().into());
    Ok(())
}
