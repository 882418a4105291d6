//! How long each wait of a move may last. Every phase that is not the last has a deadline, so no move waits for ever.

use std::collections::BTreeMap;
use std::time::Duration;

use api::kubevirt::{MigrationOptions, VirtualMachineInstanceSpec};
use api::names::annotations;
use api::quantity;

const GIB: u64 = 1 << 30;

/// The deadlines of one move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Pending: its turn.
    pub queue: Duration,
    /// Scheduling: a node for a target pod that no node takes.
    pub unschedulable: Duration,
    /// Scheduling: the start of the target pod.
    pub starting: Duration,
    /// Scheduled: room at the target's node.
    pub hand_over: Duration,
    /// PreparingTarget: the target's handler.
    pub preparing: Duration,
    /// TargetReady: the source's handler.
    pub beginning: Duration,
    /// Running: the transfer. The launcher gives up earlier, and knows better why; this is for when it cannot say so.
    pub moving: Duration,
    /// The guest at the target, once the source says that it is there.
    pub arriving: Duration,
    /// The source's word, once the guest runs at the target.
    pub source_word: Duration,
    /// The source's word, once a move is to be given up.
    pub abort: Duration,
    /// The end of the source pod, once the guest has left it.
    pub leaving: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            queue: Duration::from_hours(24),
            unschedulable: Duration::from_mins(5),
            starting: Duration::from_mins(15),
            hand_over: Duration::from_hours(1),
            preparing: Duration::from_mins(5),
            beginning: Duration::from_mins(2),
            moving: Duration::from_mins(5),
            arriving: Duration::from_mins(1),
            source_word: Duration::from_secs(15),
            abort: Duration::from_mins(1),
            leaving: Duration::from_secs(30),
        }
    }
}

impl Deadlines {
    /// Time for the launcher to give up by itself before the controller does.
    const SLACK: Duration = Duration::from_mins(1);

    /// The deadlines of a VM with these settings and annotations.
    pub fn of(
        options: &MigrationOptions,
        spec: &VirtualMachineInstanceSpec,
        annotations: &BTreeMap<String, String>,
    ) -> Self {
        let defaults = Self::default();
        let seconds = |name: &str| annotations.get(name)?.parse().ok().map(Duration::from_secs);
        let completion = completion_timeout(options, moved_bytes(spec));
        // A guest that may be disturbed gets as much again, standing still or running at the target.
        let rounds = if options.allow_workload_disruption { 2 } else { 1 };
        Self {
            unschedulable: seconds(annotations::MIGRATION_UNSCHEDULABLE_POD_TIMEOUT_SECONDS)
                .unwrap_or(defaults.unschedulable),
            starting: seconds(annotations::MIGRATION_PENDING_POD_TIMEOUT_SECONDS)
                .unwrap_or(defaults.starting),
            moving: completion.saturating_mul(rounds).saturating_add(Self::SLACK),
            ..defaults
        }
    }
}

/// How long a transfer may take: so many seconds for every GiB, of which there is at least one.
pub fn completion_timeout(options: &MigrationOptions, bytes: u64) -> Duration {
    let per_gib = u64::try_from(options.completion_timeout_per_gib).unwrap_or_default().max(1);
    Duration::from_secs(per_gib.saturating_mul(bytes.div_ceil(GIB).max(1)))
}

/// What a move has to carry: the guest's memory, and the disks that are not shared.
pub fn moved_bytes(spec: &VirtualMachineInstanceSpec) -> u64 {
    let memory = spec.domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
    let disks = spec.volumes.iter().filter_map(|volume| Some(&volume.empty_disk.as_ref()?.capacity));
    memory.into_iter().chain(disks).filter_map(|size| quantity::whole(size).ok()).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use super::*;
    use serde_json::json;

    fn spec(memory: &str) -> VirtualMachineInstanceSpec {
        serde_json::from_value(json!({
            "domain": { "devices": {}, "memory": { "guest": memory } },
            "volumes": [{ "name": "scratch", "emptyDisk": { "capacity": "1Gi" } }],
        }))
        .unwrap()
    }

    #[test]
    fn a_larger_guest_has_more_time() {
        let options = MigrationOptions::default();
        assert_eq!(moved_bytes(&spec("512Mi")), 1536 << 20);
        assert_eq!(completion_timeout(&options, 0), Duration::from_secs(150));
        assert_eq!(completion_timeout(&options, GIB), Duration::from_secs(150));
        assert_eq!(completion_timeout(&options, GIB + 1), Duration::from_mins(5));
        let of = |options| Deadlines::of(&options, &spec("3Gi"), &BTreeMap::new()).moving;
        assert_eq!(of(options.clone()), Duration::from_mins(10 + 1));
        let disturbed = MigrationOptions { allow_workload_disruption: true, ..options };
        assert_eq!(of(disturbed), Duration::from_mins(20 + 1));
    }

    #[test]
    fn annotations_shorten_the_waits_for_the_target_pod() {
        let given = [
            (annotations::MIGRATION_UNSCHEDULABLE_POD_TIMEOUT_SECONDS.to_owned(), "3".to_owned()),
            (annotations::MIGRATION_PENDING_POD_TIMEOUT_SECONDS.to_owned(), "no number".to_owned()),
        ];
        let deadlines = Deadlines::of(&MigrationOptions::default(), &spec("1Gi"), &given.into());
        assert_eq!(deadlines.unschedulable, Duration::from_secs(3));
        assert_eq!(deadlines.starting, Deadlines::default().starting);
    }
}
