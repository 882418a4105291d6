//! An API server with the definitions, a node's directory, and the plugin in it.

use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use api::godwit::{AddressAllocation, AddressOwner, PodInterface};
use api::ipam::{IPAMClaim, IPAMClaimSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use testkit::{Options, Server, eventually};

/// The plugin under the name that a configuration gives it.
pub fn plugin(directory: &Path) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let program = BUILT.get_or_init(|| testkit::program("godwit-cni", "GODWIT_CNI_BIN"));
    let path = directory.join("godwit-ipam");
    std::os::unix::fs::symlink(program, &path).unwrap();
    path
}

pub struct World {
    pub server: Server,
    pub client: Client,
    directory: tempfile::TempDir,
    plugin: PathBuf,
}

/// What the plugin answered.
#[derive(Debug)]
pub struct Answer {
    pub success: bool,
    pub json: Value,
    pub stderr: String,
}

impl Answer {
    pub fn ips(&self) -> Vec<IpAddr> {
        assert!(self.success, "{self:?}");
        let ips = self.json["ips"].as_array().unwrap();
        ips.iter()
            .map(|ip| ip["address"].as_str().unwrap().split('/').next().unwrap().parse().unwrap())
            .collect()
    }

    pub fn ip(&self) -> IpAddr {
        let ips = self.ips();
        assert_eq!(ips.len(), 1, "{self:?}");
        ips[0]
    }

    /// Code, and message with details.
    pub fn error(&self) -> (u64, String) {
        assert!(!self.success, "{self:?}");
        let text = |key: &str| self.json[key].as_str().unwrap().to_owned();
        (self.json["code"].as_u64().unwrap(), format!("{}; {}", text("msg"), text("details")))
    }
}

/// One interface of one container of a pod.
#[derive(Clone, Debug)]
pub struct Interface {
    pub pod: String,
    pub uid: String,
    pub container: String,
    pub called: String,
    /// Where it is.
    pub namespace: PathBuf,
}

impl Interface {
    /// Its UID and container are made of its name.
    pub fn of(pod: &str) -> Self {
        Self {
            pod: pod.into(),
            uid: format!("uid-{pod}"),
            container: format!("container-{pod}"),
            called: "net1".into(),
            namespace: "/run/netns/none".into(),
        }
    }

    pub fn in_namespace(self, namespace: &Path) -> Self {
        Self { namespace: namespace.to_owned(), ..self }
    }

    pub fn container(mut self, container: &str) -> Self {
        self.container = container.into();
        self
    }

    pub fn owner(&self, node: &str) -> AddressOwner {
        let pod = PodInterface {
            namespace: "default".into(),
            name: self.pod.clone(),
            uid: self.uid.clone(),
            container_id: self.container.clone(),
            interface: self.called.clone(),
            node_name: node.into(),
        };
        AddressOwner { pod: Some(pod), claim: None }
    }
}

impl World {
    pub async fn new() -> Self {
        Self::with(Options::default()).await
    }

    pub async fn with(options: Options) -> Self {
        let server = Server::start(options).await;
        let client = server.client().await;
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        let wanted = ["addressallocations.godwit.dev", "ipamclaims.k8s.cni.cncf.io"];
        for definition in api::crds() {
            if wanted.contains(&definition.metadata.name.as_deref().unwrap()) {
                definitions.create(&PostParams::default(), &definition).await.unwrap();
            }
        }
        eventually("the definitions to be served", async || {
            let claims: Api<IPAMClaim> = Api::all(client.clone());
            let addresses: Api<AddressAllocation> = Api::all(client.clone());
            let parameters = ListParams::default();
            claims.list(&parameters).await.ok()?;
            addresses.list(&parameters).await.ok()
        })
        .await;
        let directory = tempfile::tempdir().unwrap();
        let plugin = plugin(directory.path());
        Self { server, client, directory, plugin }
    }

    pub fn journal(&self) -> PathBuf {
        self.directory.path().join("journal")
    }

    pub fn journal_files(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.journal()) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// A configuration with this `ipam`, which is completed with what the plugin needs here.
    pub fn config(&self, ipam: Value) -> Value {
        let mut config = json!({ "cniVersion": "1.1.0", "name": "blue", "type": "macvlan" });
        config["ipam"] = ipam;
        let defaults = json!({
            "type": "godwit-ipam",
            "data_dir": self.journal(),
            "node_name": "node-1",
            "kubernetes": { "kubeconfig": self.server.kubeconfig() },
        });
        for (key, value) in defaults.as_object().unwrap() {
            let ipam = config["ipam"].as_object_mut().unwrap();
            ipam.entry(key.clone()).or_insert_with(|| value.clone());
        }
        config
    }

    pub fn start(&self, command: &str, of: &Interface, config: &Value) -> Child {
        let mut child = Command::new(&self.plugin)
            .env_clear()
            .envs([
                ("CNI_COMMAND", command),
                ("CNI_CONTAINERID", &of.container),
                ("CNI_IFNAME", &of.called),
                ("CNI_NETNS", of.namespace.to_str().unwrap()),
                ("CNI_PATH", "/opt/cni/bin"),
            ])
            .env(
                "CNI_ARGS",
                format!(
                    "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={};K8S_POD_UID={}",
                    of.pod, of.uid
                ),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A plugin that was killed does not read.
        let _ = child.stdin.take().unwrap().write_all(config.to_string().as_bytes());
        child
    }

    pub fn call(&self, command: &str, of: &Interface, config: &Value) -> Answer {
        answer(self.start(command, of, config))
    }

    pub fn add(&self, of: &Interface, config: &Value) -> Answer {
        self.call("ADD", of, config)
    }

    /// DEL, which must succeed and say nothing.
    pub fn del(&self, of: &Interface, config: &Value) {
        let answer = self.call("DEL", of, config);
        assert!(answer.success, "{answer:?}");
        assert_eq!(answer.json, Value::Null, "DEL has no answer");
    }

    /// Every object of an address.
    pub async fn objects(&self) -> Vec<AddressAllocation> {
        let addresses: Api<AddressAllocation> = Api::all(self.client.clone());
        addresses.list(&ListParams::default()).await.unwrap().items
    }

    /// As if every address that rests had been released so many seconds ago: by the object, whose word it is.
    pub async fn released_ago(&self, seconds: i64) {
        let addresses: Api<AddressAllocation> = Api::all(self.client.clone());
        let earlier = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds);
        for mut object in self.objects().await {
            if object.spec.released_at.is_some() {
                object.spec.released_at = Some(MicroTime(earlier));
                let name = object.metadata.name.clone().unwrap();
                addresses.replace(&name, &PostParams::default(), &object).await.unwrap();
            }
        }
    }

    pub async fn owner(&self, address: IpAddr) -> Option<AddressOwner> {
        let text = address.to_string();
        let found = self.objects().await.into_iter().find(|object| object.spec.address == text);
        found.and_then(|object| object.spec.owner)
    }

    /// Addresses that somebody has.
    pub async fn owned(&self) -> Vec<IpAddr> {
        let owned = self.objects().await.into_iter().filter(|object| object.spec.owner.is_some());
        owned.map(|object| object.spec.address.parse().unwrap()).collect()
    }

    /// A pod as the API server knows it, with the UID that it gave.
    pub async fn pod(&self, name: &str) -> Interface {
        self.create_pod(json!({ "name": name })).await
    }

    /// A pod that says something of itself.
    pub async fn annotated_pod(&self, name: &str, annotation: &str, text: &str) -> Interface {
        self.create_pod(json!({ "name": name, "annotations": { annotation: text } })).await
    }

    async fn create_pod(&self, metadata: Value) -> Interface {
        let pod = json!({
            "metadata": metadata,
            "spec": { "containers": [{ "name": "main", "image": "host" }] },
        });
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        let pod = pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        Interface { uid: pod.metadata.uid.unwrap(), ..Interface::of(&pod.metadata.name.unwrap()) }
    }

    /// The pod is there, and its containers are not any more.
    pub async fn end_pod(&self, name: &str, phase: &str) {
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        let patch = Patch::Merge(json!({ "status": { "phase": phase } }));
        pods.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn delete_pod(&self, name: &str) {
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        pods.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }

    pub fn claims(&self) -> Api<IPAMClaim> {
        Api::default_namespaced(self.client.clone())
    }

    pub async fn claim(&self, name: &str, addresses: Option<&str>) -> IPAMClaim {
        let spec = IPAMClaimSpec { network: "blue".into(), interface: String::new() };
        let mut claim = IPAMClaim::new(name, spec);
        claim.metadata.annotations =
            addresses.map(|text| [("godwit.dev/addresses".to_owned(), text.to_owned())].into());
        self.claims().create(&PostParams::default(), &claim).await.unwrap()
    }
}

pub fn answer(child: Child) -> Answer {
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let text = output.stdout.trim_ascii();
    let json = if text.is_empty() { Value::Null } else { serde_json::from_slice(text).unwrap() };
    Answer { success: output.status.success(), json, stderr }
}

/// The configuration with the result of ADD, as a runtime gives it to CHECK and DEL.
pub fn with_previous(config: &Value, answer: &Answer) -> Value {
    let mut config = config.clone();
    config["prevResult"] = answer.json.clone();
    config
}
