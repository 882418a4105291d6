//! Deployments: a template rolled out through ReplicaSets, one a version of it. How many replicas each gets is decided
//! in [`rollout`]; the pods themselves are the business of the ReplicaSets.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;

use crate::Error;
use crate::cluster::{Agenda, Cluster, Controller};
use crate::herald::Herald;
use crate::owner::{by_controller, claim, count};
use crate::pods;

mod conditions;
mod rollout;
mod sets;

use conditions::Counts;
use rollout::{Set, recreate, roll, share};
use sets::{DESIRED, REVISION, bounds, desired, is_of, newest, recreates, revision, wanted};

pub struct Deployments {
    cluster: Arc<Cluster>,
    herald: Herald,
}

type Pods = HashMap<String, Vec<Arc<Pod>>>;

impl Deployments {
    pub fn new(cluster: Arc<Cluster>) -> Self {
        Self { herald: cluster.herald("deployment-controller"), cluster }
    }

    async fn sync(
        &self,
        deployment: &Deployment,
        sets: &HashMap<String, Vec<Arc<ReplicaSet>>>,
        pods: &Pods,
        agenda: &mut Agenda,
    ) -> Result<(), Error> {
        let spec = deployment.spec.as_ref();
        let selector = spec.map(|spec| &spec.selector);
        let mut sets = claim(deployment, selector, &self.cluster.replica_sets, sets).await?;
        sets.sort_by_key(|set| (pods::created(set.metadata.creation_timestamp.as_ref()), set.name_any()));
        if deployment.metadata.deletion_timestamp.is_none() {
            let is_paused = spec.is_some_and(|spec| spec.paused == Some(true));
            if is_paused || was_scaled(deployment, &sets) {
                self.scale(deployment, &sets).await?;
            } else {
                self.advance(deployment, &sets, pods, agenda).await?;
            }
        }
        self.report(deployment, agenda).await
    }

    /// One step of a rollout.
    async fn advance(
        &self,
        deployment: &Deployment,
        sets: &[Arc<ReplicaSet>],
        pods: &Pods,
        agenda: &Agenda,
    ) -> Result<(), Error> {
        let old: Vec<Arc<ReplicaSet>> = sets.iter().filter(|set| !is_of(deployment, set)).cloned().collect();
        let any_old_pod = old.iter().filter_map(|set| pods.get(&set.uid().unwrap_or_default()));
        let any_old_pod = any_old_pod.flatten().any(|pod| !pods::is_finished(pod));
        let found = newest(deployment, sets);
        if recreates(deployment) && any_old_pod && found.is_none() {
            // Not even a set for the new template, before the last of the old pods is gone.
            for set in &old {
                self.resize(deployment, set, 0).await?;
            }
            return Ok(());
        }
        let new = self.new_set(deployment, found, &old).await?;
        let least = deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default();
        let view = |set: &ReplicaSet| {
            let own = pods.get(&set.uid().unwrap_or_default()).map_or(&[][..], Vec::as_slice);
            let active = || own.iter().filter(|pod| pods::is_active(pod));
            let available = active().filter(|pod| pods::is_available(pod, least, agenda.now)).count();
            Set { wanted: wanted(set), present: count(active().count()), available: count(available) }
        };
        let olds: Vec<Set> = old.iter().map(|set| view(set)).collect();
        let (size, sizes) = if recreates(deployment) {
            recreate(desired(deployment), view(&new), &olds, any_old_pod)
        } else {
            roll(bounds(deployment), view(&new), &olds)
        };
        self.resize(deployment, &new, size).await?;
        for (set, size) in old.iter().zip(sizes) {
            self.resize(deployment, set, size).await?;
        }
        if is_done(deployment) {
            for set in sets::expired(deployment, &old) {
                self.cluster.replica_sets.delete(&set, None).await?;
            }
        }
        Ok(())
    }

    /// The set of the template as it is now, with the highest number of all.
    async fn new_set(
        &self,
        deployment: &Deployment,
        found: Option<&Arc<ReplicaSet>>,
        old: &[Arc<ReplicaSet>],
    ) -> Result<Arc<ReplicaSet>, Error> {
        let number = old.iter().map(|set| revision(set)).max().unwrap_or_default() + 1;
        let set = if let Some(found) = found {
            let number = number.max(revision(found));
            let annotations = sets::annotations(deployment, Some(found), number);
            let least = deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
            let known = found.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
            if annotations == *found.annotations() && least.unwrap_or_default() == known.unwrap_or_default() {
                found.clone()
            } else {
                let change =
                    json!({"metadata": {"annotations": annotations}, "spec": {"minReadySeconds": least}});
                self.cluster.replica_sets.patch(found, change).await?
            }
        } else {
            self.create_set(deployment, number).await?
        };
        let shown = revision(&set).to_string();
        if deployment.annotations().get(REVISION) != Some(&shown) {
            let change = json!({"metadata": {"annotations": {REVISION: shown}}});
            self.cluster.deployments.patch(deployment, change).await?;
        }
        Ok(set)
    }

    async fn create_set(&self, deployment: &Deployment, number: i64) -> Result<Arc<ReplicaSet>, Error> {
        match self.cluster.replica_sets.create(&sets::create(deployment, number)).await {
            // The name belongs to another template: another count of collisions makes another name.
            Err(error) if error.code() == Some(409) => {
                let mut marked = deployment.clone();
                let status = marked.status.get_or_insert_default();
                status.collision_count = Some(status.collision_count.unwrap_or_default() + 1);
                self.cluster.deployments.replace_status(&marked).await?;
                Err(error)
            }
            made => made,
        }
    }

    /// The number of replicas changed, perhaps in the middle of a rollout: every set keeps its share.
    async fn scale(&self, deployment: &Deployment, sets: &[Arc<ReplicaSet>]) -> Result<(), Error> {
        let active: Vec<&Arc<ReplicaSet>> = sets.iter().filter(|set| wanted(set) > 0).collect();
        let newest = newest(deployment, sets);
        let sizes = match (active.as_slice(), newest) {
            ([], Some(new)) => return self.resize(deployment, new, desired(deployment)).await,
            ([_], _) => vec![desired(deployment)],
            _ => {
                let total = if desired(deployment) > 0 { bounds(deployment).most() } else { 0 };
                let had: Vec<i32> = active.iter().map(|set| wanted(set)).collect();
                if had.iter().sum::<i32>() == total || !was_scaled(deployment, sets) {
                    had
                } else {
                    share(total, &had)
                }
            }
        };
        for (set, size) in active.into_iter().zip(sizes) {
            self.resize(deployment, set, size).await?;
        }
        Ok(())
    }

    async fn resize(&self, deployment: &Deployment, set: &Arc<ReplicaSet>, size: i32) -> Result<(), Error> {
        let had = wanted(set);
        let annotations = sets::size_annotations(deployment);
        let is_noted = annotations.iter().all(|(key, value)| set.annotations().get(key) == Some(value));
        if had == size && (is_noted || size == 0) {
            return Ok(());
        }
        let noted: sets::Annotations = annotations.into_iter().collect();
        let change = json!({"metadata": {"annotations": noted}, "spec": {"replicas": size}});
        self.cluster.replica_sets.patch(set, change).await?;
        if had != size {
            let way = if size > had { "up" } else { "down" };
            let note = format!("Scaled {way} replica set {} from {had} to {size}", set.name_any());
            self.herald.note(deployment, "ScalingReplicaSet", note).await;
        }
        Ok(())
    }

    /// Says how far it is, by what is known now, after what was just done.
    async fn report(&self, deployment: &Deployment, agenda: &mut Agenda) -> Result<(), Error> {
        let (namespace, name) = (deployment.namespace().unwrap_or_default(), deployment.name_any());
        let Some(known) = self.cluster.deployments.get(&namespace, &name) else { return Ok(()) };
        // A spec that is newer than what was acted upon is for the next pass.
        if known.metadata.generation != deployment.metadata.generation {
            return Ok(());
        }
        let sets =
            by_controller(&self.cluster.replica_sets.all()).remove(&deployment.uid().unwrap_or_default());
        let sets = sets.unwrap_or_default();
        let pods = by_controller(&self.cluster.pods.all());
        let least = deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default();
        let mut counts = Counts::default();
        for set in &sets {
            let own = pods.get(&set.uid().unwrap_or_default()).into_iter().flatten();
            for pod in own.filter(|pod| pods::is_active(pod)) {
                counts.replicas += 1;
                counts.updated += i32::from(is_of(deployment, set));
                counts.ready += i32::from(pods::is_ready(pod));
                match pods::available_from(pod, least) {
                    Some(from) if from <= agenda.now => counts.available += 1,
                    Some(from) => agenda.at(from),
                    None => {}
                }
            }
        }
        let new = newest(deployment, &sets).map(|set| set.name_any()).unwrap_or_default();
        let (status, next) = conditions::status(&known, counts, &new, agenda.now);
        if let Some(next) = next {
            agenda.at(next);
        }
        if known.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let mut reported = (*known).clone();
        reported.status = Some(status);
        self.cluster.deployments.replace_status(&reported).await.map(|_| ())
    }
}

/// Whether the number of replicas is another than the sets were last sized for.
fn was_scaled(deployment: &Deployment, sets: &[Arc<ReplicaSet>]) -> bool {
    let size = desired(deployment).to_string();
    let sized = |set: &&Arc<ReplicaSet>| wanted(set) > 0 && set.annotations().contains_key(DESIRED);
    sets.iter().filter(sized).any(|set| set.annotations().get(DESIRED) != Some(&size))
}

fn is_done(deployment: &Deployment) -> bool {
    let number = |of: fn(&k8s_openapi::api::apps::v1::DeploymentStatus) -> Option<i32>| {
        deployment.status.as_ref().and_then(of).unwrap_or_default()
    };
    let wanted = desired(deployment);
    number(|status| status.updated_replicas) == wanted
        && number(|status| status.replicas) == wanted
        && number(|status| status.available_replicas) == wanted
        && deployment.status.as_ref().and_then(|status| status.observed_generation)
            == deployment.metadata.generation
}

impl Controller for Deployments {
    async fn settle(&mut self, agenda: &mut Agenda) {
        let deployments = self.cluster.deployments.all();
        if deployments.is_empty() {
            return;
        }
        let sets = by_controller(&self.cluster.replica_sets.all());
        let pods = by_controller(&self.cluster.pods.all());
        for deployment in deployments {
            let done = self.sync(&deployment, &sets, &pods, agenda).await;
            agenda.check(done);
        }
    }
}
