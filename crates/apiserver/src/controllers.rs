//! What the server does on its own: definitions become kinds, namespaces empty themselves, dependents follow their
//! owners, old events go.
//!
//! Each controller is a task that looks at the whole state whenever something changed; none keeps a truth of its own.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::registry::Registry;

mod definitions;
mod garbage;
mod housekeeping;
mod namespaces;

/// Runs every controller until the returned set is dropped.
pub(crate) fn start(registry: &Arc<Registry>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(definitions::run(registry.clone()));
    tasks.spawn(namespaces::run(registry.clone()));
    tasks.spawn(garbage::run(registry.clone()));
    tasks.spawn(housekeeping::run(registry.clone()));
    tasks
}

pub(crate) use definitions::restore as restore_definitions;
pub(crate) use housekeeping::bootstrap;

/// How long a controller waits before it looks again after an error.
const RETRY: Duration = Duration::from_millis(500);
