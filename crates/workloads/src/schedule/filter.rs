//! Whether a pod may go to a node, and if not, why not. The rules are asked in kube-scheduler's order: the first that
//! refuses is the reason that people read.

use k8s_openapi::api::core::v1::{Pod, Taint};

use super::affinity;
use super::node::{UNSCHEDULABLE, effective_taints, matches_node, tolerates};
use super::requests::{PODS, host_ports, requests};
use super::spread;
use super::world::{Seat, World};
use crate::pods;

/// Why a node is not for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// It is cordoned.
    Unschedulable,
    /// The first taint that the pod does not tolerate.
    Taint {
        key: String,
        value: String,
    },
    /// The pod's node selector or required node affinity.
    NodeAffinity,
    /// Another pod has the port of the node.
    Ports,
    /// Resources of which too little is left.
    Insufficient(Vec<String>),
    PodAffinity,
    PodAntiAffinity,
    /// A pod that is there does not want this one near.
    ExistingAntiAffinity,
    /// It would make the spread uneven.
    Spread,
    /// It has no label by which the spread could be judged.
    SpreadLabel,
}

impl Reason {
    /// As kube-scheduler words it; one text a lacking resource.
    pub fn texts(&self) -> Vec<String> {
        let text = match self {
            Self::Unschedulable => "node(s) were unschedulable",
            Self::Taint { key, value } => {
                return vec![format!("node(s) had untolerated taint {{{key}: {value}}}")];
            }
            Self::NodeAffinity => "node(s) didn't match Pod's node affinity/selector",
            Self::Ports => "node(s) didn't have free ports for the requested pod ports",
            Self::Insufficient(resources) => {
                let of = |resource: &String| match resource.as_str() {
                    PODS => "Too many pods".into(),
                    other => format!("Insufficient {other}"),
                };
                return resources.iter().map(of).collect();
            }
            Self::PodAffinity => "node(s) didn't match pod affinity rules",
            Self::PodAntiAffinity => "node(s) didn't match pod anti-affinity rules",
            Self::ExistingAntiAffinity => "node(s) didn't satisfy existing pods anti-affinity rules",
            Self::Spread => "node(s) didn't match pod topology spread constraints",
            Self::SpreadLabel => {
                "node(s) didn't match pod topology spread constraints (missing required label)"
            }
        };
        vec![text.into()]
    }
}

/// Whether `pod` may go to the node of `seat`, as the `world` is.
pub fn filter(pod: &Pod, seat: &Seat, world: &World) -> Result<(), Reason> {
    let spec = pods::spec(pod);
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let taints = effective_taints(&seat.node);
    let untolerated = |taint: &&Taint| {
        matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute") && !tolerates(tolerations, taint)
    };
    if taints.iter().filter(untolerated).any(|taint| taint.key == UNSCHEDULABLE) {
        return Err(Reason::Unschedulable);
    }
    if let Some(taint) = taints.iter().find(untolerated) {
        return Err(Reason::Taint { key: taint.key.clone(), value: taint.value.clone().unwrap_or_default() });
    }
    if !matches_node(spec, &seat.node) {
        return Err(Reason::NodeAffinity);
    }
    if host_ports(spec).iter().any(|port| seat.ports.iter().any(|taken| taken.clashes(port))) {
        return Err(Reason::Ports);
    }
    let lacking = lacking(pod, seat);
    if !lacking.is_empty() {
        return Err(Reason::Insufficient(lacking));
    }
    spread::check(pod, seat, world)?;
    affinity::check(pod, seat, world)
}

/// Resources of which the node has less left than the pod wants. What a pod does not ask for it is not refused.
fn lacking(pod: &Pod, seat: &Seat) -> Vec<String> {
    let wanted = requests(pods::spec(pod));
    let short = |(resource, amount): (&str, u64)| {
        let taken = seat.requested.get(resource).saturating_add(amount);
        (amount > 0 && taken > seat.allocatable.get(resource)).then(|| resource.to_owned())
    };
    wanted.iter().filter_map(short).collect()
}
