//! How far the setting is, as a person reads it in the condition `configured`.
//!
//! The condition is true in one phase only, `Ready`. Its reason is the phase, or one of Harvester's words for what went wrong; its
//! message says what is waited for.

use api::condition::{ConditionStatus, Observed};
use api::names::{conditions, reasons};

use crate::admission::Cause;

/// So many nodes are named.
const NAMED: usize = 5;

/// How far the setting is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The value is wrong in itself.
    Invalid(Vec<Cause>),
    /// There is no `KubeVirt` object to tell.
    NoInstallation,
    /// The value does not fit the cluster as it is.
    Validating(Vec<Cause>),
    Applying {
        /// Migrations that must be over first.
        waiting_for: Vec<String>,
    },
    RollingOut {
        /// So many nodes have arrived.
        done: usize,
        of: usize,
        /// Those that have not.
        left: Vec<String>,
        /// Why it does not go on, if it does not.
        stuck: Option<String>,
    },
    /// And what is missing.
    Verifying(String),
    /// And what is in effect.
    Ready(String),
    /// Something could not be done; it is tried again.
    Failed { reason: &'static str, why: String },
}

/// What a phase is in the condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub status: ConditionStatus,
    pub reason: &'static str,
    pub message: String,
}

impl Told {
    pub fn observed(&self) -> Observed<'_> {
        Observed {
            type_: conditions::CONFIGURED,
            status: self.status,
            reason: self.reason,
            message: &self.message,
        }
    }
}

impl Phase {
    /// Whether a person must do something.
    pub fn is_failure(&self) -> bool {
        matches!(
            self,
            Self::Invalid(_)
                | Self::NoInstallation
                | Self::Validating(_)
                | Self::RollingOut { stuck: Some(_), .. }
                | Self::Failed { .. }
        )
    }

    /// The condition; `attention` is what no longer fits although it is in effect.
    pub fn tell(&self, attention: &[Cause]) -> Told {
        let (reason, mut message) = match self {
            Self::Invalid(causes) => {
                (reasons::INVALID_VALUE, format!("Nothing was changed. {}", sentences(causes)))
            }
            Self::NoInstallation => {
                (reasons::GET_KUBEVIRT_ERROR, "There is no KubeVirt object: create it first.".to_owned())
            }
            Self::Validating(causes) => (
                reasons::VALIDATING,
                format!("Nothing was changed: the network does not fit. {}", sentences(causes)),
            ),
            Self::Applying { waiting_for } if waiting_for.is_empty() => {
                (reasons::APPLYING, "The network is being written.".to_owned())
            }
            Self::Applying { waiting_for } => (
                reasons::APPLYING,
                format!("Nothing was changed yet: waits for the end of {}.", waiting_for.join(", ")),
            ),
            Self::RollingOut { done, of, left, stuck } => {
                let how = match stuck {
                    None => "virt-handler is being moved, node by node".to_owned(),
                    Some(why) => format!("virt-handler cannot be moved: {}", why.trim_end_matches('.')),
                };
                (
                    reasons::ROLLING_OUT,
                    format!("RollingOut {done}/{of}: {how}. Not there yet: {}.", named(left)),
                )
            }
            Self::Verifying(why) => (
                reasons::VERIFYING,
                format!("Waits until the network is proved: {}.", why.trim_end_matches('.')),
            ),
            Self::Ready(what) => (reasons::SETTING_READY, what.clone()),
            Self::Failed { reason, why } => (*reason, format!("{why}. It is tried again.")),
        };
        if !attention.is_empty() {
            message = format!("{message} Attention: {}", sentences(attention));
        }
        let status = ConditionStatus::from(matches!(self, Self::Ready(_)));
        Told { status, reason, message }
    }
}

/// The first few, and how many more there are.
fn named(nodes: &[String]) -> String {
    match nodes.len().checked_sub(NAMED) {
        None | Some(0) => nodes.join(", "),
        Some(more) => format!("{} and {more} more", nodes[..NAMED].join(", ")),
    }
}

fn sentences(causes: &[Cause]) -> String {
    let sentences: Vec<String> =
        causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    sentences.join(" ")
}
