//! ReplicaSets: so many pods of a template, no more, no fewer.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use crate::Error;
use crate::cluster::{Agenda, Cluster, Controller};
use crate::herald::Herald;
use crate::owner::{by_controller, claim, count, pod_from};
use crate::pods;

mod victims;

use victims::victims;

/// The most pods made in one pass: what cannot be made at all should not be tried a thousand times over.
const BURST: usize = 100;

pub struct ReplicaSets {
    cluster: Arc<Cluster>,
    herald: Herald,
}

impl ReplicaSets {
    pub fn new(cluster: Arc<Cluster>) -> Self {
        Self { herald: cluster.herald("replicaset-controller"), cluster }
    }

    async fn sync(
        &self,
        set: &ReplicaSet,
        pods: &HashMap<String, Vec<Arc<Pod>>>,
        agenda: &mut Agenda,
    ) -> Result<(), Error> {
        let spec = set.spec.as_ref();
        let selector = spec.map(|spec| &spec.selector);
        let pods = claim(set, selector, &self.cluster.pods, pods).await?;
        let active: Vec<Arc<Pod>> = pods.iter().filter(|pod| pods::is_active(pod)).cloned().collect();
        let wanted = spec.and_then(|spec| spec.replicas).unwrap_or(1).try_into().unwrap_or(0_usize);
        if set.metadata.deletion_timestamp.is_none() {
            let template = spec.and_then(|spec| spec.template.clone()).unwrap_or_default();
            for _ in active.len()..wanted.min(active.len() + BURST) {
                match self.cluster.pods.create(&pod_from(set, &template)).await {
                    Ok(pod) => {
                        let note = format!("Created pod: {}", pod.name_any());
                        self.herald.note(set, "SuccessfulCreate", note).await;
                    }
                    Err(error) => {
                        let why =
                            std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                        self.herald.warn(set, "FailedCreate", format!("Error creating: {why}")).await;
                        return Err(error);
                    }
                }
            }
            for pod in victims(&active, active.len().saturating_sub(wanted)) {
                self.cluster.pods.delete(&pod, None).await?;
                let note = format!("Deleted pod: {}", pod.name_any());
                self.herald.note(set, "SuccessfulDelete", note).await;
            }
        }
        self.report(set, agenda).await
    }

    /// Says how many pods there are, by what is known now, after what was just done.
    async fn report(&self, set: &ReplicaSet, agenda: &mut Agenda) -> Result<(), Error> {
        let (namespace, name) = (set.namespace().unwrap_or_default(), set.name_any());
        let Some(known) = self.cluster.replica_sets.get(&namespace, &name) else { return Ok(()) };
        let pods = by_controller(&self.cluster.pods.all()).remove(&set.uid().unwrap_or_default());
        let status = status(set, &pods.unwrap_or_default(), known.status.as_ref(), agenda);
        if known.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let mut reported = (*known).clone();
        reported.status = Some(status);
        self.cluster.replica_sets.replace_status(&reported).await.map(|_| ())
    }
}

fn status(
    set: &ReplicaSet,
    pods: &[Arc<Pod>],
    known: Option<&ReplicaSetStatus>,
    agenda: &mut Agenda,
) -> ReplicaSetStatus {
    let spec = set.spec.as_ref();
    let least = spec.and_then(|spec| spec.min_ready_seconds).unwrap_or_default();
    let template = spec.and_then(|spec| spec.template.as_ref()?.metadata.as_ref()?.labels.as_ref());
    let active: Vec<&Arc<Pod>> = pods.iter().filter(|pod| pods::is_active(pod)).collect();
    for from in active.iter().filter_map(|pod| pods::available_from(pod, least)) {
        if from > agenda.now {
            agenda.at(from);
        }
    }
    let number = |is: &dyn Fn(&Pod) -> bool| {
        let number = active.iter().filter(|pod| is(pod)).count();
        (number > 0).then(|| count(number))
    };
    let labelled = |pod: &Pod| {
        template
            .is_none_or(|labels| labels.iter().all(|(key, value)| pods::labels(pod).get(key) == Some(value)))
    };
    ReplicaSetStatus {
        replicas: count(active.len()),
        fully_labeled_replicas: number(&labelled),
        ready_replicas: number(&pods::is_ready),
        available_replicas: number(&|pod| pods::is_available(pod, least, agenda.now)),
        observed_generation: set.metadata.generation,
        conditions: known.and_then(|known| known.conditions.clone()),
        terminating_replicas: known.and_then(|known| known.terminating_replicas),
    }
}

impl Controller for ReplicaSets {
    async fn settle(&mut self, agenda: &mut Agenda) {
        let sets = self.cluster.replica_sets.all();
        if sets.is_empty() {
            return;
        }
        let pods = by_controller(&self.cluster.pods.all());
        for set in sets {
            let done = self.sync(&set, &pods, agenda).await;
            agenda.check(done);
        }
    }
}
