//! What a decision on a move looks at, read from the API.

use api::condition::{self, ConditionEntry as _};
use api::kubevirt::{InstancePhase, MigrationPhase, MigrationState, VirtualMachineInstance};
use api::names::{annotations, conditions, labels, reasons};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use migration::{Deadlines, Entry, Facts, Instance, Limits, Queue, Record, Role, Stage, Target, Turn, Wait};

use super::settings::{self, Settings};
use super::{Migration, is_over, phase};
use crate::Context;
use crate::error::{Error, describe, named};
use crate::vmi::{ended, launcher_container};

/// Everything around a migration.
pub(super) struct Surroundings {
    pub vmi: Option<VirtualMachineInstance>,
    /// Launcher pods of the instance, or what is left of the migration's own.
    pub pods: Vec<Pod>,
    pub settings: Settings,
    /// All moves that are not over, where a turn is taken.
    queue: Option<Queue>,
    /// Why nothing may begin.
    rolling_out: Option<Wait>,
}

impl Surroundings {
    pub async fn of(migration: &Migration, context: &Context, takes_a_turn: bool) -> Result<Self, Error> {
        let namespace = migration.namespace().unwrap_or_default();
        let name = &migration.spec.vmi_name;
        let instances: Api<VirtualMachineInstance> = Api::namespaced(context.client.clone(), &namespace);
        let object = named::<VirtualMachineInstance>(Some(&namespace), name);
        let vmi = instances.get_opt(name).await.map_err(Error::api("reading", object))?;

        let pods: Api<Pod> = Api::namespaced(context.client.clone(), &namespace);
        let selector = match &vmi {
            Some(vmi) => format!("{}={}", labels::CREATED_BY, vmi.uid().unwrap_or_default()),
            None => format!("{}={}", labels::MIGRATION_JOB_UID, migration.uid().unwrap_or_default()),
        };
        let pods = pods
            .list(&ListParams::default().labels(&selector))
            .await
            .map_err(Error::api("listing the pods of", describe(migration)))?
            .items;

        let settings = match &vmi {
            Some(vmi) => settings::of(vmi, context).await?,
            None => Settings { options: settings::of_cluster(context), policy: None },
        };
        let queue = if takes_a_turn { Some(queue(context).await?) } else { None };
        Ok(Self { vmi, pods, settings, queue, rolling_out: settings::rolling_out(context) })
    }

    /// The pod that was made for this migration.
    pub fn target(&self, migration: &Migration) -> Option<&Pod> {
        let uid = migration.uid();
        self.pods.iter().find(|pod| pod.labels().get(labels::MIGRATION_JOB_UID) == uid.as_ref())
    }

    /// The pod that runs the guest.
    pub fn active(&self) -> Option<&Pod> {
        let status = self.vmi.as_ref()?.status.as_ref();
        self.pods.iter().find(|pod| Role::of(status, pod) == Role::Active)
    }

    /// The pod that the guest has left in this move.
    pub fn source(&self, migration: &Migration) -> Option<&Pod> {
        let name = migration.status.as_ref()?.migration_state.as_ref()?.source_pod.as_ref()?;
        let left = |pod: &&Pod| pod.metadata.name.as_ref() == Some(name);
        let source = self.pods.iter().find(left)?;
        (self.role(source) != Role::Active).then_some(source)
    }

    /// Whether the pod still runs that the guest leaves, or has left. An object that is gone was deleted by its node, or by a person who
    /// answers for that.
    fn source_lives(&self, migration: &Migration) -> bool {
        let record = self.record(migration);
        let record = record.or_else(|| migration.status.as_ref()?.migration_state.as_ref());
        let name = record.and_then(|state| state.source_pod.as_ref());
        name.is_some_and(|name| {
            self.pods.iter().any(|pod| pod.metadata.name.as_ref() == Some(name) && !ended(pod))
        })
    }

    pub fn record<'a>(&'a self, migration: &Migration) -> Option<&'a MigrationState> {
        let state = self.vmi.as_ref()?.status.as_ref()?.migration_state.as_ref()?;
        (state.migration_uid == migration.uid()).then_some(state)
    }

    fn role(&self, pod: &Pod) -> Role {
        Role::of(self.vmi.as_ref().and_then(|vmi| vmi.status.as_ref()), pod)
    }

    pub fn facts<'a>(&'a self, migration: &Migration) -> Facts<'a> {
        let uid = migration.uid().unwrap_or_default();
        let turn = |answer: &dyn Fn(&Queue) -> Turn| match (&self.rolling_out, &self.queue) {
            (Some(wait), _) => Turn::Wait(wait.clone()),
            (None, Some(queue)) => answer(queue),
            // Nobody asks for a turn in the other phases.
            (None, None) => Turn::Go,
        };
        let instance = self.instance();
        let start = if instance == Instance::Starting {
            let message = format!("the guest of {} does not run yet", migration.spec.vmi_name);
            Turn::Wait(Wait { reason: reasons::INSTANCE_NOT_RUNNING, message })
        } else {
            turn(&|queue| queue.start(&uid))
        };
        let deadlines = self.vmi.as_ref().map(|vmi| {
            let options = self.record(migration).and_then(|state| state.migration_configuration.as_ref());
            Deadlines::of(options.unwrap_or(&self.settings.options), &vmi.spec, vmi.annotations())
        });
        Facts {
            phase: phase(migration),
            since: since(migration),
            deleted: migration.metadata.deletion_timestamp.is_some(),
            instance,
            has_rival: self.queue.as_ref().is_some_and(|queue| queue.rival(&uid).is_some()),
            target: self.target_fact(migration),
            source_lives: self.source_lives(migration),
            record: self.record_fact(migration),
            abort_since: abort_since(migration),
            start,
            hand_over: turn(&|queue| queue.hand_over(&uid)),
            deadlines: deadlines.unwrap_or_default(),
            unready: self.rolling_out.as_ref().map(|wait| wait.message.as_str()),
        }
    }

    fn instance(&self) -> Instance {
        let Some(vmi) = &self.vmi else { return Instance::Gone };
        let status = vmi.status.clone().unwrap_or_default();
        if vmi.metadata.deletion_timestamp.is_some() || status.phase.is_some_and(InstancePhase::is_final) {
            return Instance::Ended;
        }
        let bound = condition::find(&status.conditions, conditions::LIVE_MIGRATABLE)
            .filter(|_| condition::is_false(&status.conditions, conditions::LIVE_MIGRATABLE));
        if let Some(bound) = bound {
            return Instance::Bound {
                reason: bound.reason().to_owned(),
                message: bound.message().to_owned(),
            };
        }
        match status.node_name {
            Some(node) if status.phase == Some(InstancePhase::Running) => Instance::Runs { node },
            _ => Instance::Starting,
        }
    }

    fn target_fact(&self, migration: &Migration) -> Target {
        let Some(pod) = self.target(migration) else { return Target::None };
        if is_over(migration) && self.role(pod) == Role::Active {
            // It is the instance's own now, and no business of the migration any more.
            return Target::None;
        }
        if ended(pod) {
            return Target::Ended;
        }
        if pod.metadata.deletion_timestamp.is_some() {
            return Target::Ending;
        }
        match pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
            Some(node) if is_up(pod) => {
                let marked = pod.annotations().contains_key(annotations::MIGRATION_TARGET_READY_TIMESTAMP);
                Target::Runs { node, marked }
            }
            _ => Target::Waiting { unschedulable: unschedulable(pod) },
        }
    }

    fn record_fact<'a>(&'a self, migration: &Migration) -> Record<'a> {
        if let Some(state) = self.record(migration) {
            return Record::Ours(state);
        }
        let other = self.vmi.as_ref().and_then(|vmi| vmi.status.as_ref()?.migration_state.as_ref());
        match other.filter(|state| !state.completed) {
            // The record of a migration that is gone or over belongs to nobody.
            Some(state)
                if self.queue.as_ref().is_none_or(|queue| queue.has(state.migration_uid.as_deref())) =>
            {
                Record::Other
            }
            _ => Record::None,
        }
    }
}

/// Runs, and so does its launcher.
fn is_up(pod: &Pod) -> bool {
    let state = launcher_container(pod).and_then(|container| container.state.as_ref());
    let runs = pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"));
    runs && state.is_none_or(|state| state.running.is_some())
}

fn unschedulable(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let scheduled = conditions.iter().find(|condition| condition.type_ == "PodScheduled")?;
    (scheduled.status == "False").then(|| scheduled.message.clone().unwrap_or_default())
}

fn since(migration: &Migration) -> Timestamp {
    let entered = migration.status.as_ref().and_then(|status| status.phase_transition_timestamps.last());
    let created = migration.metadata.creation_timestamp.as_ref().map(|time| time.0);
    entered
        .map(|transition| transition.phase_transition_timestamp.0)
        .or(created)
        .unwrap_or_else(Timestamp::now)
}

fn abort_since(migration: &Migration) -> Option<Timestamp> {
    let conditions = &migration.status.as_ref()?.conditions;
    let asked = condition::find(conditions, conditions::MIGRATION_ABORT_REQUESTED)?;
    Some(asked.last_transition_time.as_ref()?.0)
}

/// Every move in the cluster that is not over, and where it is.
async fn queue(context: &Context) -> Result<Queue, Error> {
    let everything = ListParams::default();
    let migrations: Api<Migration> = Api::all(context.client.clone());
    let migrations =
        migrations.list(&everything).await.map_err(Error::api("listing", "all migrations"))?.items;
    let instances: Api<VirtualMachineInstance> = Api::all(context.client.clone());
    let instances = instances.list(&everything).await.map_err(Error::api("listing", "all instances"))?.items;
    let pods: Api<Pod> = Api::all(context.client.clone());
    let made = everything.labels(labels::MIGRATION_JOB_UID);
    let pods = pods.list(&made).await.map_err(Error::api("listing", "all target pods"))?.items;

    let entry = |migration: &Migration| {
        let uid = migration.uid().unwrap_or_default();
        let instance = instances.iter().find(|vmi| {
            vmi.name_any() == migration.spec.vmi_name && vmi.namespace() == migration.namespace()
        });
        let status = instance.and_then(|vmi| vmi.status.as_ref());
        let target = pods.iter().find(|pod| pod.labels().get(labels::MIGRATION_JOB_UID) == Some(&uid));
        let record = status.and_then(|status| status.migration_state.as_ref());
        let record = record.filter(|state| state.migration_uid.as_ref() == Some(&uid));
        Entry {
            instance: format!("{}/{}", migration.namespace().unwrap_or_default(), migration.spec.vmi_name),
            priority: migration.spec.priority,
            created: migration.metadata.creation_timestamp.as_ref().map(|time| time.0).unwrap_or_default(),
            source: source(record, status.and_then(|status| status.node_name.as_deref())),
            target: target.and_then(|pod| pod.spec.as_ref()?.node_name.clone()),
            stage: stage(phase(migration), target.is_some(), record.is_some()),
            uid,
        }
    };
    let open =
        migrations.iter().filter(|migration| !is_over(migration) && !migration.spec.is_decentralized());
    Ok(Queue::new(open.map(entry).collect(), Limits::of(&settings::of_cluster(context))))
}

/// The node that a move leaves, until it is over: the guest's home is the target before that is written down, and the move would count as
/// one that leaves the target.
fn source(record: Option<&MigrationState>, home: Option<&str>) -> Option<String> {
    record.and_then(|record| record.source_node.clone()).or_else(|| home.map(ToOwned::to_owned))
}

/// A pod or a record that is there counts, also when the one who made it was killed before he said so.
fn stage(phase: Option<MigrationPhase>, has_pod: bool, has_record: bool) -> Stage {
    match phase {
        Some(MigrationPhase::Scheduled) if !has_record => Stage::Placed,
        Some(
            MigrationPhase::Scheduled
            | MigrationPhase::PreparingTarget
            | MigrationPhase::TargetReady
            | MigrationPhase::Running,
        ) => Stage::Moving,
        Some(MigrationPhase::Scheduling) => Stage::Placing,
        _ if has_pod => Stage::Placing,
        _ => Stage::Waiting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_leaves_its_source_also_when_the_guest_has_its_new_home() {
        let record = MigrationState { source_node: Some("node-1".into()), ..MigrationState::default() };
        assert_eq!(source(Some(&record), Some("node-2")).as_deref(), Some("node-1"));
        assert_eq!(source(None, Some("node-2")).as_deref(), Some("node-2"), "it has not begun");
        assert_eq!(source(None, None), None);
    }
}
