//! `godwit migrate`: asks for the move of a VM, and shows it.
//!
//! It makes one `VirtualMachineInstanceMigration` and watches it; the move does not need this process, and goes on without it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use api::condition::{self, ConditionStatus};
use api::kubevirt::{
    MigrationPhase, MigrationStatus, VirtualMachineInstance, VirtualMachineInstanceMigration,
    VirtualMachineInstanceMigrationSpec,
};
use api::names::conditions;
use futures::TryStreamExt as _;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::watcher::watch_object;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::machine;
use crate::table::Table;

/// The label of a node that says its name.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Move a running VM to another node
///
/// The same as `kubectl create` of a VirtualMachineInstanceMigration. Ends with 0 when the VM has moved (without --wait: when the
/// move was asked for), with 1 when it has not; the VM then runs where it ran.
#[derive(clap::Args)]
pub struct Arguments {
    /// Name of the VM
    vm: String,
    /// Its namespace; the kubeconfig's otherwise
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Where to; any node that suits otherwise
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Show the move, and end with it
    #[arg(long)]
    wait: bool,
    /// Give up watching after so many seconds; the move goes on
    #[arg(long, requires = "wait", value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    machine::block_on(migrate(arguments))
}

async fn migrate(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let client = Client::try_default().await.context("finding the API server")?;
    let namespace = arguments.namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let vm = &arguments.vm;
    let instance = machine::find(&client, &namespace, vm).await?;
    let node = match &arguments.node {
        Some(node) => Some(hostname(&client, &instance, node).await?),
        None => None,
    };
    let migrations: Api<VirtualMachineInstanceMigration> = Api::namespaced(client, &namespace);
    let asked = migrations.create(&PostParams::default(), &request(vm, node)).await.map_err(|error| {
        machine::refused(
            error,
            &format!("VM {vm} is not asked to move"),
            format!("asking for a move of VM {vm}"),
        )
    })?;
    let name = asked.name_any();
    if !arguments.wait {
        if arguments.json {
            println!("{}", json!({ "migration": name, "namespace": namespace }));
        } else {
            println!("VM {vm} is asked to move. To see it: kubectl get vmim -n {namespace} {name} -w");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let watching = follow(&migrations, &name);
    let limit = arguments.timeout.map_or(Duration::MAX, Duration::from_secs);
    let Ok(ended) = tokio::time::timeout(limit, watching).await else {
        bail!(
            "VM {vm} has not moved after {} s. The move goes on: `kubectl describe vmim -n {namespace} {name}` says what it \
             waits for, `kubectl delete vmim -n {namespace} {name}` cancels it",
            limit.as_secs()
        );
    };
    let outcome = Outcome::of(&instance, &ended?);
    if arguments.json {
        println!("{}", outcome.json(&name));
    } else {
        print!("{outcome}");
    }
    match outcome.failure {
        None => Ok(ExitCode::SUCCESS),
        Some(reason) => bail!("VM {vm} has not moved: {reason}. It runs on {}", outcome.from),
    }
}

/// The label that a node is chosen by. A node that is not there, or has the VM already, would be waited for in vain.
async fn hostname(client: &Client, instance: &VirtualMachineInstance, node: &str) -> anyhow::Result<String> {
    let vm = instance.name_any();
    if instance.status.as_ref().and_then(|status| status.node_name.as_deref()) == Some(node) {
        bail!("VM {vm} is not asked to move: it runs on node {node}");
    }
    let nodes: Api<Node> = Api::all(client.clone());
    match nodes.get_opt(node).await {
        Ok(Some(found)) => Ok(found.labels().get(HOSTNAME).cloned().unwrap_or_else(|| node.to_owned())),
        Ok(None) => {
            bail!("VM {vm} is not asked to move: there is no node {node}; kubectl get nodes lists them")
        }
        // Who may move VMs need not be allowed to look at nodes.
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(node.to_owned()),
        Err(error) => Err(error).with_context(|| format!("looking for node {node}")),
    }
}

fn request(vm: &str, hostname: Option<String>) -> VirtualMachineInstanceMigration {
    let hostname = hostname.map(|hostname| (HOSTNAME.to_owned(), hostname));
    VirtualMachineInstanceMigration {
        metadata: ObjectMeta { generate_name: Some(format!("{vm}-")), ..ObjectMeta::default() },
        spec: VirtualMachineInstanceMigrationSpec {
            vmi_name: vm.to_owned(),
            added_node_selector: hostname.into_iter().collect(),
            ..VirtualMachineInstanceMigrationSpec::default()
        },
        status: None,
    }
}

/// Shows the move until it is over.
async fn follow(
    migrations: &Api<VirtualMachineInstanceMigration>,
    name: &str,
) -> anyhow::Result<VirtualMachineInstanceMigration> {
    let bar = display();
    let mut seen = std::pin::pin!(watch_object(migrations.clone(), name));
    let mut was_there = false;
    loop {
        match seen.try_next().await {
            Ok(Some(Some(migration))) => {
                was_there = true;
                let status = migration.status.clone().unwrap_or_default();
                tell(&bar, &status);
                if status.phase.is_some_and(MigrationPhase::is_final) {
                    bar.finish_and_clear();
                    return Ok(migration);
                }
            }
            Ok(Some(None)) if was_there => {
                bail!("the migration {name} was deleted, which cancels it; the VM runs where it ran")
            }
            Ok(Some(None)) => {}
            Ok(None) => bail!("the watch of migration {name} ended"),
            // The watch is made again by itself.
            Err(cause) => bar.set_message(format!("the API server does not answer: {cause}")),
        }
    }
}

/// Nothing is drawn where nobody looks.
fn display() -> ProgressBar {
    let bar = ProgressBar::new(100);
    if let Ok(style) = ProgressStyle::with_template("{spinner} [{bar:30}] {pos:>3} %  {elapsed}  {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

fn tell(bar: &ProgressBar, status: &MigrationStatus) {
    bar.set_position(status.progress.as_ref().map_or(0, |progress| progress.percent.into()));
    bar.set_message(describe(status));
}

/// One line: where a move stands, and why it does not go on.
fn describe(status: &MigrationStatus) -> String {
    let phase = status.phase.map_or("asked for", MigrationPhase::as_str);
    let waits = condition::find(&status.conditions, conditions::MIGRATION_QUEUED)
        .filter(|condition| condition.status == ConditionStatus::True);
    match (&status.progress, waits.and_then(|condition| condition.message.as_deref())) {
        (Some(progress), _) if status.phase == Some(MigrationPhase::Running) => {
            let sample = &progress.sample;
            format!(
                "{}, {} to go, round {}",
                progress.rate,
                HumanBytes(sample.remaining_bytes),
                sample.iteration.max(1)
            )
        }
        (_, Some(reason)) => format!("{phase}: {reason}"),
        _ => phase.to_owned(),
    }
}

/// How a move ended, for people and for scripts.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    vm: String,
    from: String,
    to: Option<String>,
    seconds: Option<f64>,
    downtime_ms: Option<u64>,
    bytes: Option<u64>,
    network: Option<String>,
    failure: Option<String>,
}

impl Outcome {
    fn of(instance: &VirtualMachineInstance, migration: &VirtualMachineInstanceMigration) -> Self {
        let status = migration.status.clone().unwrap_or_default();
        let state = status.migration_state.unwrap_or_default();
        let sample = status.progress.map(|progress| progress.sample);
        let ran_on = instance.status.as_ref().and_then(|status| status.node_name.clone());
        let failed = status.phase != Some(MigrationPhase::Succeeded);
        // Times of Kubernetes are whole seconds; the hypervisor's own count is not, but ends with a move that fails.
        let whole = state.start_timestamp.zip(state.end_timestamp);
        let whole = whole.map(|(start, end)| end.0.duration_since(start.0).as_secs_f64());
        let counted = sample.as_ref().and_then(|sample| sample.elapsed_ms).filter(|_| !failed);
        let seconds = counted.map(|millis| Duration::from_millis(millis).as_secs_f64()).or(whole);
        Self {
            vm: instance.name_any(),
            from: state.source_node.or(ran_on).unwrap_or_default(),
            to: state.target_node,
            seconds,
            // Before the switch-over it is what would be expected.
            downtime_ms: sample.as_ref().filter(|_| !failed).and_then(|sample| sample.downtime_ms),
            bytes: sample.as_ref().map(|sample| sample.processed_bytes),
            network: sample
                .and_then(|sample| sample.network)
                .or_else(|| state.migration_network_type.map(|network| network.as_str().to_owned())),
            failure: failed
                .then(|| state.failure_reason.unwrap_or_else(|| "its migration does not say why".to_owned())),
        }
    }

    fn json(&self, migration: &str) -> serde_json::Value {
        json!({
            "migration": migration,
            "vm": self.vm,
            "succeeded": self.failure.is_none(),
            "failureReason": self.failure,
            "sourceNode": self.from,
            "targetNode": self.to,
            "seconds": self.seconds,
            "downtimeMs": self.downtime_ms,
            "bytes": self.bytes,
            "network": self.network,
        })
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unknown = || "-".to_owned();
        let mut table = Table::new(["VM", "FROM", "TO", "TIME", "DOWNTIME", "MOVED", "NETWORK"]);
        table.row([
            self.vm.clone(),
            self.from.clone(),
            self.to.clone().unwrap_or_else(unknown),
            self.seconds.map_or_else(unknown, |seconds| format!("{seconds:.1} s")),
            self.downtime_ms.map_or_else(unknown, |downtime| format!("{downtime} ms")),
            self.bytes.map_or_else(unknown, |bytes| HumanBytes(bytes).to_string()),
            self.network.clone().unwrap_or_else(unknown),
        ]);
        write!(out, "{table}")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use super::*;

    fn instance() -> VirtualMachineInstance {
        serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "db"},
            "spec": {"domain": {"devices": {}}}, "status": {"nodeName": "node-1"},
        }))
        .unwrap()
    }

    fn migration(status: serde_json::Value) -> VirtualMachineInstanceMigration {
        let mut migration = request("db", None);
        migration.status = Some(serde_json::from_value(status).unwrap());
        migration
    }

    #[test]
    fn a_move_is_summed_up() {
        let ended = migration(json!({
            "phase": "Succeeded",
            "migrationState": {
                "sourceNode": "node-1", "targetNode": "node-2",
                "startTimestamp": "2026-01-01T00:00:00Z", "endTimestamp": "2026-01-01T00:00:03Z",
                "migrationNetworkType": "Migration",
            },
            "progress": {
                "percent": 100, "rate": "0 B/s", "totalBytes": 1, "remainingBytes": 0, "processedBytes": 536_870_912,
                "bytesPerSecond": 0, "dirtyBytesPerSecond": 0, "iteration": 2, "downtimeMs": 41,
            },
        }));
        let outcome = Outcome::of(&instance(), &ended);
        assert_eq!(
            outcome.to_string(),
            "VM   FROM     TO       TIME    DOWNTIME   MOVED        NETWORK\n\
             db   node-1   node-2   3.0 s   41 ms      512.00 MiB   Migration\n"
        );
        assert_eq!(outcome.json("m")["succeeded"], true);
    }

    #[test]
    fn a_move_that_failed_says_why_and_where_the_vm_is() {
        let failed = migration(json!({
            "phase": "Failed", "migrationState": {"failureReason": "no node is left"},
        }));
        let outcome = Outcome::of(&instance(), &failed);
        assert_eq!((outcome.failure.as_deref(), outcome.from.as_str()), (Some("no node is left"), "node-1"));
        let early = Outcome::of(&instance(), &migration(json!({"phase": "Failed"})));
        assert!(early.failure.is_some());
    }

    #[test]
    fn a_move_that_waits_says_for_what() {
        let waiting = json!({
            "phase": "Pending",
            "conditions": [{"type": "migrationQueued", "status": "True", "message": "two moves leave node-1 already"}],
        });
        assert_eq!(describe(&migration(waiting).status.unwrap()), "Pending: two moves leave node-1 already");
        assert_eq!(describe(&MigrationStatus::default()), "asked for");
    }

    #[test]
    fn a_node_is_chosen_by_its_name() {
        let selector = request("db", Some("node-2".to_owned())).spec.added_node_selector;
        assert_eq!(selector.get("kubernetes.io/hostname").map(String::as_str), Some("node-2"));
        assert!(request("db", None).spec.added_node_selector.is_empty());
    }
}
