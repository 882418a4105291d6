//! `godwit evacuate-cancel`: a VM that was evicted stays where it is.
//!
//! It takes the mark of the eviction off the VM, `status.evacuationNodeName`, and no more: the controller then cancels the move that it
//! made for it.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use api::kubevirt::VirtualMachineInstance;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::machine;

/// Let a VM that was evicted stay on its node
///
/// The same as `kubectl patch vmi VM --subresource=status --type=merge -p '{"status":{"evacuationNodeName":null}}'`. A move that the
/// eviction began is cancelled, unless the VM has arrived. Whoever evicts the VM again, as a `kubectl drain` that still runs does, moves it again.
#[derive(clap::Args)]
pub struct Arguments {
    /// Name of the VM
    #[arg(required_unless_present = "node", conflicts_with = "node")]
    vm: Option<String>,
    /// Its namespace; the kubeconfig's otherwise
    #[arg(short, long, value_name = "NAME", conflicts_with = "node")]
    namespace: Option<String>,
    /// All VMs that were evicted from this node, of every namespace
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    machine::block_on(cancel(arguments))
}

async fn cancel(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let client = Client::try_default().await.context("finding the API server")?;
    let namespace = arguments.namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let marked = match (&arguments.vm, &arguments.node) {
        (Some(vm), _) => vec![evicted(&client, &namespace, vm).await?],
        (None, node) => evicted_from(&client, node.as_deref().unwrap_or_default()).await?,
    };
    for (vmi, node) in marked {
        let (namespace, vm) = (vmi.namespace().unwrap_or_default(), vmi.name_any());
        let instances: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), &namespace);
        let patched = instances.patch_status(&vm, &PatchParams::default(), &Patch::Merge(unmark(&vmi))).await;
        patched.map_err(|error| {
            let not_done = format!("the evacuation of VM {namespace}/{vm} is not cancelled");
            machine::refused(error, &not_done, format!("cancelling the evacuation of VM {namespace}/{vm}"))
        })?;
        println!("VM {namespace}/{vm} stays on node {node}, unless it is evicted again");
    }
    Ok(ExitCode::SUCCESS)
}

type Evicted = (VirtualMachineInstance, String);

async fn evicted(client: &Client, namespace: &str, vm: &str) -> anyhow::Result<Evicted> {
    let vmi = machine::find(client, namespace, vm).await?;
    match mark(&vmi) {
        Some(node) => Ok((vmi, node)),
        None => bail!(
            "VM {vm} is not being evacuated: nothing is cancelled. A move that somebody asked for is cancelled with `kubectl \
             delete vmim`, a drain by taint by taking the taint off the node"
        ),
    }
}

async fn evicted_from(client: &Client, node: &str) -> anyhow::Result<Vec<Evicted>> {
    let instances: Api<VirtualMachineInstance> = Api::all(client.clone());
    let all = instances.list(&ListParams::default()).await.context("listing VMs")?.items;
    let marked = all.into_iter().filter_map(|vmi| mark(&vmi).map(|from| (vmi, from)));
    let there: Vec<_> = marked.filter(|(_, from)| from == node).collect();
    if there.is_empty() {
        bail!("no VM is being evacuated from node {node}: nothing is cancelled");
    }
    Ok(there)
}

fn mark(vmi: &VirtualMachineInstance) -> Option<String> {
    vmi.status.as_ref()?.evacuation_node_name.clone()
}

/// Of this VM, not of another that has its name by now.
fn unmark(vmi: &VirtualMachineInstance) -> Value {
    json!({ "metadata": { "uid": vmi.uid() }, "status": { "evacuationNodeName": null } })
}
