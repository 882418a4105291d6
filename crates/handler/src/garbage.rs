//! What is left of launcher pods that are no more.
//!
//! The tasks of pods give back what their pods had when they see them end. This is for what nobody saw: a handler that was away, a
//! DEL that failed, an attachment that finished after its pod. It goes by UIDs from a fresh list of the API; without one, it
//! does nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use crate::attachments::Attachments;
use crate::error::chain;
use crate::pods;

/// How often it is looked for.
pub const PERIOD: Duration = Duration::from_mins(1);

/// Detaches what pods of this node left behind. Failures are tried again next time.
pub async fn sweep(pods: &Api<Pod>, node: &str, attachments: &Attachments) {
    // Before the look: what is attached from here on is nobody's garbage.
    let mark = attachments.mark();
    let selector = pods::selection(node);
    let parameters = ListParams {
        label_selector: selector.label_selector,
        field_selector: selector.field_selector,
        ..ListParams::default()
    };
    let listed = match pods.list(&parameters).await {
        Ok(listed) => listed,
        Err(cause) => {
            tracing::warn!(
                cause = chain(&cause),
                "launcher pods cannot be listed; nothing is collected this time"
            );
            return;
        }
    };
    let alive: BTreeSet<String> =
        listed.items.iter().filter(|pod| !pods::has_ended(pod)).filter_map(ResourceExt::uid).collect();
    let collected = attachments.collect(&alive, mark).await;
    for key in collected.detached {
        tracing::info!(attachment = %key, "detached what a pod left behind");
    }
    for failure in collected.failures {
        tracing::warn!(cause = chain(&failure), "what a pod left behind cannot be detached yet");
    }
}
