//! The conditions of a pod that its node sets. Others set others, and these stay as they are.

use k8s_openapi::api::core::v1::PodCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Sight, is_initialised};
use crate::pod::seen::{Run, Setup};

/// Whether a condition holds, and why.
#[derive(Clone, Default)]
struct Verdict {
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl Verdict {
    fn holds() -> Self {
        Self { holds: true, ..Self::default() }
    }

    fn because(reason: &'static str) -> Self {
        Self { reason: Some(reason), ..Self::default() }
    }

    /// It does not hold because of these.
    fn lacks(reason: &'static str, what: &str, these: &[String]) -> Self {
        Self { message: Some(format!("{what}: [{}]", these.join(" "))), ..Self::because(reason) }
    }
}

impl Sight<'_> {
    /// Those of the API, with ours as they are now.
    pub(super) fn conditions(&self, phase: &str) -> Vec<PodCondition> {
        let containers = self.containers_ready(phase);
        let gates = self.closed_gates();
        let ready = if containers.holds && !gates.is_empty() {
            Verdict::lacks("ReadinessGatesNotReady", "conditions that are not True", &gates)
        } else {
            containers.clone()
        };
        let sandbox = Verdict { holds: self.seen.sandbox == Setup::Ready, ..Verdict::default() };
        let mut conditions = self.known().and_then(|known| known.conditions.clone()).unwrap_or_default();
        for (name, verdict) in [
            ("PodReadyToStartContainers", sandbox),
            ("Initialized", self.initialised(phase)),
            ("Ready", ready),
            ("ContainersReady", containers),
        ] {
            self.set(&mut conditions, name, verdict);
        }
        conditions
    }

    fn containers_ready(&self, phase: &str) -> Verdict {
        let unready = self.unready();
        match phase {
            "Succeeded" => Verdict::because("PodCompleted"),
            "Failed" => Verdict::because("PodFailed"),
            _ if unready.is_empty() => Verdict::holds(),
            _ => Verdict::lacks("ContainersNotReady", "containers with unready status", &unready),
        }
    }

    fn initialised(&self, phase: &str) -> Verdict {
        if phase == "Succeeded" {
            return Verdict { holds: true, ..Verdict::because("PodCompleted") };
        }
        if is_initialised(self.plan, self.seen) {
            return Verdict::holds();
        }
        let undone = |name: &&String| {
            let container = self.seen.container(name);
            !(container.exit().is_some_and(|exit| exit.code == 0) || container.started)
        };
        let undone: Vec<String> =
            self.plan.init.iter().map(|wanted| &wanted.name).filter(undone).cloned().collect();
        Verdict::lacks("ContainersNotInitialized", "containers with incomplete status", &undone)
    }

    fn set(&self, conditions: &mut Vec<PodCondition>, name: &str, verdict: Verdict) {
        let known = conditions.iter_mut().find(|condition| condition.type_ == name);
        let status = if verdict.holds { "True" } else { "False" };
        let same = known.as_ref().filter(|before| before.status == status);
        let since = same.and_then(|before| before.last_transition_time.clone()).unwrap_or(Time(self.now));
        let condition = PodCondition {
            type_: name.to_owned(),
            status: status.to_owned(),
            reason: verdict.reason.map(str::to_owned),
            message: verdict.message,
            last_transition_time: Some(since),
            observed_generation: self.pod.metadata.generation,
            last_probe_time: None,
        };
        match known {
            Some(there) => *there = condition,
            None => conditions.push(condition),
        }
    }

    /// Containers that should be ready and are not.
    fn unready(&self) -> Vec<String> {
        let wanted = self.plan.sidecars().chain(&self.plan.main);
        let unready = |name: &&String| {
            let container = self.seen.container(name);
            !(container.ready && matches!(container.run, Run::Running { .. }))
        };
        wanted.map(|wanted| &wanted.name).filter(unready).cloned().collect()
    }

    /// Readiness gates whose condition is not true.
    fn closed_gates(&self) -> Vec<String> {
        let gates = self.pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_ref());
        let conditions = || self.known().and_then(|known| known.conditions.as_ref()).into_iter().flatten();
        let is_open = |name: &String| {
            conditions().any(|condition| condition.type_ == *name && condition.status == "True")
        };
        let names = gates.into_iter().flatten().map(|gate| &gate.condition_type);
        names.filter(|name| !is_open(name)).cloned().collect()
    }
}
