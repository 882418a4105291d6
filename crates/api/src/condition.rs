//! Conditions: the one way in which Godwit reports a lasting fact about an object.
//!
//! Three shapes are on the wire (KubeVirt's, Kubernetes' own, Harvester's) and one behaviour: one entry a type, and the
//! transition time moves only when the status does. It must never drop a condition that another writer owns.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition as KubernetesCondition, Time},
    jiff::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::string_enum::string_enum;

string_enum! {
    /// Whether a condition holds.
    pub enum ConditionStatus {
        /// It holds.
        True = "True",
        /// It does not hold.
        False = "False",
        /// Nobody can tell.
        Unknown = "Unknown",
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// A condition as KubeVirt's kinds carry it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the condition is about; one entry a type.
    #[serde(rename = "type")]
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// When it was last looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Time>,
    /// When the status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// One word for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// One sentence for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A condition as Harvester's kinds carry it: times are strings of RFC 3339.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HarvesterCondition {
    /// What the condition is about; one entry a type.
    #[serde(rename = "type")]
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// When it was last written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<String>,
    /// When the status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// One word for programs; absent on success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// One sentence for people; absent on success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What a writer observed, before it becomes an entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed<'a> {
    /// A constant of [`crate::names::conditions`].
    pub type_: &'a str,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// A constant of [`crate::names::reasons`], or empty.
    pub reason: &'a str,
    /// One sentence for people, or empty.
    pub message: &'a str,
}

/// One entry of a list of conditions, whatever its shape on the wire.
pub trait ConditionEntry: Sized {
    /// What the entry is about.
    fn type_(&self) -> &str;
    /// Whether it holds; `Unknown` for anything else than `True` and `False`.
    fn status(&self) -> ConditionStatus;
    /// One word for programs, or empty.
    fn reason(&self) -> &str;
    /// One sentence for people, or empty.
    fn message(&self) -> &str;
    /// A new entry, whose status changed `now`.
    fn observed(observed: &Observed<'_>, now: Timestamp) -> Self;
    /// Takes over the transition time of the entry that it replaces.
    fn keep_transition(&mut self, previous: &Self);
}

/// The entry of this type.
pub fn find<'a, C: ConditionEntry>(conditions: &'a [C], type_: &str) -> Option<&'a C> {
    conditions.iter().find(|entry| entry.type_() == type_)
}

/// Whether the entry is there and holds.
pub fn is_true<C: ConditionEntry>(conditions: &[C], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|entry| entry.status() == ConditionStatus::True)
}

/// Whether the entry is there and does not hold.
pub fn is_false<C: ConditionEntry>(conditions: &[C], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|entry| entry.status() == ConditionStatus::False)
}

/// Records what was observed. Says whether anything changed, so that an unchanged status is not written again.
pub fn set<C: ConditionEntry>(conditions: &mut Vec<C>, observed: &Observed<'_>, now: Timestamp) -> bool {
    let mut entry = C::observed(observed, now);
    let Some(current) = conditions.iter_mut().find(|entry| entry.type_() == observed.type_) else {
        conditions.push(entry);
        return true;
    };
    let same_status = current.status() == observed.status;
    if same_status && current.reason() == observed.reason && current.message() == observed.message {
        return false;
    }
    if same_status {
        entry.keep_transition(current);
    }
    *current = entry;
    true
}

/// Removes the entry of this type. Says whether there was one.
pub fn remove<C: ConditionEntry>(conditions: &mut Vec<C>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|entry| entry.type_() != type_);
    conditions.len() != before
}

fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

impl ConditionEntry for Condition {
    fn type_(&self) -> &str {
        &self.type_
    }

    fn status(&self) -> ConditionStatus {
        self.status
    }

    fn reason(&self) -> &str {
        self.reason.as_deref().unwrap_or_default()
    }

    fn message(&self) -> &str {
        self.message.as_deref().unwrap_or_default()
    }

    fn observed(observed: &Observed<'_>, now: Timestamp) -> Self {
        Self {
            type_: observed.type_.to_owned(),
            status: observed.status,
            last_probe_time: None,
            last_transition_time: Some(Time(now)),
            reason: given(observed.reason),
            message: given(observed.message),
        }
    }

    fn keep_transition(&mut self, previous: &Self) {
        self.last_transition_time.clone_from(&previous.last_transition_time);
    }
}

impl ConditionEntry for KubernetesCondition {
    fn type_(&self) -> &str {
        &self.type_
    }

    fn status(&self) -> ConditionStatus {
        match self.status.as_str() {
            "True" => ConditionStatus::True,
            "False" => ConditionStatus::False,
            _ => ConditionStatus::Unknown,
        }
    }

    fn reason(&self) -> &str {
        &self.reason
    }

    fn message(&self) -> &str {
        &self.message
    }

    fn observed(observed: &Observed<'_>, now: Timestamp) -> Self {
        Self {
            type_: observed.type_.to_owned(),
            status: observed.status.as_str().to_owned(),
            observed_generation: None,
            last_transition_time: Time(now),
            reason: observed.reason.to_owned(),
            message: observed.message.to_owned(),
        }
    }

    fn keep_transition(&mut self, previous: &Self) {
        self.last_transition_time = previous.last_transition_time.clone();
    }
}

impl ConditionEntry for HarvesterCondition {
    fn type_(&self) -> &str {
        &self.type_
    }

    fn status(&self) -> ConditionStatus {
        self.status
    }

    fn reason(&self) -> &str {
        self.reason.as_deref().unwrap_or_default()
    }

    fn message(&self) -> &str {
        self.message.as_deref().unwrap_or_default()
    }

    fn observed(observed: &Observed<'_>, now: Timestamp) -> Self {
        let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        Self {
            type_: observed.type_.to_owned(),
            status: observed.status,
            last_update_time: Some(now.clone()),
            last_transition_time: Some(now),
            reason: given(observed.reason),
            message: given(observed.message),
        }
    }

    fn keep_transition(&mut self, previous: &Self) {
        self.last_transition_time.clone_from(&previous.last_transition_time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: Observed<'_> =
        Observed { type_: "Ready", status: ConditionStatus::True, reason: "AllGood", message: "" };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn behaves<C: ConditionEntry + Clone + PartialEq + std::fmt::Debug>(transition: impl Fn(&C) -> String) {
        let mut conditions: Vec<C> = Vec::new();
        assert!(set(&mut conditions, &READY, at(1)));
        let first = transition(&conditions[0]);
        assert!(!set(&mut conditions, &READY, at(2)), "nothing new was observed");

        let explained = Observed { message: "checked twice", ..READY };
        assert!(set(&mut conditions, &explained, at(3)));
        assert_eq!(transition(&conditions[0]), first, "the status did not change");
        assert_eq!(conditions[0].message(), "checked twice");

        let lost = Observed { status: ConditionStatus::False, reason: "PeerLost", ..READY };
        assert!(set(&mut conditions, &lost, at(4)));
        assert_ne!(transition(&conditions[0]), first);
        assert!(is_false(&conditions, "Ready") && !is_true(&conditions, "Ready"));
        assert_eq!(conditions.len(), 1);

        assert!(remove(&mut conditions, "Ready"));
        assert!(!remove(&mut conditions, "Ready"));
        assert!(find(&conditions, "Ready").is_none());
    }

    #[test]
    fn the_three_shapes_behave_alike() {
        behaves::<Condition>(|entry| format!("{:?}", entry.last_transition_time));
        behaves::<KubernetesCondition>(|entry| format!("{:?}", entry.last_transition_time));
        behaves::<HarvesterCondition>(|entry| format!("{:?}", entry.last_transition_time));
    }
}
