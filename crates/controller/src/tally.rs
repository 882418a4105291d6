//! Migrations in numbers, with KubeVirt's names: what the leader knows of them. A replica that does not lead shows only that.
//!
//! Migrations that are over are shown while their objects are there; of each instance the last five are kept.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use api::condition::{self, ConditionEntry as _};
use api::kubevirt::{MigrationPhase, MigrationState, VirtualMachineInstanceMigration as Migration};
use api::names::conditions;
use kube::ResourceExt as _;
use kube::runtime::reflector::Store;
use telemetry::{Durations, Labels, Numbers, Pages, Sheet};

use crate::vmim::phase;

/// Seconds. KubeVirt's.
const BUCKETS: [f64; 18] = [
    0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1200.0, 1800.0,
    3600.0,
];

/// What is counted. Clones are the same.
#[derive(Clone)]
pub(crate) struct Tally {
    /// Every migration, as the leader's watch has it.
    known: Arc<Mutex<Option<Store<Migration>>>>,
    transitions: Durations,
}

/// Migrations are counted until this is dropped.
pub(crate) struct Counting(Tally);

impl Drop for Counting {
    fn drop(&mut self) {
        self.0.replace(None);
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self { known: Arc::default(), transitions: Durations::new("phase", &BUCKETS) }
    }
}

impl Tally {
    /// Counts these: this replica leads.
    pub fn count(&self, known: Store<Migration>) -> Counting {
        self.replace(Some(known));
        Counting(self.clone())
    }

    /// A migration has entered a phase.
    pub fn entered(&self, migration: &Migration) {
        let entered = migration.status.as_ref().and_then(|status| status.phase_transition_timestamps.last());
        let created = migration.metadata.creation_timestamp.as_ref();
        if let (Some(entered), Some(created)) = (entered, created) {
            let took = entered.phase_transition_timestamp.0.duration_since(created.0);
            // Creation is written in whole seconds, and by another clock.
            self.transitions.observe(entered.phase.as_str(), took.as_secs_f64().max(0.0));
        }
    }

    /// Shows them on this address until dropped.
    pub async fn serve(self, address: SocketAddr) {
        telemetry::serve(address, Pages { ready: Box::new(|| Ok(())), numbers: self.numbers() }).await;
    }

    fn numbers(&self) -> Numbers {
        let tally = self.clone();
        let help = "From the creation of a migration to each of its phases";
        Numbers::default()
            .with(move |sheet| {
                let known = tally.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let leads = f64::from(u8::from(known.is_some()));
                let leading = [(Labels::new(), leads)];
                sheet.gauge(
                    "kubevirt_virt_controller_leading_status",
                    "Whether this replica leads.",
                    leading,
                )?;
                known.map_or(Ok(()), |known| write(sheet, &known.state()))
            })
            .with_durations(
                "kubevirt_vmi_migration_phase_transition_time_from_creation_seconds",
                help,
                &self.transitions,
            )
    }

    fn replace(&self, known: Option<Store<Migration>>) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }
}

fn write(sheet: &mut Sheet<'_>, migrations: &[Arc<Migration>]) -> fmt::Result {
    let in_phases = |phases: &[MigrationPhase]| {
        let there =
            |migration: &&Arc<Migration>| phase(migration).is_some_and(|phase| phases.contains(&phase));
        migrations.iter().filter(there).count()
    };
    let unset = migrations.iter().filter(|migration| phase(migration).is_none()).count();
    let running = in_phases(&[
        MigrationPhase::Scheduled,
        MigrationPhase::PreparingTarget,
        MigrationPhase::TargetReady,
        MigrationPhase::Running,
    ]);
    for (name, help, count) in [
        ("unset", "Migrations that nobody has looked at yet.", unset),
        ("pending", "Migrations that wait for their turn.", in_phases(&[MigrationPhase::Pending])),
        ("scheduling", "Migrations whose target has no place yet.", in_phases(&[MigrationPhase::Scheduling])),
        ("running", "Migrations that are under way.", running),
    ] {
        let name = format!("kubevirt_vmi_migrations_in_{name}_phase");
        sheet.gauge(&name, help, [(Labels::new(), number(count))])?;
    }
    for (name, help, ended) in [
        ("succeeded", "Migrations that succeeded.", MigrationPhase::Succeeded),
        ("failed", "Migrations that failed.", MigrationPhase::Failed),
    ] {
        let ended = migrations.iter().filter(|migration| phase(migration) == Some(ended));
        let name = format!("kubevirt_vmi_migration_{name}");
        sheet.gauge(&name, help, ended.map(|migration| (labels(migration), 1.0)))?;
    }
    waiting(sheet, migrations)?;
    times(sheet, migrations)
}

fn labels(migration: &Migration) -> Labels {
    vec![
        ("vmi", migration.spec.vmi_name.clone()),
        ("vmim", migration.name_any()),
        ("namespace", migration.namespace().unwrap_or_default()),
    ]
}

/// Why migrations wait.
fn waiting(sheet: &mut Sheet<'_>, migrations: &[Arc<Migration>]) -> fmt::Result {
    let mut reasons = BTreeMap::<&str, usize>::new();
    for migration in migrations {
        let conditions = migration.status.as_ref().map(|status| status.conditions.as_slice());
        let queued = condition::find(conditions.unwrap_or_default(), conditions::MIGRATION_QUEUED);
        if let Some(queued) = queued {
            *reasons.entry(queued.reason()).or_default() += 1;
        }
    }
    let reasons =
        reasons.into_iter().map(|(reason, count)| (vec![("reason", reason.to_owned())], number(count)));
    sheet.gauge("godwit_vmi_migrations_waiting", "Migrations that wait, by what they wait for.", reasons)
}

/// When the last move of each instance began and ended.
fn times(sheet: &mut Sheet<'_>, migrations: &[Arc<Migration>]) -> fmt::Result {
    let mut last = BTreeMap::new();
    for migration in migrations {
        let Some(state) = migration.status.as_ref().and_then(|status| status.migration_state.as_ref()) else {
            continue;
        };
        let Some(start) = &state.start_timestamp else { continue };
        let instance = (migration.namespace().unwrap_or_default(), migration.spec.vmi_name.clone());
        let entry = last.entry(instance).or_insert((start.0, migration, state));
        if entry.0 < start.0 {
            *entry = (start.0, migration, state);
        }
    }
    let labels = |migration: &Migration, state: &MigrationState| -> Labels {
        let moved = state.completed && !state.failed;
        let node = if moved { &state.target_node } else { &state.source_node };
        vec![
            ("node", node.clone().unwrap_or_default()),
            ("namespace", migration.namespace().unwrap_or_default()),
            ("name", migration.spec.vmi_name.clone()),
            ("migration_name", migration.name_any()),
        ]
    };
    let begun = last
        .values()
        .map(|(start, migration, state)| (labels(migration, state), start.as_duration().as_secs_f64()));
    sheet.gauge("kubevirt_vmi_migration_start_time_seconds", "When a migration began.", begun)?;
    let ended = last.values().filter_map(|(_, migration, state)| {
        let status = if state.failed { "failed" } else { "succeeded" };
        let labels = labels(migration, state).into_iter().chain([("status", status.to_owned())]);
        Some((labels.collect(), state.end_timestamp.as_ref()?.0.as_duration().as_secs_f64()))
    });
    sheet.gauge("kubevirt_vmi_migration_end_time_seconds", "When a migration ended.", ended)
}

#[allow(clippy::cast_precision_loss, reason = "there are never that many migrations")]
fn number(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use serde_json::{Value, json};

    use super::*;

    fn migration(name: &str, status: &Value) -> Arc<Migration> {
        let object = json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
            "metadata": { "name": name, "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "vmiName": "wren" }, "status": status });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn migrations_are_counted_by_phase_and_reason_and_the_last_of_an_instance_has_its_times() {
        let state = |start: &str, end: &str, failed: bool| {
            json!({ "sourceNode": "a", "targetNode": "b", "startTimestamp": start, "endTimestamp": end,
                "completed": true, "failed": failed })
        };
        let waits = json!([{ "type": "migrationQueued", "status": "True", "reason": "ClusterLimit" }]);
        let all = [
            migration("new", &Value::Null),
            migration("waits", &json!({ "phase": "Pending", "conditions": waits })),
            migration("placed", &json!({ "phase": "Scheduling" })),
            migration("ready", &json!({ "phase": "TargetReady" })),
            migration("runs", &json!({ "phase": "Running" })),
            migration(
                "first",
                &json!({ "phase": "Failed", "migrationState": state("2026-01-01T00:00:10Z", "2026-01-01T00:00:20Z", true) }),
            ),
            migration(
                "second",
                &json!({ "phase": "Succeeded", "migrationState": state("2026-01-01T00:01:00Z", "2026-01-01T00:01:05Z", false) }),
            ),
        ];
        let text = Numbers::default().with(move |sheet| write(sheet, &all)).text().unwrap();
        let last = r#"{node="b",namespace="default",name="wren",migration_name="second""#;
        for line in [
            "kubevirt_vmi_migrations_in_unset_phase 1.0\n".to_owned(),
            "kubevirt_vmi_migrations_in_pending_phase 1.0\n".to_owned(),
            "kubevirt_vmi_migrations_in_scheduling_phase 1.0\n".to_owned(),
            "kubevirt_vmi_migrations_in_running_phase 2.0\n".to_owned(),
            r#"kubevirt_vmi_migration_succeeded{vmi="wren",vmim="second",namespace="default"} 1.0"#
                .to_owned(),
            r#"kubevirt_vmi_migration_failed{vmi="wren",vmim="first",namespace="default"} 1.0"#.to_owned(),
            r#"godwit_vmi_migrations_waiting{reason="ClusterLimit"} 1.0"#.to_owned(),
            format!("kubevirt_vmi_migration_start_time_seconds{last}}} 1767225660.0\n"),
            format!("kubevirt_vmi_migration_end_time_seconds{last},status=\"succeeded\"}} 1767225665.0\n"),
        ] {
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
        assert_eq!(text.matches("_start_time_seconds{").count(), 1, "{text}");
    }

    #[test]
    fn who_does_not_lead_says_so_and_nothing_of_migrations() {
        let tally = Tally::default();
        let (store, _writer) = kube::runtime::reflector::store();
        let text = || tally.numbers().text().unwrap();
        assert!(text().contains("leading_status 0.0\n") && !text().contains("in_pending_phase"));
        let counting = tally.count(store);
        assert!(text().contains("leading_status 1.0\n") && text().contains("in_pending_phase 0.0\n"));
        drop(counting);
        assert!(!text().contains("in_pending_phase"));

        let transition = json!([{ "phase": "Running", "phaseTransitionTimestamp": "2026-01-01T00:00:04Z" }]);
        tally.entered(&migration(
            "runs",
            &json!({ "phase": "Running", "phaseTransitionTimestamps": transition }),
        ));
        let bucket = r#"from_creation_seconds_bucket{le="5.0",phase="Running"} 1"#;
        assert!(text().contains(bucket), "{}", text());
    }
}
