//! What came of a reconciliation, told in one place: to the log, and to the people who look at the object.

use kube::Resource;
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::reflector::Lookup;

use api::names::objects;

use crate::error::{Error, describe};

/// Something that was done, worth an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub reason: String,
    pub text: String,
    /// It went wrong.
    pub warning: bool,
}

impl Note {
    pub fn done(reason: impl Into<String>, text: impl Into<String>) -> Self {
        Self { reason: reason.into(), text: text.into(), warning: false }
    }

    pub fn failed(reason: impl Into<String>, text: impl Into<String>) -> Self {
        Self { reason: reason.into(), text: text.into(), warning: true }
    }
}

/// Tells. Clones tell the same people.
#[derive(Clone)]
pub struct Report {
    recorder: Recorder,
}

impl Report {
    pub fn new(client: kube::Client, identity: &str) -> Self {
        let reporter =
            Reporter { controller: objects::CONTROLLER.into(), instance: Some(identity.to_owned()) };
        Self { recorder: Recorder::new(client, reporter) }
    }

    /// Reconciles an object, and reports what was done on the way and how it ended.
    pub async fn on<K>(
        &self,
        object: &K,
        reconcile: impl AsyncFnOnce(&mut Vec<Note>) -> Result<Action, Error>,
    ) -> Result<Action, Error>
    where
        K: Resource<DynamicType = ()> + Lookup<DynamicType = ()>,
    {
        let mut notes = Vec::new();
        let result = reconcile(&mut notes).await;
        self.reconciled(object, &notes, &result).await;
        result
    }

    async fn reconciled<K>(&self, object: &K, notes: &[Note], result: &Result<Action, Error>)
    where
        K: Resource<DynamicType = ()> + Lookup<DynamicType = ()>,
    {
        let subject = describe(object);
        for note in notes {
            tracing::info!(object = %subject, reason = note.reason, "{}", note.text);
            let type_ = if note.warning { EventType::Warning } else { EventType::Normal };
            let event = Event {
                type_,
                reason: note.reason.clone(),
                note: Some(note.text.clone()),
                action: "Reconcile".to_owned(),
                secondary: None,
            };
            // An event is a courtesy: the work does not wait for it to be told.
            if let Err(error) = self.recorder.publish(&event, &object.object_ref(&())).await {
                tracing::debug!(object = %subject, %error, "an event could not be written");
            }
        }
        match result {
            Ok(_) => tracing::debug!(object = %subject, "reconciled"),
            Err(error) if error.is_conflict() => {
                tracing::debug!(object = %subject, "changed meanwhile; looking again");
            }
            Err(error) => tracing::warn!(object = %subject, "{}", error.explain()),
        }
    }
}
