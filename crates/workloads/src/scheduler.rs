//! Gives pods their nodes, as [`schedule`](crate::schedule) decides. Pods of higher priority go first; nobody is pushed
//! out for them. A pod for which there is no node says why, and is looked at again when anything changed.

use std::cmp::Reverse;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kube::ResourceExt as _;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::Error;
use crate::cluster::{Agenda, Cluster, Controller};
use crate::herald::Herald;
use crate::pods;
use crate::schedule::{World, choose};

/// Pods may ask for another scheduler by name; those are not ours.
const NAME: &str = "default-scheduler";
const GATED: &str = "Scheduling is blocked due to non-empty scheduling gates";

pub struct Scheduler {
    cluster: Arc<Cluster>,
    herald: Herald,
}

impl Scheduler {
    pub fn new(cluster: Arc<Cluster>) -> Self {
        Self { herald: cluster.herald(NAME), cluster }
    }

    async fn bind(&self, pod: &Pod, node: &str) -> Result<(), Error> {
        let name = pod.name_any();
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": name, "namespace": pod.namespace(), "uid": pod.uid()},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let api = self.cluster.pods.api(pod);
        let bound: Result<Value, _> =
            api.create_subresource("binding", &name, &PostParams::default(), &binding).await;
        bound.map_err(|source| Error::Request {
            verb: "bind",
            kind: "Pod".into(),
            name: format!("{}/{name}", pod.namespace().unwrap_or_default()),
            source: Box::new(source),
        })?;
        self.cluster.pods.refresh(pod).await?;
        let note = format!("Successfully assigned {}/{name} to {node}", pod.namespace().unwrap_or_default());
        self.herald.note(pod, "Scheduled", note).await;
        Ok(())
    }

    /// Says why a pod waits. Returns whether that is news.
    async fn hold(&self, pod: &Pod, reason: &str, message: &str, agenda: &Agenda) -> Result<bool, Error> {
        let mut held = pod.clone();
        let conditions = held.status.get_or_insert_default().conditions.get_or_insert_default();
        let condition = PodCondition {
            type_: "PodScheduled".into(),
            status: "False".into(),
            reason: Some(reason.into()),
            message: Some(message.into()),
            last_transition_time: Some(pods::stamp(agenda.now)),
            ..PodCondition::default()
        };
        let is_news = pods::set_condition(conditions, condition);
        if is_news {
            self.cluster.pods.replace_status(&held).await?;
        }
        Ok(is_news)
    }

    async fn place(&self, pod: &Arc<Pod>, world: &mut World, agenda: &Agenda) -> Result<(), Error> {
        if pods::spec(pod).scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()) {
            return self.hold(pod, "SchedulingGated", GATED, agenda).await.map(|_| ());
        }
        match choose(pod, world).map(str::to_owned) {
            Ok(node) => {
                self.bind(pod, &node).await?;
                world.place(pod, &node);
            }
            Err(message) => {
                if self.hold(pod, "Unschedulable", &message, agenda).await? {
                    self.herald.warn(&**pod, "FailedScheduling", message).await;
                }
            }
        }
        Ok(())
    }
}

fn waits_for_us(pod: &Pod) -> bool {
    let scheduler = pods::spec(pod).scheduler_name.as_deref().unwrap_or(NAME);
    pods::node_of(pod).is_none() && pods::is_active(pod) && scheduler == NAME
}

impl Controller for Scheduler {
    async fn settle(&mut self, agenda: &mut Agenda) {
        let pods = self.cluster.pods.all();
        let mut waiting: Vec<&Arc<Pod>> = pods.iter().filter(|pod| waits_for_us(pod)).collect();
        if waiting.is_empty() {
            return;
        }
        waiting.sort_by_key(|pod| {
            let priority = pods::spec(pod).priority.unwrap_or_default();
            (Reverse(priority), pods::created(pod.metadata.creation_timestamp.as_ref()))
        });
        let mut world = World::new(&self.cluster.nodes.all(), &pods, &self.cluster.namespaces.all());
        for pod in waiting {
            let placed = self.place(pod, &mut world, agenda).await;
            agenda.check(placed);
        }
    }
}
