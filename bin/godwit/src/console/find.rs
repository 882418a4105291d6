//! The pod in which a VM runs now.

use api::kubevirt::{InstancePhase, VirtualMachine, VirtualMachineInstance};
use api::names::labels;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error(
        "there is no VM {name} in namespace {namespace}: kubectl get vm,vmi -A lists those that there are"
    )]
    NoSuch { namespace: String, name: String },
    #[error("VM {name} does not run: {state}")]
    NotRunning { name: String, state: String },
    #[error(
        "VM {name} runs on node {node}, but its pod is gone or not ready: kubectl -n {namespace} describe vmi {name} may say why"
    )]
    NoPod { namespace: String, name: String, node: String },
    #[error("asking the API server failed")]
    Api(#[from] kube::Error),
}

/// The launcher pod of a VM that runs; of two, while it moves, that of the node that has it.
pub async fn launcher(client: &Client, namespace: &str, name: &str) -> Result<String, Problem> {
    let (instances, machines): (Api<VirtualMachineInstance>, Api<VirtualMachine>) =
        (Api::namespaced(client.clone(), namespace), Api::namespaced(client.clone(), namespace));
    let not_running = |state: String| Problem::NotRunning { name: name.to_owned(), state };
    let Some(instance) = instances.get_opt(name).await? else {
        let Some(machine) = machines.get_opt(name).await? else {
            return Err(Problem::NoSuch { namespace: namespace.to_owned(), name: name.to_owned() });
        };
        let shown = machine.status.and_then(|status| status.printable_status);
        return Err(not_running(
            shown.map_or_else(|| "it has no instance".to_owned(), |shown| shown.to_string()),
        ));
    };
    let uid = instance.uid().unwrap_or_default();
    let status = instance.status.unwrap_or_default();
    if status.phase != Some(InstancePhase::Running) {
        let phase = status.phase.map_or_else(|| "new".to_owned(), |phase| phase.to_string());
        return Err(not_running(format!("its instance is {phase}")));
    }
    let node = status.node_name.unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let own = ListParams::default().labels(&format!("{}={uid}", labels::CREATED_BY));
    let is_it = |pod: &Pod| {
        let here = pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_ref() == Some(&node));
        here && pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"))
    };
    let found = pods.list(&own).await?.items.into_iter().find(is_it);
    found.map(|pod| pod.name_any()).ok_or_else(|| Problem::NoPod {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        node,
    })
}
