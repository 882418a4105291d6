//! Events: what a person sees under `kubectl describe`.
//!
//! One task writes them all, in order; whoever has something to say never waits for it. The same words about the same
//! object are one event, which counts. An event that cannot be written is logged and lost: nothing is decided by events.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource as _};
use serde_json::json;
use tokio::sync::mpsc;

/// What the API server takes in an event.
const MESSAGE_MAX: usize = 1024;

/// Takes what is to be told. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Events {
    queue: mpsc::UnboundedSender<Told>,
}

#[derive(Debug)]
struct Told {
    about: ObjectReference,
    warning: bool,
    reason: &'static str,
    message: String,
}

impl Events {
    /// The sender, and the task that writes.
    pub fn new(client: Client, node: String) -> (Self, impl Future<Output = ()>) {
        let (queue, mut told) = mpsc::unbounded_channel::<Told>();
        let write = async move {
            while let Some(told) = told.recv().await {
                let reason = told.reason;
                if let Err(cause) = record(&client, &node, told).await {
                    tracing::warn!(reason, cause = crate::error::chain(&cause), "an event is lost");
                }
            }
        };
        (Self { queue }, write)
    }

    pub fn about<'a>(&'a self, pod: &'a Pod) -> Teller<'a> {
        Teller { events: self, about: Pod::object_ref(pod, &()) }
    }
}

/// Tells about one object.
pub struct Teller<'a> {
    events: &'a Events,
    about: ObjectReference,
}

impl Teller<'_> {
    /// About one of the pod's containers.
    #[must_use]
    pub fn container(mut self, name: &str) -> Self {
        self.about.field_path = Some(format!("spec.containers{{{name}}}"));
        self
    }

    pub fn normal(self, reason: &'static str, message: impl Into<String>) {
        self.tell(false, reason, message.into());
    }

    pub fn warning(self, reason: &'static str, message: impl Into<String>) {
        self.tell(true, reason, message.into());
    }

    fn tell(self, warning: bool, reason: &'static str, mut message: String) {
        if message.len() > MESSAGE_MAX {
            message.truncate(message.floor_char_boundary(MESSAGE_MAX - 4));
            message.push_str(" ...");
        }
        let told = Told { about: self.about, warning, reason, message };
        if self.events.queue.send(told).is_err() {
            tracing::debug!(reason, "an event came while the agent ends");
        }
    }
}

/// Writes one event, or counts it.
async fn record(client: &Client, node: &str, told: Told) -> kube::Result<()> {
    let namespace = told.about.namespace.clone().unwrap_or_else(|| "default".to_owned());
    let events: Api<Event> = Api::namespaced(client.clone(), &namespace);
    let (name, now) = (name_of(node, &told), Time(Timestamp::now()));
    let event = Event {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(namespace),
            ..ObjectMeta::default()
        },
        involved_object: told.about,
        type_: Some(if told.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(told.reason.to_owned()),
        message: Some(told.message),
        count: Some(1),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now.clone()),
        source: Some(EventSource { component: Some("kubelet".to_owned()), host: Some(node.to_owned()) }),
        reporting_component: Some("kubelet".to_owned()),
        reporting_instance: Some(node.to_owned()),
        ..Event::default()
    };
    match events.create(&PostParams::default(), &event).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        outcome => return outcome.map(drop),
    }
    // Only this task counts it: no other write can come between.
    let count = events.get(&name).await?.count.unwrap_or(1).saturating_add(1);
    let counted = json!({ "count": count, "lastTimestamp": now });
    events.patch(&name, &PatchParams::default(), &Patch::Merge(counted)).await.map(drop)
}

/// The same for the same words about the same object.
fn name_of(node: &str, told: &Told) -> String {
    let mut hasher = DefaultHasher::new();
    let about = &told.about;
    (node, &about.uid, &about.field_path, told.reason, told.warning, &told.message).hash(&mut hasher);
    format!("{}.{:016x}", about.name.as_deref().unwrap_or("unknown"), hasher.finish())
}
