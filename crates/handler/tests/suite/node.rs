//! A node for one test: namespaces that end with it, an API server, and a handler that can be killed.

use std::fs;
use std::future::Future;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::kubevirt::VirtualMachineInstance;
use apiserver::ApiServer;
use apiserver::auth::User;
use k8s_openapi::api::core::v1::{Node as ApiNode, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, CustomResourceExt as _, ResourceExt as _};
use serde_json::{Value, json};
use testkit::Used;
use tokio::time::timeout;
use tower::ServiceExt as _;

use crate::NODE_DIRECTORY;
use crate::relay::Relay;

pub const NODE: &str = "node1";
const INSIDE: &str = "GODWIT_TEST_INSIDE";
/// Far more than any test takes on a busy machine.
pub const LONG: Duration = Duration::from_mins(1);

/// Runs the body of the test of this name in namespaces of its own.
pub fn isolated<F: Future<Output = ()>>(test: &str, body: impl FnOnce(Node) -> F) {
    if std::env::var_os(INSIDE).is_none() {
        return outside(test);
    }
    run("mount", &["-t", "tmpfs", "-o", "mode=755", "none", "/run"]);
    run("ip", &["link", "set", "lo", "up"]);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let node = Node::start().await;
        timeout(LONG * 3, body(node)).await.expect("the test came to its end");
    });
}

fn outside(test: &str) {
    let output = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--net", "--fork", "--kill-child"])
        .arg("--mount-proc")
        .args(["sh", "-c", "\"$@\"; exit $?", "init"])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("setpriv and unshare are installed");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "in its namespaces:\n{}", String::from_utf8_lossy(&said));
    assert!(String::from_utf8_lossy(&said).contains("1 passed"), "{test} is the name of the test");
}

/// A node with an API server and, once it is started, a handler.
pub struct Node {
    pub client: Client,
    directory: PathBuf,
    handler: Option<Child>,
    server: ApiServer,
}

/// A launcher pod with its instance.
pub struct LauncherPod {
    pub name: String,
    pub uid: String,
    pub private: PathBuf,
}

impl LauncherPod {
    /// The launcher of this pod.
    pub async fn launcher(&self) -> Relay {
        Relay::listen(&self.uid, &self.private.join("launcher.sock")).await
    }

    /// A connection to the CNI proxy, from the network namespace of this name.
    pub async fn proxy_from(&self, namespace: &str) -> Relay {
        let path = self.private.join("cni.sock");
        // One that nobody listens on is left by a handler that was killed.
        eventually("the proxy listens", || std::os::unix::net::UnixStream::connect(&path).is_ok()).await;
        Relay::connect(namespace, &path).await
    }

    pub async fn proxy(&self) -> Relay {
        self.proxy_from(&self.uid).await
    }
}

impl Node {
    async fn start() -> Self {
        let directory = PathBuf::from("/run/node");
        for name in ["net.d", "bin", "kubelet", "ipam"] {
            fs::create_dir_all(directory.join(name)).unwrap();
        }
        let server = ApiServer::start(apiserver::Options::default()).await.unwrap();
        let listening = server.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        fs::write(directory.join("kubeconfig"), &listening.kubeconfig).unwrap();
        tokio::spawn(listening.run(std::future::pending()));
        let node = Self { client: server.client("default"), directory, handler: None, server };
        node.write_network(&[]);
        let crds: Api<CustomResourceDefinition> = Api::all(node.client.clone());
        let crd = VirtualMachineInstance::crd();
        crds.create(&PostParams::default(), &crd).await.unwrap();
        let name = crd.name_any();
        let established = await_condition(crds, &name, conditions::is_crd_established());
        timeout(LONG, established).await.unwrap().unwrap();
        let nodes: Api<ApiNode> = Api::all(node.client.clone());
        let body = json!({ "metadata": { "name": NODE } });
        nodes.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
        node
    }

    /// The node's pod network: a bridge, and these plugins after it.
    pub fn write_network(&self, more: &[Value]) {
        let bridge = json!({ "type": "bridge", "bridge": "pods0", "isGateway": true, "ipam": { "type": "host-local",
            "ranges": [[{ "subnet": "10.88.0.0/24" }]], "dataDir": self.directory.join("ipam"), "routes": [{ "dst": "0.0.0.0/0" }] } });
        let plugins = [&[bridge], more].concat();
        let conf = json!({ "cniVersion": "1.0.0", "name": "pods", "plugins": plugins });
        fs::write(self.directory.join("net.d/10-pods.conflist"), conf.to_string()).unwrap();
    }

    /// Adds a plugin that passes on what it is given, and while the file `held-<operation>` is there waits for it to go.
    pub fn add_holding_plugin(&self) {
        let path = self.directory.join("bin/hold");
        let directory = self.directory.display();
        let script = format!(
            "#!/bin/sh\ninput=$(cat)\nheld={directory}/held-$CNI_COMMAND\n\
             if [ -e $held ]; then touch $held.reached; while [ -e $held ]; do sleep 0.05; done; fi\n\
             [ $CNI_COMMAND = ADD ] && echo \"$input\" | jq -c .prevResult\nexit 0\n"
        );
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        self.write_network(&[json!({ "type": "hold" })]);
    }

    pub fn hold(&self, operation: &str) {
        fs::write(self.directory.join(format!("held-{operation}")), "").unwrap();
    }

    /// Waits until a plugin is held.
    pub async fn held(&self, operation: &str) {
        let reached = self.directory.join(format!("held-{operation}.reached"));
        eventually("the plugin is reached", || reached.exists()).await;
    }

    pub fn let_go(&self, operation: &str) {
        fs::remove_file(self.directory.join(format!("held-{operation}"))).unwrap();
    }

    pub fn start_handler(&mut self) {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["become_the_handler", "--exact", "--ignored", "--nocapture"])
            .env(NODE_DIRECTORY, &self.directory)
            .spawn()
            .unwrap();
        self.handler = Some(child);
    }

    /// Starts a handler in this process; what it asks of the API server is written down.
    pub fn start_observed_handler(&self) -> Used {
        let used = Used::default();
        let record = used.clone();
        let service = self.server.service(User::admin());
        let noting =
            service.map_request(move |request: http::Request<kube::client::Body>| record.note(request));
        let options = crate::options(&self.directory, Client::new(noting, "default"));
        tokio::spawn(handler::run(options, std::future::pending()));
        used
    }

    /// Starts a handler in this process. Once `when` is set, somebody else writes to the instance just before the handler's next
    /// write of its status.
    pub fn start_overtaken_handler(&self, instance: &'static str, when: Arc<AtomicBool>) {
        let (service, instances) = (self.server.service(User::admin()), self.instances());
        let overtaken = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (service, instances, when) = (service.clone(), instances.clone(), Arc::clone(&when));
            async move {
                let writes =
                    request.method() == http::Method::PATCH && request.uri().path().ends_with("/status");
                if writes && when.swap(false, Ordering::Relaxed) {
                    let patch = json!({ "metadata": { "annotations": { "test/overtaken": "yes" } } });
                    instances.patch(instance, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
                }
                service.oneshot(request).await
            }
        });
        let options = crate::options(&self.directory, Client::new(overtaken, "default"));
        tokio::spawn(handler::run(options, std::future::pending()));
    }

    pub fn kill_handler(&mut self) {
        let mut handler = self.handler.take().expect("the handler runs");
        handler.kill().unwrap();
        handler.wait().unwrap();
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    pub fn instances(&self) -> Api<VirtualMachineInstance> {
        Api::default_namespaced(self.client.clone())
    }

    /// A scheduled instance with these vNICs and its pod, which runs and has an `eth0` of its own.
    pub async fn launcher_pod(&self, name: &str, vnics: &[&str]) -> LauncherPod {
        let networks: Vec<_> = vnics.iter().map(|name| json!({ "name": name, "pod": {} })).collect();
        let interfaces: Vec<_> = vnics.iter().map(|name| json!({ "name": name, "bridge": {} })).collect();
        self.launcher_pod_with(name, json!(interfaces), json!(networks)).await
    }

    pub async fn launcher_pod_with(&self, name: &str, interfaces: Value, networks: Value) -> LauncherPod {
        let instance = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": { "name": name, "labels": { "kubevirt.io/nodeName": NODE } },
            "spec": { "domain": { "devices": { "interfaces": interfaces } }, "networks": networks, "terminationGracePeriodSeconds": 5 },
        });
        let instances = self.instances();
        let made = instances
            .create(&PostParams::default(), &serde_json::from_value(instance).unwrap())
            .await
            .unwrap();
        let status = json!({ "status": { "phase": "Scheduled", "nodeName": NODE } });
        instances.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        let pod_name = format!("virt-launcher-{name}");
        let pod = json!({
            "metadata": { "name": pod_name, "labels": { "kubevirt.io": "virt-launcher", "kubevirt.io/created-by": made.uid() } },
            "spec": { "nodeName": NODE, "containers": [{ "name": "compute", "image": "godwit/launcher" }] },
        });
        let pod =
            self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        let uid = pod.uid().unwrap();
        run("ip", &["netns", "add", &uid]);
        run("ip", &["-n", &uid, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0-peer"]);
        run("ip", &["-n", &uid, "address", "add", "192.0.2.7/24", "dev", "eth0"]);
        run("ip", &["-n", &uid, "link", "set", "eth0", "up"]);
        let private =
            self.directory.join("kubelet/pods").join(&uid).join("volumes/kubernetes.io~empty-dir/private");
        fs::create_dir_all(&private).unwrap();
        // The path of a socket has 107 bytes at most.
        let short = PathBuf::from(format!("/run/{name}"));
        std::os::unix::fs::symlink(&private, &short).unwrap();
        self.set_pod_phase(&pod_name, "Running").await;
        LauncherPod { name: pod_name, uid, private: short }
    }

    pub async fn set_pod_phase(&self, name: &str, phase: &str) {
        let status = json!({ "status": { "phase": phase } });
        self.pods().patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    /// The pod is gone, as a kubelet that loses it would have it: its object, its namespace, its directory.
    pub async fn lose_pod(&self, pod: &LauncherPod) {
        run("ip", &["netns", "del", &pod.uid]);
        fs::remove_dir_all(self.directory.join("kubelet/pods").join(&pod.uid)).unwrap();
        self.delete_pod(pod).await;
    }

    /// The object alone.
    pub async fn delete_pod(&self, pod: &LauncherPod) {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.pods().delete(&pod.name, &now).await.unwrap();
    }

    /// Waits until the instance is as it should be.
    pub async fn instance(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let last = std::sync::Mutex::new(Value::Null);
        let condition = |instance: Option<&VirtualMachineInstance>| {
            let status =
                instance.map(|instance| serde_json::to_value(&instance.status).unwrap()).unwrap_or_default();
            *last.lock().unwrap() = status.clone();
            holds(&status)
        };
        let found = timeout(LONG, await_condition(self.instances(), name, condition)).await;
        let last = last.into_inner().unwrap();
        assert!(
            found.is_ok_and(|found| found.is_ok()),
            "instance {name} never was: {what}; its status is {last:#}"
        );
        last
    }

    pub async fn phase(&self, name: &str, phase: &str) -> Value {
        self.instance(name, phase, |status| status["phase"] == phase).await
    }

    /// The addresses that are given out on the pod network.
    pub fn leases(&self) -> Vec<String> {
        let files = fs::read_dir(self.directory.join("ipam/pods")).into_iter().flatten().flatten();
        let names = files.map(|file| file.file_name().into_string().unwrap());
        let mut leases: Vec<_> = names.filter(|name| name.parse::<IpAddr>().is_ok()).collect();
        leases.sort();
        leases
    }

    /// The files of the journal, whole.
    pub fn journal(&self) -> Vec<String> {
        let files = fs::read_dir(self.directory.join("handler/attachments")).into_iter().flatten().flatten();
        let entries = files
            .map(|file| file.path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "json"));
        // An entry may be deleted between the two looks.
        let mut entries: Vec<_> = entries.filter_map(|path| fs::read_to_string(path).ok()).collect();
        entries.sort();
        entries
    }

    /// Everything that an attachment could change.
    pub fn everything(&self) -> (Vec<String>, Vec<String>, Vec<Vec<String>>) {
        let namespaces = fs::read_dir("/run/netns").unwrap().flatten();
        let mut names: Vec<_> = namespaces.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        (self.leases(), self.journal(), names.iter().map(|name| links(name)).collect())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut handler) = self.handler.take() {
            let _ = handler.kill();
            let _ = handler.wait();
        }
    }
}

/// Names of the interfaces of a namespace, but `lo`.
pub fn links(namespace: &str) -> Vec<String> {
    let all: Value = serde_json::from_str(&run("ip", &["-n", namespace, "-j", "link", "show"])).unwrap();
    let names = all.as_array().unwrap().iter().map(|link| link["ifname"].as_str().unwrap().to_owned());
    names.filter(|name| name != "lo").collect()
}

/// An interface as `ip addr` shows it.
pub fn show(namespace: &str, interface: &str) -> String {
    run("ip", &["-n", namespace, "address", "show", "dev", interface])
}

/// Waits for something that nobody announces.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LONG, waiting).await.unwrap_or_else(|_| panic!("did not come to pass: {what}"));
}

pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Where plugins of Debian are.
#[test]
fn plugins_are_installed() {
    assert!(
        Path::new("/usr/lib/cni/bridge").exists(),
        "there are no CNI plugins in /usr/lib/cni: tools/setup"
    );
}
