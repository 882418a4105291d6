//! Whether an instance can move, from its spec and its claims alone: it is known before the guest runs.

use api::kubevirt::{Interface, VirtualMachineInstance, VirtualMachineInstanceSpec, Volume};
use api::names::{annotations, reasons};
use kube::ResourceExt as _;

use super::decide::Situation;

/// Why an instance cannot move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    pub reason: &'static str,
    pub message: String,
}

/// The first thing that keeps it where it is; none: it can move.
pub fn decide(situation: &Situation<'_>) -> Option<Obstacle> {
    interfaces(situation).or_else(|| disks(situation)).or_else(|| processor(&situation.vmi.spec))
}

/// Whether a move has to copy disks.
pub fn copies_disks(spec: &VirtualMachineInstanceSpec) -> bool {
    spec.volumes.iter().any(|volume| volume.empty_disk.is_some())
}

fn interfaces(situation: &Situation<'_>) -> Option<Obstacle> {
    let obstacle = |message| Obstacle { reason: reasons::INTERFACE_NOT_LIVE_MIGRATABLE, message };
    let vmi = situation.vmi;
    for interface in &vmi.spec.domain.devices.interfaces {
        if let Some(plugin) = &interface.binding {
            if !situation.migratable_bindings.contains(&plugin.name) {
                return Some(obstacle(format!(
                    "cannot migrate VMI: interface {:?} uses the binding {:?}, which is not said to be migratable in the KubeVirt object",
                    interface.name, plugin.name
                )));
            }
        } else if is_bridged_to_pod_network(vmi, interface) && !may_move_with_pod_bridge(vmi) {
            return Some(obstacle(format!(
                "cannot migrate VMI which does not use masquerade, bridge with {} VM annotation or a migratable plugin to connect to the pod network",
                annotations::ALLOW_POD_BRIDGE_NETWORK_LIVE_MIGRATION
            )));
        }
    }
    None
}

fn is_bridged_to_pod_network(vmi: &VirtualMachineInstance, interface: &Interface) -> bool {
    let on_pod_network = vmi.spec.network_of(interface).is_none_or(|network| network.pod.is_some());
    on_pod_network && interface.masquerade.is_none() && interface.passt_binding.is_none()
}

/// The annotation counts by being there, as in KubeVirt; only an explicit no is a no.
fn may_move_with_pod_bridge(vmi: &VirtualMachineInstance) -> bool {
    let annotation = vmi.annotations().get(annotations::ALLOW_POD_BRIDGE_NETWORK_LIVE_MIGRATION);
    annotation.is_some_and(|value| value != "false")
}

fn disks(situation: &Situation<'_>) -> Option<Obstacle> {
    let obstacle = |message| Obstacle { reason: reasons::DISKS_NOT_LIVE_MIGRATABLE, message };
    let bound = |volume: &Volume| {
        if volume.host_disk.as_ref().is_some_and(|disk| disk.shared != Some(true)) {
            return Some(format!("cannot migrate VMI with non-shared HostDisk: volume {:?}", volume.name));
        }
        let claim = &volume.persistent_volume_claim.as_ref()?.claim_name;
        let modes = situation
            .claims
            .get(claim)
            .and_then(Option::as_ref)
            .and_then(|claim| claim.spec.as_ref().and_then(|spec| spec.access_modes.clone()));
        let shared = modes.is_some_and(|modes| modes.iter().any(|mode| mode == "ReadWriteMany"));
        (!shared).then(|| {
            format!("cannot migrate VMI: PVC {claim} is not shared, live migration requires that all PVCs must be shared (using ReadWriteMany access mode)")
        })
    };
    situation.vmi.spec.volumes.iter().find_map(bound).map(obstacle)
}

fn processor(spec: &VirtualMachineInstanceSpec) -> Option<Obstacle> {
    let model = spec.domain.cpu.as_ref()?.model.as_deref()?;
    (model == "host-passthrough").then(|| Obstacle {
        reason: reasons::CPU_MODE_NOT_LIVE_MIGRATABLE,
        message: "cannot migrate VMI: the guest sees the processor of its node as it is (host-passthrough)"
            .into(),
    })
}
