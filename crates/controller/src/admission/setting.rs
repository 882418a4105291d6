//! The setting `vm-migration-network` at the door: what is let in, and when.
//!
//! ```text
//!  request ─► settled: nothing changes, or it is never allowed ─► answer
//!          └► judge: value by itself (value), in its cluster (rules), while nothing moves ─► answer
//! ```
//!
//! Both `value` and `default` are judged: either may be the one that holds. No value is ever refused for being empty: switching
//! off must always be possible, but not under a migration's feet.

pub mod cluster;
mod overlaps;
mod ranges;
pub mod rules;
mod value;

use api::harvester::SettingBody;
use api::kubevirt::VirtualMachineInstanceMigration;
use api::names::objects::MIGRATION_NETWORK_SETTING;
use kube::ResourceExt as _;
use serde_json::Value;

pub use cluster::{Cluster, is_under_way};
pub use value::{MigrationNetwork, NormalRange, read, texts};

use super::{Answer, Cause};

/// So many migrations are named.
const TOLD: usize = 3;

/// Whether a request is about the setting.
pub fn concerns(request: &Value) -> bool {
    let deleted = request["operation"] == "DELETE";
    let name = &request[if deleted { "oldObject" } else { "object" }]["metadata"]["name"];
    request["kind"]["kind"] == "Setting" && *name == MIGRATION_NETWORK_SETTING
}

/// The answer that needs no look at the cluster.
pub fn settled(request: &Value) -> Option<Answer> {
    let (old, new) = (&request["oldObject"], &request["object"]);
    match request["operation"].as_str() {
        Some("DELETE") => Some(Answer::Deny {
            code: 405,
            reason: "MethodNotAllowed",
            message: format!(
                "Disallow delete setting name {MIGRATION_NETWORK_SETTING}: to switch the network off, set value to an empty text, and default \
                 as well if it has one."
            ),
        }),
        Some("UPDATE") if written(old) == written(new) => Some(Answer::Allow),
        Some("CREATE" | "UPDATE") => None,
        _ => Some(Answer::Allow),
    }
}

/// Judges a change in its cluster.
pub fn judge(request: &Value, cluster: &Cluster, migrations: &[VirtualMachineInstanceMigration]) -> Answer {
    let SettingBody { value, default, .. } = written(&request["object"]);
    let mut causes: Vec<Cause> = Vec::new();
    for (root, text) in [("default", default), ("value", value)] {
        match read(&text, root) {
            Ok(None) => {}
            Ok(Some(network)) => causes.extend(rules::judge(&network, cluster, root)),
            Err(wrong) => causes.extend(wrong),
        }
    }
    if !causes.is_empty() {
        return Answer::Refuse(causes);
    }
    let moving: Vec<String> =
        migrations.iter().filter(|migration| is_under_way(migration)).map(describe).collect();
    if moving.is_empty() {
        return Answer::Allow;
    }
    let told = match moving.len().checked_sub(TOLD) {
        None | Some(0) => moving.join(", "),
        Some(more) => format!("{} and {more} more", moving[..TOLD].join(", ")),
    };
    Answer::Deny {
        code: 400,
        reason: "BadRequest",
        message: format!(
            "There is a VM migration in progress, which a change of its network would break: {told}. Wait until it is over, or \
             delete it, and try again."
        ),
    }
}

/// `default/move-1 (wren, Running)`.
fn describe(migration: &VirtualMachineInstanceMigration) -> String {
    let phase = migration.status.as_ref().and_then(|status| status.phase);
    let phase = phase.map_or("not begun", |phase| phase.as_str());
    let namespace = migration.namespace().unwrap_or_default();
    format!("{namespace}/{} ({}, {phase})", migration.name_any(), migration.spec.vmi_name)
}

/// Value and default as they are written. The schema has seen to it that they are texts.
fn written(object: &Value) -> SettingBody {
    let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
    SettingBody { value: text("value"), default: text("default"), ..SettingBody::default() }
}

#[cfg(test)]
mod tests;
