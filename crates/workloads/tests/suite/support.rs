//! A cluster for one test: an API server in memory, the controllers, and nodes that can be switched off.

mod kubelet;
mod witness;

use std::fmt::Debug;
use std::time::Duration;

use apiserver::ApiServer;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::eventually;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use workloads::Options;

pub use kubelet::Kubelet;
pub use witness::Witness;

/// The namespace in which tests work.
pub const SPACE: &str = "default";

pub struct Cluster {
    pub server: ApiServer,
    pub client: Client,
    pub kubelet: Kubelet,
    pub options: Options,
    controllers: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

/// So that a silent node is found soon, and a busy machine does not make a lively one look silent.
pub fn soon() -> Options {
    Options { node_grace: Duration::from_secs(3), ..Options::default() }
}

impl Cluster {
    pub async fn new(nodes: &[&str]) -> Self {
        Self::with(soon(), nodes).await
    }

    pub async fn with(options: Options, nodes: &[&str]) -> Self {
        let server = ApiServer::start(apiserver::Options::default()).await.unwrap();
        let client = server.client(SPACE);
        let kubelet = Kubelet::start(client.clone());
        let mut cluster = Self { server, client, kubelet, options, controllers: None };
        cluster.start_controllers();
        for node in nodes {
            cluster.add_node(node, json!({})).await;
        }
        cluster
    }

    pub fn start_controllers(&mut self) {
        let (stop, stopped) = oneshot::channel::<()>();
        let (client, options) = (self.client.clone(), self.options.clone());
        let task = tokio::spawn(async move {
            let stop = async {
                let _ = stopped.await;
            };
            workloads::run(client, options, stop).await.unwrap();
        });
        self.controllers = Some((stop, task));
    }

    pub async fn stop_controllers(&mut self) {
        let (stop, task) = self.controllers.take().expect("they run");
        stop.send(()).unwrap();
        task.await.unwrap();
    }

    /// As a crash does: wherever they are, without a word.
    pub async fn kill_controllers(&mut self) {
        let (_stop, task) = self.controllers.take().expect("they run");
        task.abort();
        assert!(task.await.is_err_and(|ended| ended.is_cancelled()));
    }

    /// A node with room for ten pods, that lives. `extra` is merged into it.
    pub async fn add_node(&self, name: &str, extra: Value) {
        let room = json!({"cpu": "4", "memory": "8Gi", "pods": "10"});
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"capacity": room, "allocatable": room},
        });
        merge(&mut node, extra);
        let api: Api<Node> = Api::all(self.client.clone());
        api.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        self.kubelet.revive(name);
        eventually("the node to be ready", async || {
            let node = api.get(name).await.unwrap();
            let conditions = node.status.unwrap().conditions.unwrap_or_default();
            let ready = conditions.iter().any(|known| known.type_ == "Ready" && known.status == "True");
            (ready && node.spec.unwrap_or_default().taints.unwrap_or_default().is_empty()).then_some(())
        })
        .await;
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), SPACE)
    }

    pub async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        let object = serde_json::from_value(object).unwrap();
        self.api::<K>().create(&PostParams::default(), &object).await.unwrap()
    }

    pub async fn patch<K>(&self, name: &str, change: Value) -> K
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap()
    }

    pub async fn pods(&self) -> Vec<Pod> {
        self.api::<Pod>().list(&ListParams::default()).await.unwrap().items
    }

    pub async fn pod(&self, name: &str, spec: Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": name, "labels": {"name": name}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        merge(&mut pod, spec);
        self.create(pod).await
    }

    /// Where a pod went, once it went anywhere.
    pub async fn node_of(&self, pod: &str) -> String {
        eventually(&format!("{pod} to get a node"), async || {
            self.api::<Pod>().get(pod).await.unwrap().spec.unwrap().node_name
        })
        .await
    }

    /// Why a pod has no node, once it is said.
    pub async fn waits_because(&self, pod: &str) -> (String, String) {
        eventually(&format!("{pod} to say why it waits"), async || {
            let conditions = self.api::<Pod>().get(pod).await.unwrap().status?.conditions?;
            let found = conditions.into_iter().find(|known| known.type_ == "PodScheduled")?;
            (found.status == "False").then(|| (found.reason.unwrap(), found.message.unwrap()))
        })
        .await
    }

    pub async fn node(&self, name: &str) -> Node {
        Api::all(self.client.clone()).get(name).await.unwrap()
    }

    pub async fn patch_node(&self, name: &str, change: Value) {
        let api: Api<Node> = Api::all(self.client.clone());
        api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    }
}

/// An object with labels, containers of an image, and whatever else.
pub fn workload(name: &str, image: &str, spec: Value) -> Value {
    let mut object = json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": image}]},
            },
        },
    });
    merge(&mut object["spec"], spec);
    object
}

pub fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}})
}

pub fn image_of(pod: &Pod) -> String {
    pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap()
}

pub fn is_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Names of pods that are not on their way out.
pub fn staying(pods: &[Pod]) -> Vec<String> {
    pods.iter().filter(|pod| !is_leaving(pod)).map(ResourceExt::name_any).collect()
}

/// Objects are merged, everything else is replaced.
#[allow(clippy::needless_pass_by_value, reason = "every caller writes it in place")]
pub fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
