//! Changing an object that is there: PUT, every patch, and the subresources that write.
//!
//! A change is a function from the object as it is to the object as it should be; when another writer was faster, it is
//! asked again on the newer object, unless the client insisted on the version that it had read.

use serde_json::Value;

use super::write::{Intent, Outcome, check};
use super::{Registry, Verb, absorb, key, metadata, present, special};
use crate::http::Call;
use crate::http::reply::Reply;
use crate::kinds::{Kind, strategy};
use crate::object;
use crate::schema::{defaults, prune};
use crate::status::{ApiError, ApiResult, FieldError};
use crate::store::{Desired, Expect, Write, WriteError};
use crate::{apply, body};
use std::sync::Arc;

/// Contention that lasts longer than this many attempts is reported as a conflict.
const ATTEMPTS: usize = 64;

/// The object as it should be.
pub(super) struct Changed {
    pub object: Value,
    pub duplicates: Vec<String>,
    /// The managedFields of `object` are final: it came from an apply.
    pub owned: bool,
}

impl Changed {
    pub(super) fn to(object: Value) -> Self {
        Self { object, duplicates: Vec::new(), owned: false }
    }
}

impl Registry {
    pub(super) async fn replace(&self, call: &Call, kind: &Arc<Kind>) -> ApiResult<Reply> {
        let intent = Intent::new(self, call, kind)?;
        let decoded = body::decode_object(&kind.kind, &call.content_type, &call.body)?;
        super::write::check_type(kind, &decoded.value)?;
        intent.check_types(&decoded.value)?;
        let (name, named) = (call.route.name(), object::name(&decoded.value));
        if named.is_empty() || named != name {
            let message = if named.is_empty() {
                "name must be provided".to_owned()
            } else {
                format!("the name of the object ({named}) does not match the name on the URL ({name})")
            };
            return Err(ApiError::bad_request(message));
        }
        let namespace = object::namespace(&decoded.value);
        if !namespace.is_empty() && namespace != call.route.namespace() {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        let result = self
            .modify(&intent, &|_| {
                let (object, duplicates) = (decoded.value.clone(), decoded.duplicates.clone());
                Ok(Changed { object, duplicates, owned: false })
            })
            .await;
        let outcome = match result {
            Err(error)
                if error.code == 404 && kind.traits.create_on_update && call.route.subresource.is_empty() =>
            {
                self.create_object(&intent, decoded.value, &decoded.duplicates).await?
            }
            other => other?,
        };
        Self::outcome_reply(&intent, outcome)
    }

    /// Carries a change through, as often as it takes.
    pub(super) async fn modify(
        &self,
        intent: &Intent<'_>,
        change: &(dyn Fn(&Value) -> ApiResult<Changed> + Sync),
    ) -> ApiResult<Outcome> {
        let (kind, route) = (intent.kind, &intent.call.route);
        for _ in 0..ATTEMPTS {
            let stored = self.stored(kind, route.namespace(), route.name())?;
            let old = present(kind, &stored);
            let changed = change(&old)?;
            let conditional = check_identity(intent, &changed.object, &old)?;
            let (mut new, warnings) = self.admit_change(intent, changed, &old).await?;
            apply::keep_times(&old, &mut new);
            if new == old || intent.dry_run {
                return Ok(Outcome { object: new, created: false, warnings });
            }
            // What watchers are shown of an object that goes is the state that it was in.
            let finished = is_finished(kind, &new);
            let change = if finished {
                Desired::Delete(stored.value())
            } else {
                Desired::Put(absorb(kind, new.clone())?)
            };
            let write = Write {
                place: kind.storage.clone(),
                key: stored.key.clone(),
                expect: Expect::Revision(stored.revision),
                change,
            };
            match self.store.commit(write).await {
                Ok(_) if finished => return Ok(Outcome { object: new, created: false, warnings }),
                Ok(stored) => {
                    return Ok(Outcome { object: present(kind, &stored), created: false, warnings });
                }
                Err(WriteError::Changed { .. }) if conditional => return Err(kind.stale(route.name())),
                Err(WriteError::Changed { .. }) => {}
                Err(error @ WriteError::Failed(_)) => return Err(ApiError::internal(error)),
            }
        }
        Err(kind.stale(route.name()))
    }

    async fn admit_change(
        &self,
        intent: &Intent<'_>,
        changed: Changed,
        old: &Value,
    ) -> ApiResult<(Value, Vec<String>)> {
        let (kind, subresource) = (intent.kind, intent.call.route.subresource.as_str());
        let mut new = changed.object;
        metadata::restore(&mut new, old);
        keep_other_half(kind, subresource, &mut new, old);
        special::keep_other_part(kind, subresource, &mut new, old);
        let mut warnings = intent.normalise(&mut new, &changed.duplicates)?;
        metadata::tidy(&mut new);
        if !changed.owned {
            let api_version = kind.api_version();
            apply::record_update(kind.schema.get(), Some(old), &mut new, &intent.writer(&api_version));
        }
        let mut review = self.review_of(intent, "UPDATE", new, old.clone());
        if self.webhooks_apply() {
            let before = review.object.clone();
            self.mutate(&mut review, &mut warnings).await?;
            if before != review.object {
                metadata::restore(&mut review.object, old);
                keep_other_half(kind, subresource, &mut review.object, old);
                special::keep_other_part(kind, subresource, &mut review.object, old);
                prune::prune(kind.schema.get(), &mut review.object);
                defaults::apply(kind.schema.get(), &mut review.object);
                strategy::complete(kind, &mut review.object);
            }
        }
        if subresource.is_empty() {
            strategy::prepare_update(kind, &mut review.object, old);
            special::prepare_update(kind, &mut review.object, old);
        }
        count_generation(kind, &mut review.object, old);
        check(kind, subresource, &review.object, Some(old))?;
        special::check(kind, &review.object, Some(old))?;
        self.validate(&review, &mut warnings).await?;
        Ok((review.object, warnings))
    }
}

/// The change is about the object that the client means. Returns whether it insists on a version.
fn check_identity(intent: &Intent<'_>, new: &Value, old: &Value) -> ApiResult<bool> {
    let (kind, route) = (intent.kind, &intent.call.route);
    let name = route.name();
    if object::name(new) != name {
        let named = object::name(new);
        return Err(ApiError::bad_request(format!(
            "the name of the object ({named}) does not match the name on the URL ({name})"
        )));
    }
    let namespace = object::namespace(new);
    if kind.namespaced && !namespace.is_empty() && namespace != route.namespace() {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let (sent, known) = (object::uid(new), object::uid(old));
    if !sent.is_empty() && sent != known {
        if intent.call.verb == Verb::Patch {
            let error = FieldError::invalid("metadata.uid", &sent.into(), "field is immutable");
            return Err(kind.invalid(name, vec![error]));
        }
        let place = kind.storage.split_once('.').map_or_else(
            || kind.plural.clone(),
            |(plural, group)| {
                if kind.custom.is_some() { format!("{group}/{plural}") } else { plural.to_owned() }
            },
        );
        return Err(kind.conflict(
            name,
            format!(
                "StorageError: invalid object, Code: 4, Key: /registry/{place}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {sent}, UID in object meta: {known}",
                key(route.namespace(), name)
            ),
        ));
    }
    let revision = object::resource_version(new).map_err(|text| {
        ApiError::new(500, "", format!("strconv.ParseUint: parsing {text:?}: invalid syntax"))
    })?;
    match revision {
        Some(revision) if revision.to_string() != object::meta_str(old, "resourceVersion") => {
            Err(kind.stale(name))
        }
        Some(_) => Ok(intent.call.verb == Verb::Update),
        None if kind.traits.unconditional_update => Ok(false),
        None => {
            let error =
                FieldError::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
            Err(ApiError::invalid(&kind.group, &kind.plural, name, vec![error]))
        }
    }
}

/// The main endpoint leaves the status alone, and `/status` everything else.
fn keep_other_half(kind: &Kind, subresource: &str, new: &mut Value, old: &Value) {
    if subresource == "status" {
        let status = new.get("status").cloned();
        let meta = new["metadata"].clone();
        let mut merged = old.clone();
        let map = object::as_map_mut(&mut merged);
        match status {
            Some(status) => map.insert("status".into(), status),
            None => map.remove("status"),
        };
        if kind.custom.is_none() {
            // Kubelets label and annotate their node and pods through the status.
            map.insert("metadata".into(), meta);
        } else if let Some(managed) = meta.get("managedFields") {
            object::set_meta(&mut merged, "managedFields", managed.clone());
        }
        *new = merged;
    } else if kind.status && subresource.is_empty() {
        let map = object::as_map_mut(new);
        match old.get("status") {
            Some(status) => map.insert("status".into(), status.clone()),
            None => map.remove("status"),
        };
    }
}

/// `metadata.generation` counts changes of what the user wants.
fn count_generation(kind: &Kind, new: &mut Value, old: &Value) {
    if !kind.traits.generation {
        return;
    }
    let wanted = |object: &Value| {
        let mut map = object.as_object().cloned().unwrap_or_default();
        map.remove("metadata");
        if kind.status {
            map.remove("status");
        }
        map
    };
    if wanted(new) != wanted(old) {
        object::set_meta(new, "generation", (object::generation(old) + 1).into());
    }
}

/// The last finalizer is gone and nothing else holds the object.
fn is_finished(kind: &Kind, new: &Value) -> bool {
    let is_filled =
        kind.storage.as_ref() == "namespaces" && !object::strings(&new["spec"]["finalizers"]).is_empty();
    let has_grace = new["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default() > 0;
    object::is_being_deleted(new) && object::finalizers(new).is_empty() && !has_grace && !is_filled
}

impl Registry {
    /// A change by the server itself: no admission, no managers, as often as it takes. `false` from `edit` leaves the
    /// object as it is; an object that is gone is no error.
    pub(crate) async fn edit(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        edit: &(dyn Fn(&mut Value) -> bool + Sync),
    ) -> ApiResult<()> {
        loop {
            let Ok(stored) = self.stored(kind, namespace, name) else {
                return Ok(());
            };
            let old = stored.value();
            let mut new = old.clone();
            if !edit(&mut new) || new == old {
                return Ok(());
            }
            let finished = is_finished(kind, &new);
            let write = Write {
                place: kind.storage.clone(),
                key: stored.key.clone(),
                expect: Expect::Revision(stored.revision),
                change: if finished { Desired::Delete(old) } else { Desired::Put(new) },
            };
            match self.store.commit(write).await {
                Ok(_) => return Ok(()),
                Err(WriteError::Changed { .. }) => {}
                Err(error @ WriteError::Failed(_)) => return Err(ApiError::internal(error)),
            }
        }
    }
}
