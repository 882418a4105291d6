//! The launcher pod of an instance, as a function of the instance.
//!
//! Its name is derived from the instance's UID: making the pod twice makes it once, whoever was killed in between. It must
//! never hold what only a node can know, and its container never gets the API server's token: a launcher talks to its handler
//! and to nobody else.

mod networks;
mod resources;
mod target;
mod volumes;

use std::collections::BTreeMap;

use api::kubevirt::{VirtualMachineInstance, VirtualMachineInstanceSpec};
use api::names::{annotations, labels, objects};
use k8s_openapi::api::core::v1::{Capabilities, Container, Pod, PodSpec, SecurityContext};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource as _, ResourceExt as _};
use sha2::{Digest as _, Sha256};

pub(crate) use networks::definition;
pub use networks::{Claims, claims_of};
pub use target::{render_target, target_name};

/// Seconds that the pod has beyond the guest's own: the launcher gives back the networks after the guest is gone.
const GRACE_BEYOND_GUEST: i64 = 15;

/// What a launcher may do in its own namespaces, and why.
const CAPABILITIES: [&str; 10] = [
    "NET_ADMIN",        // bridges, taps and addresses of the pod's network namespace
    "NET_BIND_SERVICE", // dnsmasq: DHCP
    "NET_RAW",          // dnsmasq: asks whether an address is taken before it gives it away
    "CHOWN",            // libvirt gives the disks to the hypervisor's user …
    "DAC_OVERRIDE",     // … reads what that user owns …
    "FOWNER",           // … and changes its modes
    "SETUID",           // libvirt and dnsmasq step down to users of their own
    "SETGID",
    "SETPCAP", // and drop what they hold on the way
    "KILL",    // libvirt ends a hypervisor of another user
];

/// The alphabet of Kubernetes' generated names: no vowels, so no words.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// What is the same for every launcher pod of an installation.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// Image of the launcher.
    pub image: String,
}

/// Whether a pod is ready, and stays.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}

/// The pod that runs an instance, with the addresses of these claims.
pub fn render(vmi: &VirtualMachineInstance, claims: &Claims, launcher: &Launcher) -> Pod {
    let mut spec = PodSpec {
        restart_policy: Some("Never".into()),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(grace_period(&vmi.spec) + GRACE_BEYOND_GUEST),
        node_selector: Some(node_selector(&vmi.spec)),
        affinity: vmi.spec.affinity.clone(),
        tolerations: (!vmi.spec.tolerations.is_empty()).then(|| vmi.spec.tolerations.clone()),
        priority_class_name: vmi.spec.priority_class_name.clone(),
        ..PodSpec::default()
    };
    let mut compute = Container {
        name: objects::LAUNCHER_CONTAINER.into(),
        image: Some(launcher.image.clone()),
        command: Some(vec!["virt-launcher".into()]),
        resources: Some(resources::requirements(&vmi.spec)),
        security_context: Some(security_context()),
        ..Container::default()
    };
    volumes::mount_all(vmi, &mut spec, &mut compute);
    spec.containers = vec![compute];
    Pod { metadata: metadata(vmi, claims), spec: Some(spec), status: None }
}

/// The name of an instance's first pod.
pub fn name(vmi: &VirtualMachineInstance) -> String {
    name_for(vmi, &vmi.uid().unwrap_or_default())
}

/// `virt-launcher-<instance>-<five characters>`, cut so that it stays a name. The characters come of the UID of what the pod is
/// made for.
fn name_for(vmi: &VirtualMachineInstance, uid: &str) -> String {
    let name = vmi.name_any();
    let digest = Sha256::digest(uid.as_bytes());
    let suffix: String =
        digest[..5].iter().map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])).collect();
    let room = 253 - objects::LAUNCHER_PREFIX.len() - suffix.len() - 1;
    let name = name.get(..room.min(name.len())).unwrap_or_default().trim_end_matches(['.', '-']);
    format!("{}{name}-{suffix}", objects::LAUNCHER_PREFIX)
}

/// Seconds for the guest to shut down.
pub fn grace_period(spec: &VirtualMachineInstanceSpec) -> i64 {
    spec.termination_grace_period_seconds
        .unwrap_or(VirtualMachineInstanceSpec::DEFAULT_GRACE_PERIOD_SECONDS)
        .max(0)
}

fn metadata(vmi: &VirtualMachineInstance, claims: &Claims) -> ObjectMeta {
    ObjectMeta {
        name: Some(name(vmi)),
        namespace: vmi.namespace(),
        labels: Some(own_labels(vmi)),
        annotations: Some(own_annotations(vmi, claims)),
        owner_references: vmi.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

/// The name of a machine as a label, by which it is looked for: a label has 63 characters, and ends with none of these.
pub(crate) fn label_of(machine: &str) -> String {
    machine.get(..machine.len().min(63)).unwrap_or_default().trim_end_matches(['.', '-']).to_owned()
}

fn own_labels(vmi: &VirtualMachineInstance) -> BTreeMap<String, String> {
    let mut labels = vmi.labels().clone();
    // Where an instance runs is its own label; the pod has `spec.nodeName`.
    labels.remove(labels::NODE_NAME);
    labels.remove(labels::MIGRATION_TARGET_NODE_NAME);
    labels.insert(labels::APP.into(), labels::APP_LAUNCHER.into());
    labels.insert(labels::CREATED_BY.into(), vmi.uid().unwrap_or_default());
    labels.insert(labels::VM_NAME.into(), label_of(&vmi.name_any()));
    labels
}

fn own_annotations(vmi: &VirtualMachineInstance, claims: &Claims) -> BTreeMap<String, String> {
    let mut annotations = vmi.annotations().clone();
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    annotations.remove(annotations::VM_GENERATION);
    annotations.insert(annotations::DOMAIN.into(), vmi.name_any());
    annotations.insert(annotations::MIGRATION_TRANSPORT_UNIX.into(), "true".into());
    annotations.insert("kubectl.kubernetes.io/default-container".into(), objects::LAUNCHER_CONTAINER.into());
    annotations.extend(networks::annotations(vmi, claims));
    annotations
}

fn node_selector(spec: &VirtualMachineInstanceSpec) -> BTreeMap<String, String> {
    let mut selector = spec.node_selector.clone();
    selector.insert(labels::SCHEDULABLE.into(), "true".into());
    selector
}

fn security_context() -> SecurityContext {
    SecurityContext {
        run_as_user: Some(0),
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            add: Some(CAPABILITIES.map(str::to_owned).to_vec()),
            drop: Some(vec!["ALL".into()]),
        }),
        ..SecurityContext::default()
    }
}

#[cfg(test)]
mod tests;
