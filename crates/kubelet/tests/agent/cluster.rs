//! A cluster of one node: an API server in this process, and an agent that can be stopped and started again.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use apiserver::ApiServer;
use futures::TryStreamExt as _;
use identity::{Authority, Subject};
use k8s_openapi::api::core::v1::{ContainerStatus, Event, Pod, PodStatus};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::config::KubeConfigOptions;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, CustomResourceExt as _};
use kubelet::{Capacity, CniOptions, Options, Serving};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::fixture::{LONG, Node, eventually};

pub const NODE: &str = "node1";
const HOUR: Duration = Duration::from_hours(1);
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

type Running = (oneshot::Sender<()>, JoinHandle<Result<(), kubelet::Error>>);

pub struct Cluster {
    pub client: Client,
    pub node: Node,
    server: ApiServer,
    agent: Option<Running>,
}

impl Cluster {
    /// A cluster whose node has a pod network, and an agent that runs.
    pub async fn start(node: Node) -> Self {
        let mut cluster = Self::without_network(node).await;
        cluster.write_network();
        cluster.start_agent();
        cluster
    }

    /// A cluster whose node has no pod network, and no agent yet.
    pub async fn without_network(node: Node) -> Self {
        run("ip", &["link", "set", "lo", "up"]);
        let data = node.state.join("apiserver");
        fs::create_dir_all(&data).unwrap();
        fs::create_dir_all(node.state.join("net.d")).unwrap();
        let options = apiserver::Options { data: Some(data.clone()), ..apiserver::Options::default() };
        let server = ApiServer::start(options).await.unwrap();
        Self { client: server.client("default"), node, server, agent: None }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.node.state.join(name)
    }

    /// Gives the node its pod network.
    pub fn write_network(&self) {
        let conf = json!({ "cniVersion": "1.0.0", "name": "pods",
            "plugins": [bridge("pods0", "10.88.0.0/24", &self.path("ipam"))] });
        fs::write(self.path("net.d/10-pods.conflist"), conf.to_string()).unwrap();
    }

    pub fn start_agent(&mut self) {
        let options = options(&self.node, self.client.clone());
        let (stop, stopped) = oneshot::channel();
        let agent = tokio::spawn(kubelet::run(options, async {
            // Whoever forgets to stop it ends the test with it.
            let _ = stopped.await;
        }));
        self.agent = Some((stop, agent));
    }

    /// Serves the API to other processes; its administrator's kubeconfig.
    pub async fn serve(&self) -> PathBuf {
        let listening = self.server.listen((LOCAL, 0).into()).await.unwrap();
        let path = self.path("kubeconfig");
        fs::write(&path, &listening.kubeconfig).unwrap();
        tokio::spawn(listening.run(std::future::pending()));
        path
    }

    /// Ends the agent; its pods go on.
    pub async fn stop_agent(&mut self) {
        let (stop, agent) = self.agent.take().expect("the agent runs");
        stop.send(()).expect("the agent has not ended by itself");
        agent.await.unwrap().unwrap();
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    pub async fn create(&self, pod: Value) -> Pod {
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
    }

    pub async fn get(&self, name: &str) -> Pod {
        self.pods().get(name).await.unwrap()
    }

    /// Waits until the pod is as it should be.
    pub async fn pod(&self, name: &str, what: &str, holds: impl Fn(&Pod) -> bool) -> Pod {
        let last = std::sync::Mutex::new(None);
        let condition = |pod: Option<&Pod>| {
            *last.lock().unwrap() = pod.cloned();
            pod.is_some_and(&holds)
        };
        if let Ok(found) = tokio::time::timeout(LONG, await_condition(self.pods(), name, condition)).await {
            return found.unwrap().unwrap();
        }
        let events = self.events(name).await;
        let last = last.into_inner().unwrap().map(|pod| serde_json::to_string_pretty(&pod.status).unwrap());
        let last = last.unwrap_or_default();
        panic!("pod {name} never was: {what}; its status is {last}; its events are {events:#?}")
    }

    pub async fn running(&self, name: &str) -> Pod {
        self.pod(name, "running and ready", |pod| phase(pod) == "Running" && is_ready(pod)).await
    }

    /// Deletes it, and waits until it is gone from the API.
    pub async fn delete(&self, name: &str, parameters: &DeleteParams) {
        let pod = self.get(name).await;
        self.pods().delete(name, parameters).await.unwrap();
        self.gone(&pod).await;
    }

    pub async fn gone(&self, pod: &Pod) {
        let name = pod.metadata.name.clone().unwrap();
        let gone =
            await_condition(self.pods(), &name, conditions::is_deleted(pod.metadata.uid.as_deref().unwrap()));
        if tokio::time::timeout(LONG, gone).await.is_err() {
            let pod = self.pods().get_opt(&name).await;
            panic!("pod {name} is deleted; events: {:#?}; pod: {pod:#?}", self.events(&name).await);
        }
        // The API forgets a pod that is done before the node has.
        let uid = pod.metadata.uid.clone().unwrap();
        let traces = [
            "state/containers",
            "state/logs",
            "kubelet/pods",
            "kubelet/files",
            "volatile/sandboxes",
            "netns",
        ];
        eventually(&format!("nothing is left of pod {name}"), || {
            let files = traces
                .iter()
                .flat_map(|place| fs::read_dir(self.path(place)).into_iter().flatten().flatten());
            !files.map(|file| file.file_name().into_string().unwrap()).any(|file| file.contains(&uid))
        })
        .await;
    }

    /// Reasons and messages of the pod's events.
    pub async fn events(&self, pod: &str) -> Vec<String> {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let all = events.list(&ListParams::default()).await.unwrap();
        let own = all.items.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(pod));
        own.map(|event| format!("{}: {}", event.reason.unwrap(), event.message.unwrap())).collect()
    }

    /// Waits for an event of the pod with all of these words.
    pub async fn event(&self, pod: &str, words: &[&str]) {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let found = async {
            let mut watch = Box::pin(events.watch(&WatchParams::default(), "0").await.unwrap());
            while let Some(event) = watch.try_next().await.unwrap() {
                let (WatchEvent::Added(event) | WatchEvent::Modified(event)) = event else { continue };
                let text =
                    format!("{}: {}", event.reason.unwrap_or_default(), event.message.unwrap_or_default());
                let is_it = event.involved_object.name.as_deref() == Some(pod);
                if is_it && words.iter().all(|word| text.contains(word)) {
                    return;
                }
            }
            panic!("the watch of events ended");
        };
        let found = tokio::time::timeout(LONG, found).await;
        assert!(found.is_ok(), "no event with {words:?}: {:#?}", self.events(pod).await);
    }

    /// Teaches the API what networks are.
    pub async fn define_networks(&self) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let crd = api::multus::NetworkAttachmentDefinition::crd();
        let name = crd.metadata.name.clone().unwrap();
        definitions.create(&PostParams::default(), &crd).await.unwrap();
        let established = await_condition(definitions, &name, conditions::is_crd_established());
        tokio::time::timeout(LONG, established).await.unwrap().unwrap();
    }

    /// A network on a bridge of its own.
    pub async fn create_network(&self, name: &str, bridge_name: &str, subnet: &str) {
        let mut config = bridge(bridge_name, subnet, &self.path("ipam"));
        config["cniVersion"] = json!("1.0.0");
        let definition = api::multus::NetworkAttachmentDefinition::with_config(name, config.to_string());
        let definitions: Api<api::multus::NetworkAttachmentDefinition> =
            Api::default_namespaced(self.client.clone());
        definitions.create(&PostParams::default(), &definition).await.unwrap();
    }

    /// The addresses that are given out on a network.
    pub fn leases(&self, network: &str) -> Vec<String> {
        let files = fs::read_dir(self.path("ipam").join(network)).into_iter().flatten().flatten();
        let names = files.map(|file| file.file_name().into_string().unwrap());
        names.filter(|name| name.parse::<IpAddr>().is_ok()).collect()
    }
}

/// How the agent of a node is set up.
fn options(node: &Node, client: Client) -> Options {
    let path = |name: &str| node.state.join(name);
    let authority = Authority::load_or_generate(&path("apiserver"), "ca", HOUR).unwrap();
    let subject = Subject { common_name: NODE.to_owned(), addresses: vec![LOCAL], ..Subject::default() };
    let identity = authority.issue(&subject, HOUR).unwrap();
    Options {
        name: NODE.to_owned(),
        client,
        addresses: vec![LOCAL],
        labels: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
        taints: Vec::new(),
        capacity: Capacity { cores: 2, memory: 4 << 30, pods: 110, ephemeral_storage: 10 << 30 },
        runtime: node.options(),
        state: path("kubelet"),
        run: path("volatile"),
        cni: CniOptions {
            conf_dir: path("net.d"),
            plugin_dirs: vec!["/usr/lib/cni".into()],
            journal: path("journal"),
            netns_dir: path("netns"),
        },
        serving: Serving {
            address: (LOCAL, 0).into(),
            certificate: identity.certificate,
            key: identity.key,
            client_ca: authority.certificate().to_owned(),
        },
        api_server: ("127.0.0.1".to_owned(), 6443),
        cluster_dns: None,
        heartbeat: Duration::from_millis(500),
    }
}

const KUBECONFIG: &str = "GODWIT_TEST_KUBECONFIG";

/// An agent in a process of its own, which can be killed.
pub fn agent_process(kubeconfig: &Path) -> std::process::Child {
    let this = std::env::current_exe().unwrap();
    let arguments = ["become_the_agent", "--exact", "--ignored", "--nocapture"];
    let mut command = Command::new(this);
    command.args(arguments).env(KUBECONFIG, kubeconfig).stdout(std::process::Stdio::null()).spawn().unwrap()
}

/// What such a process does.
pub fn become_the_agent() {
    let kubeconfig = fs::read(std::env::var_os(KUBECONFIG).expect("a test starts it")).unwrap();
    let node = Node { state: "/run/node".into(), cgroup: std::env::var("GODWIT_TEST_INSIDE").unwrap() };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let kubeconfig = serde_json::from_slice(&kubeconfig).unwrap();
        let config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let options = options(&node, Client::try_from(config).unwrap());
        kubelet::run(options, std::future::pending()).await.unwrap();
    });
}

fn bridge(name: &str, subnet: &str, ipam: &Path) -> Value {
    json!({ "type": "bridge", "bridge": name, "isGateway": true, "capabilities": { "ips": true, "mac": true },
        "ipam": { "type": "host-local", "ranges": [[{ "subnet": subnet }]], "dataDir": ipam,
            "routes": [{ "dst": "0.0.0.0/0" }] } })
}

/// A pod on the node with one container that runs a shell script.
pub fn script(name: &str, text: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "nodeName": NODE,
            "terminationGracePeriodSeconds": 5,
            "containers": [{ "name": "main", "image": "host", "command": ["/bin/sh", "-c", text] }],
        },
    })
}

/// A pod that runs until it is asked to end.
pub fn sleeper(name: &str) -> Value {
    script(name, "trap 'exit 0' TERM; echo ready; while :; do sleep 1000 & wait; done")
}

pub fn status(pod: &Pod) -> PodStatus {
    pod.status.clone().unwrap_or_default()
}

pub fn phase(pod: &Pod) -> String {
    status(pod).phase.unwrap_or_default()
}

pub fn condition(pod: &Pod, name: &str) -> String {
    let conditions = status(pod).conditions.unwrap_or_default();
    conditions
        .into_iter()
        .find(|condition| condition.type_ == name)
        .map(|condition| condition.status)
        .unwrap_or_default()
}

pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready") == "True"
}

/// The status of its container `main`, or of an init container.
pub fn container(pod: &Pod, name: &str) -> ContainerStatus {
    let status = status(pod);
    let mut all = status.init_container_statuses.into_iter().chain(status.container_statuses).flatten();
    all.rfind(|status| status.name == name).unwrap_or_default()
}

pub fn waiting(pod: &Pod, name: &str) -> String {
    container(pod, name).state.and_then(|state| state.waiting?.reason).unwrap_or_default()
}

pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
