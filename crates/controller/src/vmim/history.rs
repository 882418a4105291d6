//! Migrations that are over: the last few of each VM stay as a record.

use jiff::{SignedDuration, Timestamp};
use kube::runtime::reflector::Store;
use kube::{Api, ResourceExt as _};

use super::{Migration, is_over};
use crate::error::Error;
use crate::{Context, edit};

/// How many of each VM stay, as KubeVirt has it.
const KEPT: usize = 5;
/// How long after its end something of a move may still have to be tidied up.
const TIDYING: SignedDuration = SignedDuration::from_mins(10);

/// Whether nothing is left to be done for it, so that it need not be looked at.
pub(super) fn is_settled(migration: &Migration, now: Timestamp) -> bool {
    let ended = migration.status.as_ref().and_then(|status| status.phase_transition_timestamps.last());
    let long_ago = |ended: Timestamp| now.duration_since(ended) > TIDYING;
    migration.metadata.deletion_timestamp.is_none()
        && is_over(migration)
        && ended.is_some_and(|ended| long_ago(ended.phase_transition_timestamp.0))
}

/// Deletes the oldest finished migrations of the same VM, beyond those that stay. Whoever ended last is looked at when all that
/// ended before are known, so that it is enough to look at each that is over.
pub(super) async fn prune(
    migration: &Migration,
    known: &Store<Migration>,
    context: &Context,
) -> Result<(), Error> {
    let namespace = migration.namespace();
    let same = |other: &Migration| {
        other.spec.vmi_name == migration.spec.vmi_name && other.namespace() == namespace && is_over(other)
    };
    // One that is going already is none of those that stay: its deletion was a write, and makes it look young.
    let stays = |other: &Migration| other.metadata.deletion_timestamp.is_none();
    let mut over: Vec<_> = known.state();
    over.retain(|other| same(other) && stays(other));
    over.sort_by_key(|migration| age(migration));
    let migrations: Api<Migration> = Api::namespaced(context.client.clone(), &namespace.unwrap_or_default());
    for old in over.iter().rev().skip(KEPT) {
        edit::delete(&migrations, &old.name_any(), &old.uid().unwrap_or_default()).await?;
    }
    Ok(())
}

/// What was made earlier is less. Times are whole seconds: of two in one second, the one that was written last is the younger.
fn age(migration: &Migration) -> (Option<Timestamp>, Option<u64>) {
    let made = migration.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (made, migration.resource_version().and_then(|version| version.parse().ok()))
}
