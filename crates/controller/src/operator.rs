//! The reconciler of `KubeVirt`: from the installation to virt-handler on every node, and back to what people see of it.
//!
//! Looks, decides ([`decide`]), applies the DaemonSet and writes the status. It changes nothing but that DaemonSet: a setting that
//! handlers are not made of rolls none, and no other component is ever rolled.

pub mod admission;
pub mod decide;
mod network;
mod render;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::condition;
use api::godwit::RoadReport;
use api::kubevirt::KubeVirt;
use api::multus::{NetworkAttachmentDefinition, full_name};
use api::names::{annotations, conditions, events, labels, objects};
use futures::channel::mpsc;
use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::{self, Lookup, Store};
use kube::runtime::{Controller, WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt};

use crate::error::{Error, describe, named};
use crate::report::Note;
use crate::vmi::does_not_answer;
use crate::{Context, edit, installation};
use decide::{Decision, Seen};

/// Changes within this time are looked at together: nodes report often.
const TOGETHER: Duration = Duration::from_millis(200);

/// What a look needs.
struct Operator {
    context: Arc<Context>,
    pods: Store<Pod>,
    nodes: Store<Node>,
}

/// Reconciles the installation until dropped.
pub(crate) async fn run(context: Arc<Context>) {
    let (client, namespace) = (context.client.clone(), context.namespace.clone());
    let (touch, touched) = mpsc::channel(1);
    let handlers = watcher::Config::default().labels(&format!("{}={}", labels::APP, labels::APP_HANDLER));
    let (pods, following_pods) =
        follow(Api::<Pod>::namespaced(client.clone(), &namespace), handlers, touch.clone());
    let nodes = Api::<Node>::all(client.clone());
    let (nodes, following_nodes) = follow(nodes, watcher::Config::default(), touch);
    let operator = Arc::new(Operator { context, pods, nodes });
    let installations: Api<KubeVirt> = Api::namespaced(client.clone(), &namespace);
    let sets: Api<DaemonSet> = Api::namespaced(client, &namespace);
    let reconciling = Controller::new(installations, watcher::Config::default())
        .owns(sets, watcher::Config::default())
        .reconcile_all_on(touched)
        .with_config(Config::default().debounce(TOGETHER))
        .run(reconcile, |_, error, _| Action::requeue(error.retry_after()), operator)
        .for_each(async |_| {});
    tokio::join!(following_pods, following_nodes, reconciling);
}

/// Objects as they are now; and the work that keeps them so, and says when they change.
fn follow<K>(
    api: Api<K>,
    which: watcher::Config,
    mut touch: mpsc::Sender<()>,
) -> (Store<K>, impl Future<Output = ()>)
where
    K: kube::Resource<DynamicType = ()>
        + Lookup<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + Sync
        + 'static,
    Api<K>: Clone,
{
    let (store, writer) = reflector::store();
    let changes = reflector::reflector(writer, watcher(api, which).default_backoff());
    (store, async move { tell(changes, &mut touch).await })
}

async fn tell<T>(changes: impl Stream<Item = watcher::Result<T>>, touch: &mut mpsc::Sender<()>) {
    futures::pin_mut!(changes);
    while let Some(change) = changes.next().await {
        match change {
            // A full channel says already that something changed.
            Ok(_) => _ = touch.try_send(()),
            Err(error) => {
                tracing::warn!(%error, "handlers cannot be watched; what was known of them still counts");
            }
        }
    }
}

async fn reconcile(installation: Arc<KubeVirt>, operator: Arc<Operator>) -> Result<Action, Error> {
    let report = &operator.context.report;
    report.on(&*installation, async |notes| operator.bring_about(&installation, notes).await).await
}

impl Operator {
    async fn bring_about(&self, installation: &KubeVirt, notes: &mut Vec<Note>) -> Result<Action, Error> {
        // What belongs to it goes with it, by its owner.
        if installation.metadata.deletion_timestamp.is_some() {
            return Ok(Action::await_change());
        }
        let now = Timestamp::now();
        let active = self.active(installation);
        if active != installation.name_any() {
            let status = decide::stand_back(installation, &active, now);
            return self.tell(installation, status).await.map(|()| Action::await_change());
        }
        let seen = self.look(installation).await?;
        let Decision { apply, status, again } = decide::decide(installation, &seen, now)?;
        if let Some(set) = apply {
            self.apply(&set, seen.handlers.as_ref(), notes).await?;
        }
        let failure = |status: &api::kubevirt::KubeVirtStatus| {
            let synchronized = condition::find(&status.conditions, conditions::SYNCHRONIZED);
            synchronized.and_then(|condition| condition.message.clone())
        };
        let before = installation.status.as_ref().and_then(failure);
        if let Some(why) = failure(&status).filter(|why| before.as_ref() != Some(why)) {
            notes.push(Note::failed(events::FAILED_UPDATE, why));
        }
        self.tell(installation, status).await?;
        Ok(Action::requeue(again))
    }

    /// Name of the installation that counts: this one, until others are known.
    fn active(&self, installation: &KubeVirt) -> String {
        let counts = installation::current(&self.context.installation);
        counts.map_or_else(|| installation.name_any(), |counts| counts.name_any())
    }

    async fn look(&self, installation: &KubeVirt) -> Result<Seen, Error> {
        for ready in [self.pods.wait_until_ready().await, self.nodes.wait_until_ready().await] {
            // Whoever fills the stores has gone, and with them this reconciler.
            if ready.is_err() {
                return Err(Error::Ending);
            }
        }
        let (client, namespace) = (self.context.client.clone(), self.context.namespace.as_str());
        let sets: Api<DaemonSet> = Api::namespaced(client.clone(), namespace);
        let object = named::<DaemonSet>(Some(namespace), objects::HANDLER);
        let handlers = sets.get_opt(objects::HANDLER).await.map_err(Error::api("reading", object))?;
        let definition_exists = match installation.spec.migration_network() {
            Some(network) => definition_exists(client, network, namespace).await?,
            None => true,
        };
        let owner = handlers.as_ref().and_then(ResourceExt::uid);
        let owned = |pod: &Arc<Pod>| {
            pod.owner_references().iter().any(|reference| Some(&reference.uid) == owner.as_ref())
        };
        let nodes = self.nodes.state();
        let silent = |pod: &Arc<Pod>| {
            let name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            nodes.iter().any(|node| node.metadata.name.as_deref() == name && does_not_answer(node))
        };
        let (lost, pods) = self.pods.state().into_iter().filter(owned).partition(silent);
        let reports: BTreeMap<String, RoadReport> = nodes.iter().filter_map(|node| report(node)).collect();
        Ok(Seen { definition_exists, handlers, pods, lost, reports })
    }

    async fn apply(
        &self,
        set: &DaemonSet,
        before: Option<&DaemonSet>,
        notes: &mut Vec<Note>,
    ) -> Result<(), Error> {
        let sets: Api<DaemonSet> = Api::namespaced(self.context.client.clone(), &self.context.namespace);
        let params = PatchParams::apply(objects::CONTROLLER).force();
        let applied = sets.patch(objects::HANDLER, &params, &Patch::Apply(set)).await;
        applied.map_err(Error::api("applying", describe(set)))?;
        let id = |set: &DaemonSet| {
            let meta = set.spec.as_ref()?.template.metadata.as_ref()?;
            meta.annotations.as_ref()?.get(annotations::INSTALL_STRATEGY_IDENTIFIER).cloned()
        };
        match before {
            None => notes.push(Note::done(events::SUCCESSFUL_CREATE, "made the DaemonSet virt-handler")),
            Some(before) if id(before) != id(set) => {
                notes.push(Note::done(events::SUCCESSFUL_UPDATE, "began to roll out virt-handler"));
            }
            Some(_) => {}
        }
        Ok(())
    }

    async fn tell(
        &self,
        installation: &KubeVirt,
        status: api::kubevirt::KubeVirtStatus,
    ) -> Result<(), Error> {
        if installation.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let installations: Api<KubeVirt> =
            Api::namespaced(self.context.client.clone(), &self.context.namespace);
        let told = KubeVirt { status: Some(status), ..installation.clone() };
        edit::status(&installations, &told).await.map(drop)
    }
}

fn report(node: &Node) -> Option<(String, RoadReport)> {
    let text = node.annotations().get(annotations::MIGRATION_NETWORK_REPORT)?;
    Some((node.name_any(), RoadReport::parse(text)?))
}

/// Whether there is a definition of this name, in its own namespace or in the installation's.
pub(crate) async fn definition_exists(
    client: Client,
    definition: &str,
    namespace: &str,
) -> Result<bool, Error> {
    let full = full_name(definition, namespace);
    let (namespace, name) = full.split_once('/').unwrap_or((namespace, definition));
    let definitions: Api<NetworkAttachmentDefinition> = Api::namespaced(client, namespace);
    let object = named::<NetworkAttachmentDefinition>(Some(namespace), name);
    let found = definitions.get_opt(name).await.map_err(Error::api("reading", object))?;
    Ok(found.is_some())
}
