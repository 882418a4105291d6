//! PATCH: four content types, one road.

use std::sync::Arc;

use serde_json::Value;

use super::Registry;
use super::modify::Changed;
use super::write::{Intent, Outcome};
use crate::body::{Decoded, PatchType};
use crate::http::Call;
use crate::http::reply::Reply;
use crate::kinds::Kind;
use crate::status::{ApiError, ApiResult, FieldError};
use crate::{apply, body, object, patch};

/// What a custom resource accepts: strategic patches need types that only built-in kinds have.
const CUSTOM_ACCEPTS: &str =
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

impl Registry {
    pub(super) async fn patch(&self, call: &Call, kind: &Arc<Kind>) -> ApiResult<Reply> {
        let intent = Intent::new(self, call, kind)?;
        let outcome = self.patch_object(&intent).await?;
        Self::outcome_reply(&intent, outcome)
    }

    pub(super) async fn patch_object(&self, intent: &Intent<'_>) -> ApiResult<Outcome> {
        let (call, kind) = (intent.call, intent.kind);
        let format = body::Format::of(&call.content_type);
        let fits_custom = matches!(format, Some(body::Format::Patch(patch)) if patch != PatchType::Strategic);
        if kind.custom.is_some() && !fits_custom {
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
            keep_type(intent, patch, &mut object)?;
            intent.check_types(&object)?;
            check_identity(intent, &object, old)?;
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
        let config = decoded.value;
        check_applied_type(kind, &config)?;
        let api_version = kind.api_version();
        let force = call.query.flag("force");
        if self.stored(kind, call.route.namespace(), call.route.name()).is_err()
            && call.route.subresource.is_empty()
        {
            let writer = intent.writer(&api_version);
            let mut applied = config.clone();
            if kind.status {
                object::as_map_mut(&mut applied).remove("status");
            }
            let mut object = apply::apply(kind.schema.get(), None, &applied, &writer, force)?;
            let uid = object::uid(&object);
            if !uid.is_empty() {
                let why = format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                );
                return Err(kind.conflict(call.route.name(), why));
            }
            check_place(intent, &object)?;
            object::remove_meta(&mut object, "resourceVersion");
            match self.create_object(intent, object, &decoded.duplicates).await {
                Err(error) if error.reason == "AlreadyExists" => {}
                other => return other,
            }
        }
        self.modify(intent, &|old| {
            let sent = object::meta_str(&config, "resourceVersion");
            if !sent.is_empty() && sent != object::meta_str(old, "resourceVersion") {
                return Err(kind.stale(call.route.name()));
            }
            let writer = intent.writer(&api_version);
            let object = apply::apply(kind.schema.get(), Some(old), &config, &writer, force)?;
            check_identity(intent, &object, old)?;
            Ok(Changed { object, duplicates: decoded.duplicates.clone(), owned: true })
        })
        .await
    }
}

/// A configuration says what it is of, and that is what the URL names.
fn check_applied_type(kind: &Kind, config: &Value) -> ApiResult<()> {
    let text = |field: &str| config[field].as_str().unwrap_or_default();
    let (api_version, name) = (text("apiVersion"), text("kind"));
    if api_version == kind.api_version() && name == kind.kind {
        return Ok(());
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Err(ApiError::bad_request(format!("invalid object type: {group}/{version}, Kind={name}")))
}

/// The object stays where the URL says that it is.
fn check_place(intent: &Intent<'_>, object: &Value) -> ApiResult<()> {
    let (route, namespace, name) = (&intent.call.route, object::namespace(object), object::name(object));
    if intent.kind.namespaced && !namespace.is_empty() && namespace != route.namespace() {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(message));
    }
    let expected = route.name();
    let message = match name {
        "" => format!(
            "the name of the object ({expected} based on URL) was undeterminable: name must be provided"
        ),
        _ if name != expected => {
            format!("the name of the object ({name}) does not match the name on the URL ({expected})")
        }
        _ => return Ok(()),
    };
    Err(ApiError::bad_request(message))
}

/// The object stays the one that it was.
fn check_identity(intent: &Intent<'_>, new: &Value, old: &Value) -> ApiResult<()> {
    check_place(intent, new)?;
    let uid = object::uid(new);
    if uid.is_empty() || uid == object::uid(old) {
        return Ok(());
    }
    // The real server comes upon it twice: with what all kinds have in common, and with the kind itself.
    let error = FieldError::invalid("metadata.uid", &uid.into(), "field is immutable");
    Err(intent.kind.invalid(object::name(new), vec![error.clone(), error]))
}

/// A patch cannot turn an object into one of another kind.
fn keep_type(intent: &Intent<'_>, patch: PatchType, object: &mut Value) -> ApiResult<()> {
    if !object.is_object() {
        return Err(patch::does_not_apply());
    }
    let kind = intent.kind;
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (api_version, name) = (text("apiVersion"), text("kind"));
    if kind.custom.is_some() {
        if name.is_empty() {
            return Err(intent.undecodable(object, &format!("Object 'Kind' is missing in '{object}'")));
        }
        let said = [("kind", name, kind.kind.clone()), ("apiVersion", api_version, kind.api_version())];
        let wrong = said.into_iter().filter(|(_, said, expected)| said != expected);
        let errors: Vec<FieldError> = wrong
            .map(|(field, said, expected)| {
                FieldError::invalid(field, &said.into(), format!("must be {expected}"))
            })
            .collect();
        if errors.is_empty() {
            return Ok(());
        }
        let (group, _) = api_version.split_once('/').unwrap_or_default();
        return Err(ApiError::invalid(group, name, object::name(object), errors));
    }
    let other = (!api_version.is_empty() && api_version != kind.api_version())
        || (!name.is_empty() && name != kind.kind);
    // A strategic patch makes a struct of the kind, whatever it is called.
    if other && patch != PatchType::Strategic {
        let scheme = "pkg/runtime/scheme.go:111";
        let why = format!("no kind {name:?} is registered for version {api_version:?} in scheme {scheme:?}");
        return Err(intent.undecodable(object, &why));
    }
    let map = object::as_map_mut(object);
    map.insert("apiVersion".into(), kind.api_version().into());
    map.insert("kind".into(), kind.kind.clone().into());
    Ok(())
}
