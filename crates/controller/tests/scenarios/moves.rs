//! Hands for the parts that a move needs: a person who asks for it, and the handlers at both ends, who write what the real ones
//! write, and only when told.

use std::sync::Mutex;
use std::time::Duration;

use api::condition;
use api::kubevirt::{
    AbortStatus, KubeVirt, MigrationPhase, MigrationState, VirtualMachineInstance,
    VirtualMachineInstanceMigration,
};
use api::migrations::MigrationPolicy;
use api::names::labels;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use testkit::eventually;

use crate::support::{Cluster, INSTALLATION, NAMESPACE, object};

pub type Migration = VirtualMachineInstanceMigration;

pub fn migration(name: &str, instance: &str) -> Migration {
    object(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": { "name": name }, "spec": { "vmiName": instance },
    }))
}

/// What a person does and sees.
impl Cluster {
    pub fn migrations(&self) -> Api<Migration> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// A running instance on this node.
    pub async fn runs_on(&self, name: &str, node: &str) -> VirtualMachineInstance {
        let created = self.create_instance(name).await;
        let pod = self.pod_of(&created).await;
        self.run_pod(&pod, node).await;
        self.phase(name, api::kubevirt::InstancePhase::Scheduled).await;
        self.handler_says(name, api::kubevirt::InstancePhase::Running).await;
        self.ready(name).await
    }

    pub async fn migrate(&self, name: &str, instance: &str) -> Migration {
        self.migrations().create(&PostParams::default(), &migration(name, instance)).await.unwrap()
    }

    pub async fn cancel(&self, name: &str) {
        self.migrations().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn migration_phase(&self, name: &str, phase: MigrationPhase) -> Migration {
        let last = Mutex::new(None);
        let wanted = format!("migration {name} to be {phase}");
        let wait = eventually(&wanted, async || {
            let migration = self.migrations().get_opt(name).await.unwrap()?;
            last.lock().unwrap().clone_from(&migration.status);
            (migration.status.as_ref()?.phase? == phase).then_some(migration)
        });
        tokio::time::timeout(Duration::from_secs(29), wait)
            .await
            .unwrap_or_else(|_| panic!("{wanted}: {:?}", last.lock().unwrap()))
    }

    pub async fn migration_gone(&self, name: &str) {
        eventually("the migration to be gone", async || {
            self.migrations().get_opt(name).await.unwrap().is_none().then_some(())
        })
        .await;
    }

    /// Why it waits, once it does.
    pub async fn waits_for(&self, name: &str) -> String {
        eventually("a reason to wait", async || {
            let status = self.migrations().get_opt(name).await.unwrap()?.status?;
            condition::find(&status.conditions, "migrationQueued")?.reason.clone()
        })
        .await
    }

    pub async fn target_pod(&self, migration: &Migration) -> Pod {
        let own = format!("{}={}", labels::MIGRATION_JOB_UID, migration.uid().unwrap());
        eventually("the target pod", async || {
            let found = kube::api::ListParams::default().labels(&own);
            self.pods.list(&found).await.unwrap().items.pop()
        })
        .await
    }

    pub async fn told_to_end(&self, pod: &Pod) {
        eventually("the pod to be told to end", async || {
            let there = self.pods.get_opt(&pod.name_any()).await.unwrap();
            there.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()).then_some(())
        })
        .await;
    }
}

/// What the handlers do.
impl Cluster {
    pub async fn record(&self, instance: &str, change: impl Fn(&mut MigrationState)) {
        eventually("the handler's word on the move to be taken", async || {
            let mut vmi = self.instances.get(instance).await.unwrap();
            change(vmi.status.as_mut()?.migration_state.as_mut()?);
            self.instances.replace_status(instance, &PostParams::default(), &vmi).await.ok()
        })
        .await;
    }

    pub async fn target_listens(&self, instance: &str) {
        self.record(instance, |state| {
            state.target_node_address = Some("192.0.2.2".into());
            state.target_direct_migration_node_ports = [("9186".to_owned(), 0)].into();
        })
        .await;
    }

    pub async fn source_begins(&self, instance: &str) {
        self.record(instance, |state| state.start_timestamp = Some(now())).await;
    }

    pub async fn guest_arrives(&self, instance: &str) {
        self.record(instance, |state| {
            state.target_node_domain_detected = true;
            state.target_node_domain_ready_timestamp = Some(now());
        })
        .await;
    }

    pub async fn source_is_done(&self, instance: &str) {
        self.record(instance, |state| {
            state.completed = true;
            state.end_timestamp = Some(now());
        })
        .await;
    }

    pub async fn source_fails(&self, instance: &str, why: &str) {
        self.record(instance, |state| {
            state.completed = true;
            state.failed = true;
            state.failure_reason = Some(why.to_owned());
            state.end_timestamp = Some(now());
        })
        .await;
    }

    /// The source is asked to give up, and does.
    pub async fn source_aborts(&self, instance: &str) {
        eventually("the source to be asked to abort", async || {
            let state = self.instance(instance).await.status?.migration_state?;
            state.abort_requested.then_some(())
        })
        .await;
        self.record(instance, |state| {
            state.completed = true;
            state.failed = true;
            state.abort_status = Some(AbortStatus::Succeeded);
            state.end_timestamp = Some(now());
        })
        .await;
    }
}

/// What an administrator does.
impl Cluster {
    /// Makes the installation, or changes it: with this configuration, which is in effect at once.
    pub async fn configure(&self, configuration: Value) {
        let installation: KubeVirt = object(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": { "name": "kubevirt" },
            "spec": { "configuration": configuration },
        }));
        let installations: Api<KubeVirt> = Api::namespaced(self.client.clone(), INSTALLATION);
        let applied = PatchParams::apply("administrator").force();
        installations.patch("kubevirt", &applied, &Patch::Apply(&installation)).await.unwrap();
        self.installation_says("True", "AllComponentsReady").await;
    }

    /// The operator's part: it has seen the configuration as it is, and says this of it.
    pub async fn installation_says(&self, available: &str, reason: &str) {
        let installations: Api<KubeVirt> = Api::namespaced(self.client.clone(), INSTALLATION);
        let seen = installations.get("kubevirt").await.unwrap().metadata.generation;
        let conditions = json!([{ "type": "Available", "status": available, "reason": reason }]);
        let said =
            Patch::Merge(json!({ "status": { "observedGeneration": seen, "conditions": conditions } }));
        installations.patch_status("kubevirt", &PatchParams::default(), &said).await.unwrap();
    }

    pub async fn try_policy(
        &self,
        name: &str,
        settings: Value,
        labels: Value,
    ) -> kube::Result<MigrationPolicy> {
        let mut spec = settings;
        spec["selectors"] = json!({ "virtualMachineInstanceSelector": labels });
        let policy: MigrationPolicy = object(json!({
            "apiVersion": "migrations.kubevirt.io/v1alpha1", "kind": "MigrationPolicy",
            "metadata": { "name": name }, "spec": spec,
        }));
        Api::all(self.client.clone()).create(&PostParams::default(), &policy).await
    }

    pub async fn create_policy(&self, name: &str, settings: Value, labels: Value) {
        self.try_policy(name, settings, labels).await.unwrap();
    }

    /// The migration entered its phase so many seconds earlier.
    pub async fn turn_back_the_clock(&self, name: &str, seconds: i64) {
        eventually("the clock to be turned back", async || {
            let mut migration = self.migrations().get(name).await.unwrap();
            let entered = migration.status.as_mut()?.phase_transition_timestamps.last_mut()?;
            let earlier = Timestamp::now() - SignedDuration::from_secs(seconds);
            entered.phase_transition_timestamp = Time(earlier);
            self.migrations().replace_status(name, &PostParams::default(), &migration).await.ok()
        })
        .await;
    }
}

/// The way of a move, step by step. Each step is what others do until the phase is reached; all before it are done too.
impl Cluster {
    pub async fn brought_to(&self, migration: &Migration, node: &str, phase: MigrationPhase) {
        use MigrationPhase::{PreparingTarget, Scheduling};
        let name = migration.name_any();
        if phase == MigrationPhase::Pending {
            return;
        }
        self.migration_phase(&name, Scheduling).await;
        let target = self.target_pod(migration).await;
        if phase == Scheduling {
            return;
        }
        self.run_pod(&target, node).await;
        self.migration_phase(&name, PreparingTarget).await;
        self.brought_on(migration, phase).await;
    }

    /// From the hand-over on.
    pub async fn brought_on(&self, migration: &Migration, phase: MigrationPhase) {
        use MigrationPhase::{PreparingTarget, Running, Succeeded, TargetReady};
        let (name, instance) = (migration.name_any(), migration.spec.vmi_name.clone());
        if phase == PreparingTarget {
            return;
        }
        self.target_listens(&instance).await;
        self.at_least(&name, TargetReady).await;
        if phase == TargetReady {
            return;
        }
        self.source_begins(&instance).await;
        self.at_least(&name, Running).await;
        if phase == Running {
            return;
        }
        self.guest_arrives(&instance).await;
        self.source_is_done(&instance).await;
        self.migration_phase(&name, Succeeded).await;
    }
}

impl Cluster {
    /// The migration is in this phase or past it.
    async fn at_least(&self, name: &str, phase: MigrationPhase) {
        eventually(&format!("migration {name} to be {phase}"), async || {
            let status = self.migrations().get_opt(name).await.unwrap()?.status?;
            status.phase_transition_timestamps.iter().any(|entered| entered.phase == phase).then_some(())
        })
        .await;
    }
}

fn now() -> Time {
    Time(Timestamp::now())
}
