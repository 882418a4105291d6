//! What commands about a VM have in common.

use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use api::kubevirt::VirtualMachineInstance;
use kube::{Api, Client};

/// Runs a command to its end.
pub fn block_on(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(command)
}

/// The VM, which must run.
pub async fn find(client: &Client, namespace: &str, vm: &str) -> anyhow::Result<VirtualMachineInstance> {
    let instances: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), namespace);
    match instances.get_opt(vm).await.with_context(|| format!("looking for VM {vm}"))? {
        Some(instance) => Ok(instance),
        None => bail!("no VM {vm} runs in namespace {namespace}: `kubectl get vmi -A` shows those that do"),
    }
}

/// Why something was not done. What the API server says is meant for people; what else can go wrong has its own words.
pub fn refused(error: kube::Error, not_done: &str, doing: String) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow!("{not_done}: {}", status.message),
        other => anyhow::Error::new(other).context(doing),
    }
}
