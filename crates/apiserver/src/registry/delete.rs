//! DELETE of one object or of a selection.
//!
//! An object that nothing holds is removed at once. Finalizers, a grace period, or the content of a namespace hold it:
//! then it is marked, and removed by the write that lets go of the last hold.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::read::Selection;
use super::write::Intent;
use super::{Registry, absorb, key, pods, present};
use crate::crd;
use crate::http::Call;
use crate::http::reply::Reply;
use crate::kinds::Kind;
use crate::object;
use crate::status::{ApiError, ApiResult, FieldError};
use crate::store::{Desired, Expect, Write, WriteError};

pub(crate) const FOREGROUND: &str = "foregroundDeletion";
pub(crate) const ORPHAN: &str = "orphan";

/// Namespaces that the system stands on.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// How a client wants something deleted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    /// `Background`, `Foreground` or `Orphan`.
    pub propagation: String,
    pub grace_period: Option<i64>,
    pub dry_run: bool,
}

pub(super) enum Deleted {
    Gone(Value),
    Marked(Value),
}

impl Options {
    pub(super) fn parse(call: &Call) -> ApiResult<Self> {
        let sent = if call.body.is_empty() {
            Value::Null
        } else {
            crate::body::decode(&call.content_type, &call.body)?.value
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let mut propagation = text(&sent["propagationPolicy"])
            .unwrap_or_else(|| call.query.text("propagationPolicy").to_owned());
        let orphan = sent["orphanDependents"]
            .as_bool()
            .or_else(|| call.query.get("orphanDependents").map(|text| text == "true"));
        if let Some(orphan) = orphan {
            if !propagation.is_empty() {
                let detail = "orphanDependents and deletionPropagation cannot be both set";
                let error = FieldError::invalid("propagationPolicy", &json!(propagation), detail);
                return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", vec![error]));
            }
            propagation.push_str(if orphan { "Orphan" } else { "Background" });
        }
        if !matches!(propagation.as_str(), "" | "Background" | "Foreground" | "Orphan") {
            let supported = ["Foreground", "Background", "Orphan", "nil"].map(str::to_owned);
            let error = FieldError::not_supported("propagationPolicy", &json!(propagation), &supported);
            return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", vec![error]));
        }
        let dry_run = match object::strings(&sent["dryRun"]).as_slice() {
            [] => call.query.dry_run()?,
            ["All"] => true,
            other => {
                let error = FieldError::not_supported("dryRun", &json!(other), &["All".to_owned()]);
                return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", vec![error]));
            }
        };
        let asked = call.query.number("gracePeriodSeconds")?.and_then(|seconds| i64::try_from(seconds).ok());
        Ok(Self {
            uid: text(&sent["preconditions"]["uid"]),
            resource_version: text(&sent["preconditions"]["resourceVersion"]),
            propagation,
            grace_period: sent["gracePeriodSeconds"].as_i64().or(asked),
            dry_run,
        })
    }

    fn check(&self, kind: &Kind, object: &Value) -> ApiResult<()> {
        let conflict =
            |why: String| Err(ApiError::conflict(&kind.group, &kind.kind, object::name(object), why));
        let uid = object::uid(object);
        if let Some(asked) = self.uid.as_ref().filter(|asked| *asked != uid) {
            return conflict(format!(
                "the UID in the precondition ({asked}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
            ));
        }
        let current = object::meta_str(object, "resourceVersion");
        if let Some(asked) = self.resource_version.as_ref().filter(|asked| *asked != current) {
            return conflict(format!(
                "the ResourceVersion in the precondition ({asked}) does not match the ResourceVersion in record ({current}). The object might have been modified"
            ));
        }
        Ok(())
    }
}

impl Registry {
    pub(super) async fn delete(&self, call: &Call, kind: &Arc<Kind>) -> ApiResult<Reply> {
        let options = Options::parse(call)?;
        let (deleted, warnings) = self.delete_object(call, kind, call.route.name(), &options).await?;
        let reply = match deleted {
            Deleted::Marked(object) => Self::reply(call, kind, object, false)?,
            Deleted::Gone(object) if kind.traits.returns_deleted => Self::reply(call, kind, object, false)?,
            Deleted::Gone(object) => Reply::json(StatusCode::OK, &success(kind, &object)),
        };
        Ok(reply.with_warnings(warnings))
    }

    async fn delete_object(
        &self,
        call: &Call,
        kind: &Arc<Kind>,
        name: &str,
        options: &Options,
    ) -> ApiResult<(Deleted, Vec<String>)> {
        let mut warnings = Vec::new();
        let stored = self.stored(kind, call.route.namespace(), name)?;
        if kind.storage.as_ref() == "namespaces" && IMMORTAL.contains(&name) {
            return Err(kind.forbidden(name, "this namespace may not be deleted"));
        }
        let old = present(kind, &stored);
        options.check(kind, &old)?;
        if self.webhooks_apply() {
            let mut intent = Intent::new(self, call, kind)?;
            intent.dry_run = options.dry_run;
            let mut review = self.review_of(&intent, "DELETE", Value::Null, old);
            review.name = name;
            self.mutate(&mut review, &mut warnings).await?;
            self.validate(&review, &mut warnings).await?;
        }
        let deleted = self.mark_or_remove(kind, call.route.namespace(), name, options).await?;
        Ok((deleted, warnings))
    }

    /// Deletes without admission: for the server's own controllers, and after admission for everyone else.
    pub(crate) async fn mark_or_remove_quietly(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: &Options,
    ) -> ApiResult<()> {
        self.mark_or_remove(kind, namespace, name, options).await.map(|_| ())
    }

    async fn mark_or_remove(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: &Options,
    ) -> ApiResult<Deleted> {
        loop {
            let stored = self.stored(kind, namespace, name)?;
            let old = present(kind, &stored);
            options.check(kind, &old)?;
            let mut new = old.clone();
            hold(kind, &mut new, options);
            let grace = pods::grace_period(kind, &new, options);
            if grace == 0 && kind.storage.as_ref() == "pods" {
                // A pod says also of an end without grace that it had none.
                mark(kind, &mut new, 0);
            }
            let held = !object::finalizers(&new).is_empty() || grace > 0 || is_filled_namespace(kind, &new);
            if held {
                mark(kind, &mut new, grace);
            }
            if options.dry_run {
                return Ok(if held { Deleted::Marked(new) } else { Deleted::Gone(new) });
            }
            if held && new == old {
                return Ok(Deleted::Marked(old));
            }
            let value = absorb(kind, new)?;
            let write = Write {
                place: kind.storage.clone(),
                key: key(namespace, name),
                expect: Expect::Revision(stored.revision),
                change: if held { Desired::Put(value) } else { Desired::Delete(value) },
            };
            match self.store.commit(write).await {
                Ok(stored) => {
                    let object = present(kind, &stored);
                    return Ok(if held { Deleted::Marked(object) } else { Deleted::Gone(object) });
                }
                Err(WriteError::Changed { .. }) => {}
                Err(error @ WriteError::Failed(_)) => return Err(ApiError::internal(error)),
            }
        }
    }

    pub(super) async fn delete_collection(&self, call: &Call, kind: &Arc<Kind>) -> ApiResult<Reply> {
        let options = Options::parse(call)?;
        let selection = Selection::parse(call, kind)?;
        let view = self.store.view();
        let mut items = Vec::new();
        for stored in view.scan(&kind.storage, &selection.prefix, "") {
            if !selection.matches(kind, stored) {
                continue;
            }
            let name = stored.key.rsplit('/').next().unwrap_or_default();
            match self.delete_object(call, kind, name, &options).await {
                Ok((Deleted::Gone(object) | Deleted::Marked(object), _)) => items.push(object),
                // Someone else was faster: it is gone, which is what was asked.
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        let list = json!({
            "apiVersion": kind.api_version(), "kind": kind.list_kind,
            "metadata": { "resourceVersion": self.store.view().revision.to_string() }, "items": items,
        });
        Ok(Reply::json(StatusCode::OK, &list))
    }
}

/// Adds the finalizer that a propagation policy asks for, and drops the one that it rules out.
fn hold(kind: &Kind, object: &mut Value, options: &Options) {
    if kind.storage.as_ref() == crd::PLACE && !object::is_being_deleted(object) {
        // A definition goes after its objects.
        object::set_meta(
            object,
            "finalizers",
            json!([object::finalizers(object), vec![crd::CLEANUP_FINALIZER]].concat()),
        );
    }
    let wanted = match options.propagation.as_str() {
        "Foreground" => Some(FOREGROUND),
        "Orphan" => Some(ORPHAN),
        "Background" => None,
        // Without a word from the client, what is there decides.
        _ => return,
    };
    let mut finalizers: Vec<String> = object::finalizers(object).into_iter().map(str::to_owned).collect();
    let before = finalizers.len();
    finalizers.retain(|name| (name != FOREGROUND && name != ORPHAN) || Some(name.as_str()) == wanted);
    // A namespace's content goes with it whatever the policy says.
    if let Some(wanted) = wanted.filter(|wanted| !finalizers.iter().any(|name| name == wanted)) {
        if kind.storage.as_ref() != "namespaces" {
            finalizers.push(wanted.to_owned());
        }
    } else if finalizers.len() == before {
        return;
    }
    if finalizers.is_empty() {
        object::remove_meta(object, "finalizers");
    } else {
        object::set_meta(object, "finalizers", json!(finalizers));
    }
}

fn is_filled_namespace(kind: &Kind, object: &Value) -> bool {
    kind.storage.as_ref() == "namespaces" && !object::strings(&object["spec"]["finalizers"]).is_empty()
}

/// Writes when the object goes. A second deletion may only shorten the grace period.
fn mark(kind: &Kind, object: &mut Value, grace: i64) {
    let known = object["metadata"]["deletionGracePeriodSeconds"].as_i64();
    if object::is_being_deleted(object) && known.is_some_and(|known| known <= grace) {
        return;
    }
    if !object::is_being_deleted(object) && (kind.traits.generation || object::generation(object) > 0) {
        object::set_meta(object, "generation", (object::generation(object) + 1).into());
    }
    let when = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(grace);
    object::set_meta(object, "deletionTimestamp", when.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into());
    if kind.storage.as_ref() == "namespaces" {
        object::set_path(object, "status.phase", "Terminating".into());
    } else {
        object::set_meta(object, "deletionGracePeriodSeconds", grace.into());
    }
}

fn success(kind: &Kind, object: &Value) -> Value {
    let mut details =
        json!({ "name": object::name(object), "kind": kind.plural, "uid": object::uid(object) });
    if !kind.group.is_empty() {
        details["group"] = kind.group.clone().into();
    }
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}
