//! Reviews that need more than the object: migrations are judged beside their VM, evictions beside the VM in the pod.
//!
//! It looks, asks [`crate::admission`], and marks a VM that has to leave its node. It must never decide.

use api::kubevirt::{KubeVirt, VirtualMachineInstance, VirtualMachineInstanceMigration};
use api::names::annotations;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::reflector::Store;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::admission::eviction::{self, Verdict};
use crate::admission::{Answer, migration};
use crate::error::{Error, describe, named};
use crate::installation;

/// Who asked, on an eviction; and the one who rebalances.
const REQUESTED_BY: &str = "requested-by";
const DESCHEDULER: &str = "sigs.k8s.io/descheduler";

/// The answer to a review of these kinds; none: it is of another.
pub(super) async fn review(
    client: &Client,
    asked: &Value,
    mutating: bool,
    namespace: &str,
    store: &Store<KubeVirt>,
) -> Result<Option<Answer>, Error> {
    match (asked["kind"]["kind"].as_str(), mutating) {
        (Some("VirtualMachineInstanceMigration"), true) => Ok(Some(migration::fill_in(asked, namespace))),
        (Some("VirtualMachineInstanceMigration"), false) => {
            new_migration(client, asked, namespace).await.map(Some)
        }
        (Some("Eviction"), false) => evict(client, asked, store).await.map(Some),
        _ => Ok(None),
    }
}

async fn new_migration(client: &Client, asked: &Value, installed_in: &str) -> Result<Answer, Error> {
    let object = asked["object"].clone();
    // The schema says what is wrong with what cannot be read.
    let Ok(new) = serde_json::from_value::<VirtualMachineInstanceMigration>(object) else {
        return Ok(Answer::Allow);
    };
    let namespace = asked["namespace"].as_str().unwrap_or_default();
    let vmi = instance(client, namespace, &new.spec.vmi_name).await?;
    let migrations: Api<VirtualMachineInstanceMigration> = Api::namespaced(client.clone(), namespace);
    let others = migrations
        .list(&ListParams::default())
        .await
        .map_err(Error::api("listing the migrations beside", describe(&new)))?
        .items;
    let installation = installation::now(client, installed_in).await?;
    let around =
        migration::Around { vmi: vmi.as_ref(), others: &others, installation: installation.as_ref() };
    let causes = migration::validate(&new.spec, namespace, around);
    Ok(if causes.is_empty() { Answer::Allow } else { Answer::Refuse(causes) })
}

async fn evict(client: &Client, asked: &Value, store: &Store<KubeVirt>) -> Result<Answer, Error> {
    let text = |key: &str| asked[key].as_str().unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = pods.get_opt(name).await.map_err(Error::api("reading", named::<Pod>(Some(namespace), name)))?;
    let domain = pod.as_ref().and_then(|pod| pod.annotations().get(annotations::DOMAIN).cloned());
    let (Some(pod), Some(domain)) = (pod, domain) else { return Ok(Answer::Allow) };
    let Some(vmi) = instance(client, namespace, &domain).await? else { return Ok(Answer::Allow) };
    let default = installation::rules(store).defaults.eviction_strategy;
    match eviction::judge(&pod, &vmi, default) {
        Verdict::Allow => Ok(Answer::Allow),
        Verdict::Deny(message) => Ok(Answer::later(message)),
        Verdict::Evacuate { node, message } => {
            if asked["dryRun"] != true {
                let rebalances = asked["object"]["metadata"]["annotations"][REQUESTED_BY] == DESCHEDULER;
                mark(client, &vmi, &node, rebalances).await?;
            }
            Ok(Answer::later(message))
        }
    }
}

/// Marks a VM: it has to leave this node. Only evictions write this field, and what ends them takes it off.
async fn mark(
    client: &Client,
    vmi: &VirtualMachineInstance,
    node: &str,
    rebalances: bool,
) -> Result<(), Error> {
    let instances: Api<VirtualMachineInstance> =
        Api::namespaced(client.clone(), &vmi.namespace().unwrap_or_default());
    let params = PatchParams::default();
    // What an earlier eviction was for says nothing of this one.
    if rebalances != vmi.annotations().contains_key(annotations::EVICTION_SOURCE) {
        let source = rebalances.then_some("descheduler");
        let note = json!({ "metadata": { "uid": vmi.uid(), "annotations": { annotations::EVICTION_SOURCE: source } } });
        instances
            .patch(&vmi.name_any(), &params, &Patch::Merge(note))
            .await
            .map_err(Error::api("noting who evicts", describe(vmi)))?;
    }
    let mark = json!({ "metadata": { "uid": vmi.uid() }, "status": { "evacuationNodeName": node } });
    instances
        .patch_status(&vmi.name_any(), &params, &Patch::Merge(mark))
        .await
        .map_err(Error::api("marking for evacuation", describe(vmi)))?;
    Ok(())
}

async fn instance(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<VirtualMachineInstance>, Error> {
    let instances: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), namespace);
    let object = named::<VirtualMachineInstance>(Some(namespace), name);
    instances.get_opt(name).await.map_err(Error::api("reading", object))
}
