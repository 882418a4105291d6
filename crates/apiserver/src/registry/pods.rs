//! What pods have beyond other kinds: a grace period, a node, eviction and logs. Commands in them: `connect`.

use std::sync::{Arc, OnceLock};

use http::StatusCode;
use serde_json::{Value, json};

use super::delete::Options;
use super::write::Intent;
use super::{Registry, Verb};
use crate::body;
use crate::http::Call;
use crate::http::reply::Reply;
use crate::kinds::Kind;
use crate::object;
use crate::selector::LabelSelector;
use crate::status::{ApiError, ApiResult};
use crate::store::Stored;

const BUDGETS: &str = "poddisruptionbudgets.policy";

/// How long a pod may take to end: none before it has a node, or once its containers are done.
pub(super) fn grace_period(kind: &Kind, object: &Value, options: &Options) -> i64 {
    if kind.storage.as_ref() != "pods" {
        return 0;
    }
    let has_node = object["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let is_done = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if !has_node || is_done {
        return 0;
    }
    let own = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    options.grace_period.unwrap_or(own).max(0)
}

/// Why a pod can get no node.
fn unbindable(pod: &Value) -> Option<String> {
    let (name, node) = (object::name(pod), pod["spec"]["nodeName"].as_str().unwrap_or_default());
    if object::is_being_deleted(pod) {
        Some(format!("pod {name} is being deleted, cannot be assigned to a host"))
    } else if !node.is_empty() {
        Some(format!("pod {name} is already assigned to node {node:?}"))
    } else {
        None
    }
}

fn bound() -> Reply {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Reply::json(StatusCode::CREATED, &status)
}

impl Registry {
    /// `POST pods/NAME/binding`: gives a pod its node.
    pub(super) async fn bind(&self, call: &Call, kind: &Arc<Kind>) -> ApiResult<Reply> {
        if call.verb != Verb::Create {
            return Err(ApiError::method_not_allowed());
        }
        let binding = body::decode(&call.content_type, &call.body)?.value;
        let node = binding["target"]["name"].as_str().unwrap_or_default().to_owned();
        if node.is_empty() {
            return Err(ApiError::bad_request(
                "a binding needs target.name: the node that the pod is to run on",
            ));
        }
        let (namespace, name, now) = (call.route.namespace(), call.route.name(), object::now());
        let refuse = |why| ApiError::conflict("", "pods/binding", name, why);
        if let Some(why) = unbindable(&self.stored(kind, namespace, name)?.value()) {
            return Err(refuse(why));
        }
        if call.query.dry_run()? {
            return Ok(bound());
        }
        // The scheduler decides where a pod runs, and nothing else about it: no rule of updates applies.
        let refused = OnceLock::new();
        let assign = |pod: &mut Value| {
            if let Some(why) = unbindable(pod) {
                refused.get_or_init(|| why);
                return false;
            }
            object::set_path(pod, "spec.nodeName", node.clone().into());
            let annotations = binding["metadata"]["annotations"].as_object().into_iter().flatten();
            for (key, value) in annotations {
                object::child_mut(object::metadata_mut(pod), "annotations")
                    .insert(key.clone(), value.clone());
            }
            set_condition(pod, "PodScheduled", "True", &now);
            true
        };
        self.edit(kind, namespace, name, &assign).await?;
        match refused.into_inner() {
            Some(why) => Err(refuse(why)),
            None => Ok(bound()),
        }
    }

    /// `POST pods/NAME/eviction`: a deletion that disruption budgets may refuse.
    pub(super) async fn evict(&self, call: &Call, kind: &Arc<Kind>) -> ApiResult<Reply> {
        if call.verb != Verb::Create {
            return Err(ApiError::method_not_allowed());
        }
        let eviction = body::decode(&call.content_type, &call.body)?.value;
        let (namespace, name) = (call.route.namespace(), call.route.name());
        let pod = self.stored(kind, namespace, name)?;
        let sent = &eviction["deleteOptions"];
        let options = Options {
            uid: sent["preconditions"]["uid"].as_str().map(str::to_owned),
            resource_version: sent["preconditions"]["resourceVersion"].as_str().map(str::to_owned),
            propagation: sent["propagationPolicy"].as_str().unwrap_or_default().to_owned(),
            grace_period: sent["gracePeriodSeconds"].as_i64(),
            dry_run: call.query.dry_run()? || object::strings(&sent["dryRun"]) == ["All"],
        };
        let mut warnings = Vec::new();
        if self.webhooks_apply() {
            let mut intent = Intent::new(self, call, kind)?;
            intent.dry_run = options.dry_run;
            let mut review = self.review_of(&intent, "CREATE", eviction, Value::Null);
            self.mutate(&mut review, &mut warnings).await?;
            self.validate(&review, &mut warnings).await?;
        }
        self.spend_budget(namespace, &pod, options.dry_run).await?;
        self.mark_or_remove_quietly(kind, namespace, name, &options).await?;
        let success =
            json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 });
        Ok(Reply::json(StatusCode::CREATED, &success).with_warnings(warnings))
    }

    /// Takes one disruption from the budget that covers the pod, or says why there is none to take.
    async fn spend_budget(&self, namespace: &str, pod: &Stored, dry_run: bool) -> ApiResult<()> {
        let value = pod.value();
        let runs = matches!(value["status"]["phase"].as_str(), Some("Running"));
        if object::is_being_deleted(&value) || !runs {
            return Ok(());
        }
        let view = self.store.view();
        let prefix = format!("{namespace}/");
        let mut budgets = Vec::new();
        for stored in view.scan(BUDGETS, &prefix, "") {
            let budget = stored.value();
            if LabelSelector::from_object(&budget["spec"]["selector"])?.matches(&pod.labels) {
                budgets.push((stored.clone(), budget));
            }
        }
        let (stored, mut budget) = match budgets.len() {
            0 => return Ok(()),
            1 => budgets.remove(0),
            _ => {
                let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(ApiError::internal(message));
            }
        };
        let name = object::name(&budget).to_owned();
        let status = &budget["status"];
        let number = |field: &str| status[field].as_i64().unwrap_or_default();
        // A client that is told when to come back asks again by itself, and hides the reason meanwhile.
        let refusal = |seconds| {
            let message = "Cannot evict pod as it would violate the pod's disruption budget.";
            ApiError::too_many_requests(message, seconds)
        };
        if status["observedGeneration"].as_i64().unwrap_or_default() < object::generation(&budget) {
            let message = format!("The disruption budget {name} is still being processed by the server.");
            return Err(refusal(10).about_budget(message));
        }
        if !is_ready(&value) {
            // A pod that does not work is missed by nobody, as long as enough others do.
            let enough = number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0;
            if enough || budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" {
                return Ok(());
            }
        }
        if number("disruptionsAllowed") <= 0 {
            let message = format!(
                "The disruption budget {name} needs {} healthy pods and has {} currently",
                number("desiredHealthy"),
                number("currentHealthy")
            );
            return Err(refusal(0).about_budget(message));
        }
        if dry_run {
            return Ok(());
        }
        let left = number("disruptionsAllowed") - 1;
        object::set_path(&mut budget, "status.disruptionsAllowed", left.into());
        let disrupted =
            object::child_mut(object::child_mut(object::as_map_mut(&mut budget), "status"), "disruptedPods");
        disrupted.insert(object::name(&value).to_owned(), object::now().into());
        let write = crate::store::Write {
            place: BUDGETS.into(),
            key: stored.key.clone(),
            expect: crate::store::Expect::Revision(stored.revision),
            change: crate::store::Desired::Put(budget),
        };
        // Someone else spent from the same budget: the client asks again.
        self.store.commit(write).await.map(|_| ()).map_err(|_| refusal(10))
    }

    /// `GET pods/NAME/log`, answered by the pod's node.
    pub(super) async fn log(&self, call: &Call, kind: &Arc<Kind>) -> ApiResult<Reply> {
        if call.verb != Verb::Get {
            return Err(ApiError::method_not_allowed());
        }
        let place = self.container(call, kind)?;
        self.kubelets()?.log(&place, &call.query).await
    }
}

impl ApiError {
    fn about_budget(mut self, message: String) -> Self {
        let details = self.details.get_or_insert_default();
        details.causes.push(crate::status::Cause {
            reason: "DisruptionBudget",
            message,
            field: String::new(),
        });
        self
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|known| known["type"] == "Ready" && known["status"] == "True")
}

fn set_condition(pod: &mut Value, kind: &str, status: &str, now: &str) {
    let list =
        object::child_mut(object::as_map_mut(pod), "status").entry("conditions").or_insert_with(|| json!([]));
    let condition =
        json!({ "type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": now });
    if let Some(list) = list.as_array_mut() {
        list.retain(|known| known["type"] != kind);
        list.push(condition);
    }
}
