//! Admission webhooks: who is asked, what is sent, what an answer does.
//!
//! Owns the order of calls and the meaning of answers. Mutating hooks run one after another, by the name of their
//! configuration and then their place in it, and those that ask for it run once more when a later hook changed
//! the object; validating hooks run all at once. Configurations are handed in with each request: the store owns
//! them. Must never store anything, and never let a request pass that a hook with `failurePolicy: Fail` could not
//! judge.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::join_all;
use serde_json::{Value, json};

use crate::kinds::{Kind, KindTable};
use crate::object;
use crate::patch;
use crate::status::{ApiError, ApiResult};
use call::Client;
use hook::{Hook, Shape};
use review::Answer;

mod call;
mod conditions;
mod hook;
mod review;
mod trust;

/// Where a webhook's `clientConfig.service` listens. Kubernetes has Services; the lab says it here.
pub type ServiceResolver = dyn Fn(&ServiceRef<'_>) -> Option<SocketAddr> + Send + Sync;

#[derive(Debug, Clone, Copy)]
pub struct ServiceRef<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub port: u16,
}

/// What a request is aimed at: all that rules look at.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// For `matchPolicy: Equivalent`: the other versions of the resource.
    pub kinds: &'a KindTable,
    pub kind: &'a Kind,
    pub subresource: &'a str,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: &'static str,
}

/// One request under admission.
#[derive(Debug, Clone)]
pub struct Review<'a> {
    pub kinds: Arc<KindTable>,
    pub kind: &'a Kind,
    pub subresource: &'a str,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: &'static str,
    /// Empty for what is not in a namespace.
    pub namespace: &'a str,
    pub name: &'a str,
    /// Null on `DELETE`.
    pub object: Value,
    /// Null on `CREATE`.
    pub old_object: Value,
    pub options: Value,
    pub dry_run: bool,
    /// The `userInfo` of the requester.
    pub user: Value,
    /// The request's namespace, for `namespaceSelector`.
    pub namespace_object: Option<Value>,
}

/// Whether any hook's rules match. Most requests have none, and then no [`Review`] need be made.
pub fn any_match(configurations: &[Value], target: Target<'_>) -> bool {
    configurations.iter().flat_map(hook::of).any(|hook| hook.shape_for(target).is_some())
}

/// Calls webhooks.
#[derive(Clone)]
pub struct Webhooks {
    client: Client,
}

impl Webhooks {
    pub fn new(resolver: Arc<ServiceResolver>) -> Self {
        Self { client: Client::new(resolver) }
    }

    /// Runs the mutating hooks; `review.object` is changed in place. Returns the warnings for the client.
    pub async fn mutate(&self, configurations: &[Value], review: &mut Review<'_>) -> ApiResult<Vec<String>> {
        let hooks = hook::ordered(configurations);
        let mut warnings = Vec::new();
        // Hooks that want to see later changes, until there is one; then they have another turn.
        let mut watching = Vec::new();
        let mut again = Vec::new();
        for hook in &hooks {
            let Some(changed) = self.mutate_by(hook, review, &mut warnings).await? else {
                continue;
            };
            if changed {
                again.append(&mut watching);
            }
            if hook.wants_reinvocation() {
                watching.push(hook);
            }
        }
        for hook in again {
            self.mutate_by(hook, review, &mut warnings).await?;
        }
        Ok(warnings)
    }

    /// Runs the validating hooks. Returns the warnings for the client.
    pub async fn validate(&self, configurations: &[Value], review: &Review<'_>) -> ApiResult<Vec<String>> {
        let mut asked = Vec::new();
        for hook in hook::ordered(configurations) {
            if let Some(shape) = hook.applies_to(review)? {
                asked.push((hook, shape));
            }
        }
        let answers = asked.iter().map(|(hook, shape)| self.ask(hook, shape, review, false));
        let mut warnings = Vec::new();
        for answer in join_all(answers).await {
            warnings.extend(answer?.into_iter().flat_map(|answer| answer.warnings));
        }
        Ok(warnings)
    }

    /// Asks one mutating hook. Returns whether it changed the object, or nothing when it has no say.
    async fn mutate_by(
        &self,
        hook: &Hook<'_>,
        review: &mut Review<'_>,
        warnings: &mut Vec<String>,
    ) -> ApiResult<Option<bool>> {
        let Some(shape) = hook.applies_to(review)? else {
            return Ok(None);
        };
        let Some(answer) = self.ask(hook, &shape, review, true).await? else {
            return Ok(Some(false));
        };
        warnings.extend(answer.warnings);
        let Some(changes) = answer.patch else {
            return Ok(Some(false));
        };
        if review.object.is_null() {
            return Err(ApiError::internal(format!(
                "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                hook.name
            )));
        }
        let shown = shape.of(&review.object, review)?;
        let patched = patch::json(&shown, &changes).map_err(ApiError::internal)?;
        let patched = shape.undo(patched, review)?;
        let changed = patched != review.object;
        review.object = patched;
        Ok(Some(changed))
    }

    /// Asks one hook. `None` when it failed and its policy is to go on without it.
    async fn ask(
        &self,
        hook: &Hook<'_>,
        shape: &Shape,
        review: &Review<'_>,
        mutating: bool,
    ) -> ApiResult<Option<Answer>> {
        if review.dry_run && !hook.is_safe_for_dry_run() {
            return Err(ApiError::bad_request(format!(
                "admission webhook {:?} does not support dry run",
                hook.name
            )));
        }
        let uid = uuid::Uuid::new_v4().to_string();
        let mut request = review::request(review, shape.kind(review));
        request["uid"] = json!(uid);
        request["object"] = shape.of(&review.object, review)?;
        request["oldObject"] = shape.of(&review.old_object, review)?;
        let body = json!({"kind": "AdmissionReview", "apiVersion": review::API_VERSION, "request": request});
        let answer = match self.client.post(hook.client_config(), hook.timeout(), &body).await {
            Ok(response) => Answer::read(&response, &uid, mutating),
            Err(error) => Err(format!("failed to call webhook: {error}")),
        };
        match answer {
            Ok(answer) => answer.or_denial(hook.name).map(Some),
            Err(cause) if hook.ignores_failures() => {
                tracing::warn!(webhook = hook.name, cause, "failed calling webhook, going on without it");
                Ok(None)
            }
            Err(cause) => Err(ApiError::internal(format!("failed calling webhook {:?}: {cause}", hook.name))),
        }
    }
}

impl Review<'_> {
    fn target(&self) -> Target<'_> {
        Target {
            kinds: &self.kinds,
            kind: self.kind,
            subresource: self.subresource,
            operation: self.operation,
        }
    }

    fn is_of_namespace(&self) -> bool {
        self.kind.group.is_empty() && self.kind.plural == "namespaces"
    }

    /// The namespace as hooks are told it: a namespace is in itself.
    fn shown_namespace(&self) -> &str {
        match (self.namespace, self.name) {
            ("", "") if self.is_of_namespace() => object::name(&self.object),
            ("", name) if self.is_of_namespace() => name,
            (namespace, _) => namespace,
        }
    }
}

#[cfg(test)]
mod tests;
