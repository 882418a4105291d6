//! Tells people what a controller did, by events. An event that cannot be told is no reason not to do the thing.
//!
//! An event is named for what it says, of whom: the same again counts up the one that is there, also after a restart.

use jiff::Timestamp;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::cache::Object;

#[derive(Clone)]
pub struct Herald {
    client: Client,
    controller: &'static str,
}

impl Herald {
    pub fn new(client: Client, controller: &'static str) -> Self {
        Self { client, controller }
    }

    pub async fn note<K: Object>(&self, about: &K, reason: &str, note: String) {
        self.tell(about, "Normal", reason, note).await;
    }

    pub async fn warn<K: Object>(&self, about: &K, reason: &str, note: String) {
        self.tell(about, "Warning", reason, note).await;
    }

    async fn tell<K: Object>(&self, about: &K, type_: &str, reason: &str, note: String) {
        let namespace = about.namespace().unwrap_or_else(|| "default".into());
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        let event = self.event(about, &namespace, type_, reason, note);
        let told = match events.create(&PostParams::default(), &event).await {
            Err(kube::Error::Api(status)) if status.code == 409 => again(&events, &event.name_any()).await,
            told => told.map(|_| ()),
        };
        if let Err(error) = told {
            tracing::debug!(%error, reason, "an event could not be published");
        }
    }

    fn event<K: Object>(&self, about: &K, namespace: &str, type_: &str, reason: &str, note: String) -> Event {
        let said = format!("{:?} {} {reason} {note}", about.uid(), self.controller);
        let digest = Sha256::digest(said);
        let mark: [u8; 8] = std::array::from_fn(|index| digest[index]);
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{}.{:016x}", about.name_any(), u64::from_be_bytes(mark))),
                namespace: Some(namespace.into()),
                ..ObjectMeta::default()
            },
            action: Some(reason.into()),
            event_time: Some(MicroTime(Timestamp::now())),
            note: Some(note),
            reason: Some(reason.into()),
            regarding: Some(about.object_ref(&())),
            reporting_controller: Some(self.controller.into()),
            reporting_instance: Some(self.controller.into()),
            type_: Some(type_.into()),
            ..Event::default()
        }
    }
}

async fn again(events: &Api<Event>, name: &str) -> Result<(), kube::Error> {
    let count = events.get(name).await?.series.map_or(1, |series| series.count) + 1;
    let series = EventSeries { count, last_observed_time: MicroTime(Timestamp::now()) };
    events.patch(name, &PatchParams::default(), &Patch::Merge(json!({"series": series}))).await.map(|_| ())
}
