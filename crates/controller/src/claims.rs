//! Addresses that belong to machines: the reconciler of their `IPAMClaim`s.
//!
//! A claim is made by [`crate::vmi`], before the first pod that refers to it, and goes with its owner: the machine, or the instance
//! without one. Our finalizer keeps it while a launcher of either side of a move may still run the guest. Here it is followed from
//! then on: which pod uses the addresses, and when nobody can any more.
//!
//! ```text
//!  made, held ──► pods come and go ──► deleted, a launcher still runs ──► its addresses rest, the finalizer goes
//!                      │  ▲
//!                      └──┘ `ownerPod` is the active pod
//! ```
//!
//! It never gives an address: that is the plugin's. Invariant: addresses are let go of only when no pod that refers to the claim runs.

pub mod chosen;
mod sweep;
pub mod wanted;

use std::sync::Arc;

use api::ipam::{IPAMClaim, OwnerPod};
use api::kubevirt::{VirtualMachine, VirtualMachineInstance};
use api::multus::NetworkAttachmentDefinition;
use api::names::{events, finalizers, labels, reasons};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller, controller, watcher};
use kube::{Api, Resource as _, ResourceExt as _};
use migration::Role;
use serde_json::json;

use crate::error::{Error, describe, named};
use crate::report::Note;
use crate::vmi::ended;
use crate::{Context, edit, pod};
pub(crate) use sweep::run as sweep;
use wanted::{Plug, Standing, judge};

/// Reconciles every claim until dropped.
pub(crate) async fn run(context: Arc<Context>) {
    let client = context.client.clone();
    let launchers = watcher::Config::default().labels(&format!("{}={}", labels::APP, labels::APP_LAUNCHER));
    let controller = Controller::new(Api::<IPAMClaim>::all(client.clone()), watcher::Config::default());
    let known = controller.store();
    controller
        .watches(Api::<Pod>::all(client.clone()), launchers, |pod| referred_to(&pod))
        // Where the guest's home changes, the pod that uses its addresses does.
        .watches(Api::<VirtualMachineInstance>::all(client), watcher::Config::default(), move |vmi| {
            of_instance(&known, &vmi)
        })
        .run(reconcile, |_, error, _| controller::Action::requeue(error.retry_after()), context)
        .for_each(async |_| {})
        .await;
}

/// The claims that a pod refers to.
fn referred_to(pod: &Pod) -> Vec<ObjectRef<IPAMClaim>> {
    let namespace = pod.namespace().unwrap_or_default();
    let claims = pod::claims_of(pod).into_values();
    claims.map(|claim| ObjectRef::new(&claim).within(&namespace)).collect()
}

fn of_instance(known: &Store<IPAMClaim>, vmi: &VirtualMachineInstance) -> Vec<ObjectRef<IPAMClaim>> {
    let instance = ObjectRef::from_obj(vmi);
    let concerned = |claim: &&Arc<IPAMClaim>| instance_of(claim).as_ref() == Some(&instance);
    known.state().iter().filter(concerned).map(|claim| ObjectRef::from_obj(claim.as_ref())).collect()
}

/// The instance whose vNIC the claim is for: a machine and its instance have one name.
pub(crate) fn instance_of(claim: &IPAMClaim) -> Option<ObjectRef<VirtualMachineInstance>> {
    let kinds = [VirtualMachine::kind(&()), VirtualMachineInstance::kind(&())];
    let owner = claim.owner_references().iter().find(|owner| kinds.iter().any(|kind| *kind == owner.kind));
    let name = owner.map(|owner| &owner.name).or_else(|| claim.labels().get(labels::CLAIM_VM))?;
    Some(ObjectRef::new(name).within(&claim.namespace()?))
}

async fn reconcile(claim: Arc<IPAMClaim>, context: Arc<Context>) -> Result<controller::Action, Error> {
    context.report.on(&*claim, async |notes| bring_about(&claim, &context, notes).await).await
}

async fn bring_about(
    claim: &IPAMClaim,
    context: &Context,
    notes: &mut Vec<Note>,
) -> Result<controller::Action, Error> {
    let held = claim.finalizers().iter().any(|finalizer| finalizer == finalizers::PERSISTENT_IPAM);
    // Without our finalizer it is somebody else's business.
    let Some(instance) = instance_of(claim).filter(|_| held) else {
        return Ok(controller::Action::await_change());
    };
    let claims: Api<IPAMClaim> =
        Api::namespaced(context.client.clone(), &claim.namespace().unwrap_or_default());
    let pods = users(claim, &instance.name, context).await?;
    if claim.metadata.deletion_timestamp.is_none() {
        use_by_active(claim, &instance.name, &pods, &claims, context).await?;
    } else if pods.is_empty() {
        let uid = claim.uid().unwrap_or_default();
        let released = ipam::sweep::release_claim(&context.client, &uid).await;
        let released = released.map_err(Error::api("letting go of the addresses of", describe(claim)))?;
        edit::finalizer(&claims, claim, finalizers::PERSISTENT_IPAM, false).await?;
        notes.push(Note::done(events::ADDRESSES_RELEASED, format!("let go of {}", listed(&released))));
    }
    Ok(controller::Action::await_change())
}

fn listed(addresses: &[String]) -> String {
    if addresses.is_empty() { "no address: it had none".to_owned() } else { addresses.join(", ") }
}

/// The launcher pods that refer to a claim and have not ended, from the API server itself: a cache may be late.
async fn users(claim: &IPAMClaim, machine: &str, context: &Context) -> Result<Vec<Pod>, Error> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &claim.namespace().unwrap_or_default());
    let of_machine = ListParams::default().labels(&format!("{}={}", labels::VM_NAME, pod::label_of(machine)));
    let pods = pods.list(&of_machine).await.map_err(Error::api("listing the pods of", describe(claim)))?;
    let name = claim.name_any();
    let uses = |pod: &Pod| !ended(pod) && pod::claims_of(pod).values().any(|claim| *claim == name);
    Ok(pods.items.into_iter().filter(uses).collect())
}

/// Says which pod uses the addresses: of the two of a move, the one that has the guest.
async fn use_by_active(
    claim: &IPAMClaim,
    machine: &str,
    pods: &[Pod],
    claims: &Api<IPAMClaim>,
    context: &Context,
) -> Result<(), Error> {
    let Some(status) = claim.status.as_ref().filter(|status| !status.ips.is_empty()) else { return Ok(()) };
    let namespace = claim.namespace().unwrap_or_default();
    let instances: Api<VirtualMachineInstance> = Api::namespaced(context.client.clone(), &namespace);
    let object = named::<VirtualMachineInstance>(Some(&namespace), machine);
    let Some(vmi) = instances.get_opt(machine).await.map_err(Error::api("reading", object))? else {
        return Ok(());
    };
    let own = |pod: &&Pod| pod.labels().get(labels::CREATED_BY) == vmi.metadata.uid.as_ref();
    let active = |pod: &&Pod| Role::of(vmi.status.as_ref(), pod) == Role::Active;
    let Some(active) = pods.iter().filter(own).find(active) else { return Ok(()) };
    let user = OwnerPod { name: active.name_any() };
    if status.owner_pod.as_ref() == Some(&user) {
        return Ok(());
    }
    let version = json!({ "resourceVersion": claim.resource_version() });
    let patch = Patch::Merge(json!({ "metadata": version, "status": { "ownerPod": user } }));
    let written = claims.patch_status(&claim.name_any(), &PatchParams::default(), &patch).await;
    written.map(drop).map_err(Error::api("writing the status of", describe(claim)))
}

/// How it stands with the addresses of an instance's secondary networks.
pub(crate) async fn plugs(vmi: &VirtualMachineInstance, context: &Context) -> Result<Vec<Plug>, Error> {
    let own = vmi.namespace().unwrap_or_default();
    let claims: Api<IPAMClaim> = Api::namespaced(context.client.clone(), &own);
    let mut plugs = Vec::new();
    for network in &vmi.spec.networks {
        // A network in the place of the pod's own is not the guest's: nothing of it is bridged.
        let Some(multus) = network.multus.as_ref().filter(|multus| multus.default != Some(true)) else {
            continue;
        };
        let (namespace, name) = pod::definition(vmi, &multus.network_name);
        let definitions: Api<NetworkAttachmentDefinition> =
            Api::namespaced(context.client.clone(), &namespace);
        let object = named::<NetworkAttachmentDefinition>(Some(&namespace), name);
        let found = definitions.get_opt(name).await.map_err(Error::api("reading", object.as_str()))?;
        let standing = if let Some(definition) = found {
            let claim = wanted::name(&vmi.name_any(), &network.name);
            let there = claims.get_opt(&claim).await;
            let there = there.map_err(Error::api("reading", named::<IPAMClaim>(Some(&own), &claim)))?;
            judge(vmi, &network.name, &definition, there.as_ref())
        } else {
            let message = format!("{object} does not exist; the instance starts when it does");
            Standing::Refused { reason: reasons::DEFINITION_NOT_FOUND, message }
        };
        plugs.push(Plug { network: network.name.clone(), standing });
    }
    Ok(plugs)
}

/// Makes a claim.
pub(crate) async fn make(claim: &IPAMClaim, context: &Context) -> Result<(), Error> {
    let claims: Api<IPAMClaim> =
        Api::namespaced(context.client.clone(), &claim.namespace().unwrap_or_default());
    let made = claims.create(&PostParams::default(), claim).await;
    made.map(drop).map_err(Error::api("making", describe(claim)))
}

/// Holds a claim that somebody else made, valid for the version that was looked at.
pub(crate) async fn hold(claim: &IPAMClaim, context: &Context) -> Result<(), Error> {
    let claims: Api<IPAMClaim> =
        Api::namespaced(context.client.clone(), &claim.namespace().unwrap_or_default());
    let patch = Patch::Merge(json!({ "metadata": {
        "resourceVersion": claim.resource_version(), "finalizers": claim.finalizers(),
        "labels": claim.labels(), "annotations": claim.annotations(),
    }}));
    let held = claims.patch(&claim.name_any(), &PatchParams::default(), &patch).await;
    held.map(drop).map_err(Error::api("changing", describe(claim)))
}
