//! PodDisruptionBudgets: how many pods may be evicted now. The API server spends from what is written here, and refuses
//! an eviction when nothing is left.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;

use crate::Error;
use crate::cluster::{Agenda, Cluster, Controller};
use crate::owner::{amount, controller_of, count};
use crate::pods::{self, selects};

/// An eviction that was granted and did not come to pass is given back after this.
const GRANT: SignedDuration = SignedDuration::from_mins(2);

pub struct Budgets {
    cluster: Arc<Cluster>,
}

impl Budgets {
    pub fn new(cluster: Arc<Cluster>) -> Self {
        Self { cluster }
    }

    async fn sync(
        &self,
        budget: &PodDisruptionBudget,
        pods: &[Arc<Pod>],
        agenda: &mut Agenda,
    ) -> Result<(), Error> {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        let covered: Vec<&Pod> = pods
            .iter()
            .filter(|pod| pod.namespace() == budget.namespace() && selects(selector, pods::labels(pod)))
            .map(|pod| &**pod)
            .collect();
        let status = match self.expected(budget, &covered) {
            Ok((expected, desired)) => status(budget, &covered, expected, desired, agenda),
            Err(message) => failed(budget, &message, agenda.now),
        };
        if budget.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let mut reported = budget.clone();
        reported.status = Some(status);
        self.cluster.budgets.replace_status(&reported).await.map(|_| ())
    }

    /// How many pods there should be, and how many of them must work.
    fn expected(&self, budget: &PodDisruptionBudget, covered: &[&Pod]) -> Result<(i32, i32), String> {
        let spec = budget.spec.clone().unwrap_or_default();
        if let Some(unavailable) = spec.max_unavailable {
            let expected = self.scale(covered)?;
            return Ok((expected, (expected - amount(Some(&unavailable), expected, true)).max(0)));
        }
        match spec.min_available {
            Some(IntOrString::Int(least)) => Ok((count(covered.len()), least)),
            share @ Some(IntOrString::String(_)) => {
                let expected = self.scale(covered)?;
                Ok((expected, amount(share.as_ref(), expected, true)))
            }
            None => Ok((count(covered.len()), 0)),
        }
    }

    /// The replicas that the owners of the pods ask for, together.
    fn scale(&self, covered: &[&Pod]) -> Result<i32, String> {
        let mut owners: BTreeMap<String, i32> = BTreeMap::new();
        for pod in covered {
            let Some(owner) = controller_of(&pod.metadata) else {
                return Err(format!("found no controller ref for pod {:?}", pod.name_any()));
            };
            let set = self.cluster.replica_sets.get(&pod.namespace().unwrap_or_default(), &owner.name);
            let set = set.filter(|set| owner.kind == "ReplicaSet" && set.uid().as_ref() == Some(&owner.uid));
            let Some(set) = set else {
                return Err(format!("{} does not implement the scale subresource", owner.kind));
            };
            // A Deployment in the middle of a rollout has several sets, and wants what it says itself.
            let above = controller_of(&set.metadata).and_then(|above| {
                let above = self.cluster.deployments.get(&set.namespace()?, &above.name)?;
                Some((above.uid()?, above.spec.as_ref()?.replicas.unwrap_or(1)))
            });
            let own = (owner.uid.clone(), set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1));
            owners.extend([above.unwrap_or(own)]);
        }
        Ok(owners.values().sum())
    }
}

fn status(
    budget: &PodDisruptionBudget,
    covered: &[&Pod],
    expected: i32,
    desired: i32,
    agenda: &mut Agenda,
) -> PodDisruptionBudgetStatus {
    let granted = budget.status.as_ref().and_then(|status| status.disrupted_pods.clone()).unwrap_or_default();
    // A pod that is being deleted no longer counts by itself.
    let pending = |name: &str, since: &Time| {
        since.0 + GRANT > agenda.now
            && covered.iter().any(|pod| pod.name_any() == name && !pods::is_terminating(pod))
    };
    let disrupted: BTreeMap<String, Time> =
        granted.into_iter().filter(|(name, since)| pending(name, since)).collect();
    for since in disrupted.values() {
        agenda.at(since.0 + GRANT);
    }
    let healthy = covered.iter().filter(|pod| {
        pods::is_ready(pod) && !pods::is_terminating(pod) && !disrupted.contains_key(&pod.name_any())
    });
    let healthy = count(healthy.count());
    let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
    let condition = match allowed {
        0 => ("False", "InsufficientPods", ""),
        _ => ("True", "SufficientPods", ""),
    };
    PodDisruptionBudgetStatus {
        observed_generation: budget.metadata.generation,
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        disruptions_allowed: Some(allowed),
        current_healthy: Some(healthy),
        desired_healthy: Some(desired),
        expected_pods: Some(expected),
        conditions: Some(vec![judged(budget, condition, agenda.now)]),
    }
}

/// What cannot be counted is not disrupted.
fn failed(budget: &PodDisruptionBudget, message: &str, now: Timestamp) -> PodDisruptionBudgetStatus {
    let known = budget.status.clone().unwrap_or_default();
    PodDisruptionBudgetStatus {
        observed_generation: budget.metadata.generation,
        disruptions_allowed: Some(0),
        conditions: Some(vec![judged(budget, ("False", "SyncFailed", message), now)]),
        ..known
    }
}

fn judged(
    budget: &PodDisruptionBudget,
    (status, reason, message): (&str, &str, &str),
    now: Timestamp,
) -> Condition {
    let conditions = budget.status.as_ref().and_then(|status| status.conditions.as_ref());
    let known = conditions.into_iter().flatten().find(|known| known.type_ == "DisruptionAllowed");
    let since = known.filter(|known| known.status == status).map(|known| known.last_transition_time.clone());
    Condition {
        type_: "DisruptionAllowed".into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: budget.metadata.generation,
        // Seconds, as the API keeps them: what is read back is what was written.
        last_transition_time: since
            .unwrap_or_else(|| Time(Timestamp::from_second(now.as_second()).unwrap_or(now))),
    }
}

impl Controller for Budgets {
    async fn settle(&mut self, agenda: &mut Agenda) {
        let budgets = self.cluster.budgets.all();
        if budgets.is_empty() {
            return;
        }
        let pods = self.cluster.pods.all();
        for budget in budgets {
            let done = self.sync(&budget, &pods, agenda).await;
            agenda.check(done);
        }
    }
}
