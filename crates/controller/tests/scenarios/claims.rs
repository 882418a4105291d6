//! Addresses that belong to machines: the claims that the controller makes, holds and lets go of. The plugin's part is played.

use api::condition::{self, ConditionEntry as _};
use api::godwit::AddressAllocation;
use api::ipam::IPAMClaim;
use api::kubevirt::{InstancePhase, MigrationPhase, VirtualMachine, VirtualMachineInstance};
use api::multus::NetworkAttachmentDefinition;
use api::names::conditions;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use testkit::eventually;

use crate::support::{Cluster, NAMESPACE, instance, machine, object};

const CLAIM: &str = "wren.blue";
const ADDRESS: &str = "192.0.2.10";

fn on_blue() -> Value {
    json!({
        "domain": {
            "memory": { "guest": "64Mi" },
            "devices": { "interfaces": [{ "name": "blue", "bridge": {} }] },
        },
        "networks": [{ "name": "blue", "multus": { "networkName": "guests" } }],
    })
}

/// A machine with a vNIC on a network whose addresses can be claimed.
pub fn plugged_machine(name: &str) -> VirtualMachine {
    let mut machine = machine(name, "Always");
    machine.spec.template.spec = object(on_blue());
    machine
}

impl Cluster {
    fn claims(&self) -> Api<IPAMClaim> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub async fn define_network(&self) {
        let config = json!({
            "cniVersion": "1.0.0", "name": "lan", "type": "bridge",
            "ipam": { "type": "godwit-ipam", "range": "192.0.2.0/24" },
        });
        let definitions: Api<NetworkAttachmentDefinition> = Api::namespaced(self.client.clone(), NAMESPACE);
        let definition = NetworkAttachmentDefinition::with_config("guests", config.to_string());
        definitions.create(&PostParams::default(), &definition).await.unwrap();
    }

    async fn create_plugged(&self, name: &str) -> VirtualMachineInstance {
        self.machines.create(&PostParams::default(), &plugged_machine(name)).await.unwrap();
        self.instance(name).await
    }

    /// What the plugin does when the first pod of a claim gets its interface.
    pub async fn plugin_gives(&self, pod: &Pod, claim: &str) {
        let uid = self.claims().get(claim).await.unwrap().uid().unwrap();
        let allocations: Api<AddressAllocation> = Api::all(self.client.clone());
        let allocation: AddressAllocation = object(json!({
            "apiVersion": "godwit.dev/v1alpha1", "kind": "AddressAllocation",
            "metadata": { "name": format!("{ADDRESS}.shared"), "labels": { "godwit.dev/owner-uid": uid } },
            "spec": {
                "address": ADDRESS, "prefixLength": 24, "network": "shared",
                "owner": { "claim": { "namespace": NAMESPACE, "name": claim, "uid": uid } },
            },
        }));
        allocations.create(&PostParams::default(), &allocation).await.unwrap();
        let status =
            json!({ "status": { "ips": [format!("{ADDRESS}/24")], "ownerPod": { "name": pod.name_any() } } });
        self.claims().patch_status(claim, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    /// Waits until the address is nobody's, and rests.
    pub async fn address_rests(&self) {
        let allocations: Api<AddressAllocation> = Api::all(self.client.clone());
        eventually("the address to rest", async || {
            let allocation = allocations.get_opt(&format!("{ADDRESS}.shared")).await.unwrap()?;
            (allocation.spec.owner.is_none() && allocation.spec.released_at.is_some()).then_some(())
        })
        .await;
    }

    async fn used_by(&self, pod: &Pod) {
        eventually("the claim to be used by the active pod", async || {
            let status = self.claims().get(CLAIM).await.unwrap().status?;
            (status.owner_pod?.name == pod.name_any()).then_some(())
        })
        .await;
    }

    async fn why(&self, name: &str, reason: &str) -> String {
        eventually(&format!("the reason {reason}"), async || {
            let status = self.instance(name).await.status?;
            let told = condition::find(&status.conditions, conditions::SYNCHRONIZED)?;
            (told.reason() == reason).then(|| told.message().to_owned())
        })
        .await
    }

    async fn claim_gone(&self, claim: &IPAMClaim) {
        eventually("the claim to be gone", async || {
            let there = self.claims().get_opt(&claim.name_any()).await.unwrap();
            there.is_none_or(|there| there.uid() != claim.uid()).then_some(())
        })
        .await;
    }
}

fn refers_to(pod: &Pod) -> Vec<String> {
    controller::pod::claims_of(pod).into_values().collect()
}

/// Leaves an address that has rested, for the sweep to find.
pub async fn leave_an_address(cluster: &Cluster) {
    let allocations: Api<AddressAllocation> = Api::all(cluster.client.clone());
    let allocation: AddressAllocation = object(json!({
        "apiVersion": "godwit.dev/v1alpha1", "kind": "AddressAllocation",
        "metadata": { "name": "192.0.2.99.shared" },
        "spec": {
            "address": "192.0.2.99", "prefixLength": 24, "network": "shared", "releasedAt": "2026-01-01T00:00:00.000000Z",
        },
    }));
    allocations.create(&PostParams::default(), &allocation).await.unwrap();
}

#[tokio::test]
async fn whoever_begins_to_lead_sweeps_addresses_that_nobody_holds() {
    let cluster = Cluster::new().await;
    leave_an_address(&cluster).await;
    cluster.start();
    let allocations: Api<AddressAllocation> = Api::all(cluster.client.clone());
    eventually("the address to be forgotten", async || {
        allocations.list(&ListParams::default()).await.unwrap().items.is_empty().then_some(())
    })
    .await;
}

/// The whole of it; the rights that it takes are noted by another test.
pub async fn life_of_a_claim(cluster: &Cluster) {
    let first = cluster.create_plugged("wren").await;
    let pod = cluster.pod_of(&first).await;
    let claim = cluster.claims().get(CLAIM).await.expect("a claim is there before the pod");
    assert_eq!(refers_to(&pod), [CLAIM]);
    cluster.plugin_gives(&pod, CLAIM).await;
    cluster.run("wren").await;

    let migration = cluster.migrate("move", "wren").await;
    let target = cluster.target_pod(&migration).await;
    assert_eq!(refers_to(&target), [CLAIM], "both pods of a move refer to the same");
    cluster.used_by(&pod).await;
    cluster.brought_to(&migration, "node02", MigrationPhase::Succeeded).await;
    cluster.used_by(&target).await;
    cluster.pod_ends(&pod, "Succeeded").await;
    cluster.pod_goes(&pod).await;

    cluster.set_run_strategy("wren", "Halted").await;
    cluster.pod_ends_when_told(&first).await;
    cluster.instance_gone(&first).await;
    let kept = cluster.claims().get(CLAIM).await.unwrap();
    assert_eq!((kept.uid(), kept.metadata.deletion_timestamp), (claim.uid(), None), "it outlives its pods");

    cluster.set_run_strategy("wren", "Always").await;
    let second = cluster.next_instance(&first).await;
    let pod = cluster.pod_of(&second).await;
    assert_eq!(refers_to(&pod), [CLAIM]);
    cluster.run("wren").await;
    cluster.used_by(&pod).await;
    cluster.delete_machine("wren").await;
    cluster.pod_ends_when_told(&second).await;
    cluster.machine_gone("wren").await;
    cluster.claim_gone(&claim).await;
    cluster.address_rests().await;
}

/// A machine that has an address, from its making to its end; nothing is left of it.
pub async fn short_life(cluster: &Cluster, name: &str) {
    let claims = async || cluster.claims().list(&ListParams::default()).await.unwrap().items;
    let instance = cluster.create_plugged(name).await;
    let pod = cluster.pod_of(&instance).await;
    let [claim] = &claims().await[..] else { panic!("one claim, before its pod") };
    assert_eq!(refers_to(&pod), [claim.name_any()]);
    cluster.plugin_gives(&pod, &claim.name_any()).await;
    cluster.run(name).await;
    cluster.delete_machine(name).await;
    cluster.pod_ends_when_told(&instance).await;
    cluster.machine_gone(name).await;
    cluster.claim_gone(claim).await;
    cluster.address_rests().await;
    assert!(claims().await.is_empty(), "none is left, and none was made again");
    let allocations: Api<AddressAllocation> = Api::all(cluster.client.clone());
    allocations.delete(&format!("{ADDRESS}.shared"), &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_machine_keeps_its_claim_through_a_move_and_a_restart_and_lets_go_of_it_in_the_end() {
    let cluster = Cluster::with_controller().await;
    cluster.add_node("node02").await;
    cluster.define_network().await;
    Box::pin(life_of_a_claim(&cluster)).await;
}

#[tokio::test]
async fn a_claim_is_held_until_the_last_launcher_has_ended() {
    let cluster = Cluster::with_controller().await;
    cluster.define_network().await;
    let instance = cluster.create_plugged("wren").await;
    let pod = cluster.pod_of(&instance).await;
    cluster.plugin_gives(&pod, CLAIM).await;
    cluster.run("wren").await;
    // Somebody deletes the claim under a running guest.
    let claim = cluster.claims().get(CLAIM).await.unwrap();
    cluster.claims().delete(CLAIM, &DeleteParams::default()).await.unwrap();
    cluster.set_run_strategy("wren", "Halted").await;
    cluster.told_to_end(&pod).await;
    let held = cluster.claims().get(CLAIM).await.unwrap();
    assert!(held.metadata.deletion_timestamp.is_some() && !held.finalizers().is_empty(), "{held:?}");
    cluster.pod_goes(&pod).await;
    cluster.claim_gone(&claim).await;
    cluster.address_rests().await;
    cluster.set_run_strategy("wren", "Always").await;
    let next = cluster.next_instance(&instance).await;
    cluster.pod_of(&next).await;
    assert_ne!(cluster.claims().get(CLAIM).await.unwrap().uid(), claim.uid(), "a new one is made");
}

#[tokio::test]
async fn an_instance_waits_for_its_network_and_never_takes_the_claim_of_another() {
    let cluster = Cluster::with_controller().await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let owner = object(json!({ "metadata": { "name": "other" } }));
    let owner = maps.create(&PostParams::default(), &owner).await.unwrap();
    let other: IPAMClaim = object(json!({
        "metadata": { "name": CLAIM, "ownerReferences": [
            { "apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": owner.uid().unwrap(), "controller": true },
        ]},
        "spec": { "network": "lan", "interface": "" },
    }));
    let mut plugged = instance("wren");
    plugged.spec = object(on_blue());
    let created = cluster.instances.create(&PostParams::default(), &plugged).await.unwrap();
    let message = cluster.why("wren", "NetworkAttachmentDefinitionNotFound").await;
    assert!(message.contains("default/guests does not exist"), "{message}");

    let api: Api<IPAMClaim> = cluster.claims();
    let taken = api.create(&PostParams::default(), &other).await.unwrap();
    cluster.define_network().await;
    nudge(&cluster, "1").await;
    let message = cluster.why("wren", "IPAMClaimNotOwned").await;
    assert!(message.contains("belongs to ConfigMap other"), "{message}");
    assert!(cluster.pods_of(&created).await.is_empty(), "nothing is begun");
    assert_eq!(api.get(CLAIM).await.unwrap().metadata, taken.metadata, "nothing is taken");
    api.delete(CLAIM, &DeleteParams::default()).await.unwrap();
    nudge(&cluster, "2").await;
    let pod = cluster.pod_of(&created).await;
    assert_eq!(refers_to(&pod), [CLAIM]);
    let claim = api.get(CLAIM).await.unwrap();
    assert_eq!(
        claim.owner_references()[0].uid,
        created.uid().unwrap(),
        "without a machine it is the instance's"
    );
}

/// In place of the ten seconds until the next look.
async fn nudge(cluster: &Cluster, value: &str) {
    let nudge = Patch::Merge(json!({ "metadata": { "labels": { "nudge": value } } }));
    cluster.instances.patch("wren", &PatchParams::default(), &nudge).await.unwrap();
}

#[tokio::test]
async fn a_claim_made_beforehand_is_used_and_held_and_stays_its_makers() {
    let cluster = Cluster::with_controller().await;
    cluster.define_network().await;
    let made: IPAMClaim = object(json!({
        "metadata": { "name": CLAIM, "annotations": { "godwit.dev/addresses": ADDRESS } },
        "spec": { "network": "lan", "interface": "" },
    }));
    let made = cluster.claims().create(&PostParams::default(), &made).await.unwrap();
    let instance = cluster.create_plugged("wren").await;
    let pod = cluster.pod_of(&instance).await;
    assert_eq!(refers_to(&pod), [CLAIM]);
    let held = cluster.claims().get(CLAIM).await.unwrap();
    assert_eq!((held.uid(), held.finalizers().len()), (made.uid(), 1));
    cluster.run("wren").await;
    cluster.delete_machine("wren").await;
    cluster.pod_ends_when_told(&instance).await;
    cluster.machine_gone("wren").await;
    assert_eq!(cluster.claims().get(CLAIM).await.unwrap().uid(), made.uid());
    cluster.claims().delete(CLAIM, &DeleteParams::default()).await.unwrap();
    cluster.claim_gone(&made).await;
}

#[tokio::test]
async fn an_instance_says_why_its_claim_has_no_address() {
    let cluster = Cluster::with_controller().await;
    cluster.define_network().await;
    let mut wanting = plugged_machine("wren");
    let metadata = wanting.spec.template.metadata.get_or_insert_default();
    let chosen = json!({ "blue": [ADDRESS] }).to_string();
    metadata.annotations.insert("network.kubevirt.io/addresses".into(), chosen);
    cluster.machines.create(&PostParams::default(), &wanting).await.unwrap();
    let instance = cluster.instance("wren").await;
    let pod = cluster.pod_of(&instance).await;
    assert_eq!(cluster.claims().get(CLAIM).await.unwrap().annotations()["godwit.dev/addresses"], ADDRESS);
    cluster.phase("wren", InstancePhase::Scheduling).await;
    let told = |status: &str, reason: &str, message: &str| {
        json!({ "status": { "ips": [], "conditions": [{
            "type": "IPsAllocated", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]}})
    };
    let refusal = told("False", "IPAddressConflict", "192.0.2.10 is taken by claim default/other.blue");
    cluster.claims().patch_status(CLAIM, &PatchParams::default(), &Patch::Merge(refusal)).await.unwrap();
    let message = cluster.why("wren", "IPAddressConflict").await;
    assert_eq!(message, "192.0.2.10 is taken by claim default/other.blue");
    let given = told("True", "SuccessfulAllocation", "");
    cluster.claims().patch_status(CLAIM, &PatchParams::default(), &Patch::Merge(given)).await.unwrap();
    cluster.run_pod(&pod, "node01").await;
    let scheduled = cluster.phase("wren", InstancePhase::Scheduled).await;
    let conditions = scheduled.status.unwrap().conditions;
    assert!(condition::find(&conditions, conditions::SYNCHRONIZED).is_none(), "{conditions:?}");
}
