//! A cluster with Godwit in it, as its manifests install it; and what kubectl says of machines
//! there.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::Objects;

use crate::engine::{self, Engine, Place, Pod, Processes, Signal};
use crate::objects::{KUBEVIRT, Kind, VMS, text};
use crate::turn::Turn;

pub const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

/// How often a test looks whether something has come to pass.
const LOOK: Duration = Duration::from_millis(200);

/// The definition of a network to move on, on this NIC of every node; what is said of its addresses
/// besides their range.
pub fn network_to_move_on(name: &str, nic: &str, addresses: &Value) -> String {
    let mut ipam = json!({ "type": "godwit-ipam", "range": "198.51.100.0/24" });
    ipam.as_object_mut().unwrap().extend(addresses.as_object().unwrap().clone());
    let config = json!({
        "cniVersion": "1.0.0", "name": name, "type": "macvlan", "master": nic, "mode": "bridge", "ipam": ipam,
    });
    let definition = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": { "name": name, "namespace": "kubevirt" }, "spec": { "config": config.to_string() },
    });
    definition.to_string()
}

/// A cluster with Godwit in it. It dereferences to its engine.
pub struct Installation {
    // Dropped in this order: the cluster is gone before another test may make one.
    engine: Arc<dyn Engine>,
    kubeconfig: OnceLock<PathBuf>,
    pub(crate) objects: OnceLock<Objects>,
    _turn: Turn,
}

impl Deref for Installation {
    type Target = dyn Engine;

    fn deref(&self) -> &Self::Target {
        &*self.engine
    }
}

impl Installation {
    /// In a cluster of this specification: a `lab.yaml`, whatever the engine.
    pub fn new(spec: &str) -> Self {
        let (turn, programs) = (Turn::take(), programs());
        let installation = Self::on(turn, engine::start(spec));
        let installed = installation.install(programs);
        let said = String::from_utf8_lossy(&installed.stderr);
        assert!(installed.status.success(), "installing Godwit failed: {said}\n{}", installation.describe());
        // Not only to a terminal.
        let told = String::from_utf8_lossy(&installed.stdout);
        assert!(told.contains("waiting for virt-controller\n"), "what it waits for is not shown: {told}");
        installation
    }

    /// On an engine whose cluster the test makes, and installs Godwit into, itself.
    pub fn of(engine: Arc<dyn Engine>) -> Self {
        Self::on(Turn::take(), engine)
    }

    fn on(turn: Turn, engine: Arc<dyn Engine>) -> Self {
        Self { engine, kubeconfig: OnceLock::new(), objects: OnceLock::new(), _turn: turn }
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        self.kubeconfig.get_or_init(|| self.engine.kubeconfig())
    }

    /// The engine, for those who look at the cluster from a thread of their own.
    pub fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(&self.engine)
    }

    /// What a command prints at a place; it must succeed.
    pub fn shell(&self, place: Place<'_>, script: &str) -> String {
        let output = self.try_shell(place, script);
        assert!(
            output.status.success(),
            "{script:?} at {place:?}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn try_shell(&self, place: Place<'_>, script: &str) -> Output {
        self.command(place, script).output().unwrap()
    }

    /// Stock kubectl, as `tools/setup` provides it.
    pub fn kubectl(&self, arguments: &[&str]) -> Output {
        self.kubectl_command(arguments).output().unwrap()
    }

    /// The same, for those who have input for it or end it themselves.
    pub fn kubectl_command(&self, arguments: &[&str]) -> Command {
        static KUBECTL: OnceLock<PathBuf> = OnceLock::new();
        let mut command = Command::new(KUBECTL.get_or_init(testkit::kubectl));
        command.args(arguments).env("KUBECONFIG", self.kubeconfig()).stdin(Stdio::null());
        command
    }

    /// What kubectl prints; it must succeed.
    pub fn kubectl_ok(&self, arguments: &[&str]) -> String {
        let output = self.kubectl(arguments);
        assert!(
            output.status.success(),
            "kubectl {}: {}{}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// `kubectl apply` of a manifest; it must succeed.
    pub fn apply(&self, manifest: &str) {
        let applied = self.with_manifest("apply", manifest);
        assert!(applied.status.success(), "kubectl apply: {}", String::from_utf8_lossy(&applied.stderr));
    }

    /// `kubectl apply` or `kubectl create` of a manifest.
    pub fn with_manifest(&self, verb: &str, manifest: &str) -> Output {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), manifest).unwrap();
        self.kubectl(&[verb, "-f", file.path().to_str().unwrap()])
    }

    /// Waits until every part of Godwit runs.
    pub fn rolled_out(&self) {
        for what in ["ds/virt-handler", "deploy/virt-controller"] {
            self.in_installation(&["rollout", "status", what, "--timeout=60s"]);
        }
    }

    /// What kubectl says in the installation's namespace; it must succeed.
    pub fn in_installation(&self, arguments: &[&str]) -> String {
        self.kubectl_ok(&[&["-n", "kubevirt"], arguments].concat())
    }

    /// The program, as a person uses it who has the cluster's kubeconfig.
    pub fn at_terminal(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(programs().join("godwit"));
        command.args(arguments).env("KUBECONFIG", self.kubeconfig()).stdin(Stdio::null());
        command
    }

    /// A file of the project, or the files of a directory.
    pub fn apply_file(&self, path: &str) {
        self.kubectl_ok(&["apply", "-f", project().join(path).to_str().unwrap()]);
    }

    /// Looks until there is something.
    pub fn until<T>(&self, what: &str, within: Duration, look: impl Fn() -> Option<T>) -> T {
        let end = Instant::now() + within;
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(Instant::now() < end, "not within {within:?}: {what}\n{}", self.describe());
            thread::sleep(LOOK);
        }
    }

    /// Looks until it holds.
    pub fn until_it_is(&self, what: &str, within: Duration, holds: impl Fn() -> bool) {
        self.until(what, within, || holds().then_some(()));
    }

    /// The status of an instance; null if there is none.
    pub fn status_of(&self, name: &str) -> Value {
        self.object(Kind::Vmi, VMS, name)["status"].take()
    }

    pub fn phase(&self, name: &str) -> String {
        self.status_of(name)["phase"].as_str().unwrap_or_default().to_owned()
    }

    pub fn node_of(&self, name: &str) -> String {
        text(&self.status_of(name), "/nodeName")
    }

    pub fn has_ended(&self, name: &str) -> bool {
        matches!(self.phase(name).as_str(), "Failed" | "Succeeded")
    }

    /// The addresses of an instance that has as many as this, one a vNIC.
    pub fn addresses(&self, name: &str, count: usize) -> Option<Vec<String>> {
        let status = self.status_of(name);
        let interfaces = status["interfaces"].as_array()?.iter();
        let addresses: Vec<_> =
            interfaces.filter_map(|interface| Some(interface["ipAddress"].as_str()?.to_owned())).collect();
        (addresses.len() == count).then_some(addresses)
    }

    pub fn address(&self, name: &str) -> Option<String> {
        self.addresses(name, 1)?.pop()
    }

    /// The launcher pod of an instance, once it runs.
    pub fn launcher(&self, name: &str) -> Option<Pod> {
        let mut pods = self.running_pods("default", &format!("vm.kubevirt.io/name={name}"));
        assert!(pods.len() <= 1, "an instance has one launcher pod");
        pods.pop()
    }

    /// The pod of the handler of a node.
    pub fn handler(&self, node: &str) -> Pod {
        let pods = self.running_pods("kubevirt", "kubevirt.io=virt-handler");
        pods.into_iter().find(|pod| pod.node == node).expect("every node has a handler")
    }

    fn running_pods(&self, namespace: &str, label: &str) -> Vec<Pod> {
        self.pods(namespace, label, "status.phase=Running")
    }

    /// Pods of a node with this label, in any phase.
    pub fn pods_on(&self, node: &str, namespace: &str, label: &str) -> Vec<Pod> {
        self.pods(namespace, label, &format!("spec.nodeName={node}"))
    }

    /// The first of them; there must be one.
    pub fn pod_on(&self, node: &str, namespace: &str, label: &str) -> Pod {
        let first = self.pods_on(node, namespace, label).into_iter().next();
        first.unwrap_or_else(|| panic!("there is no pod {label} on {node}\n{}", self.describe()))
    }

    fn pods(&self, namespace: &str, label: &str, fields: &str) -> Vec<Pod> {
        let pods = self.selected(Kind::Pod, namespace, label, fields);
        // One that is not scheduled yet has no node.
        let scheduled = pods.iter().filter(|pod| pod["spec"]["nodeName"].is_string());
        let pods = scheduled.map(|pod| Pod {
            namespace: text(pod, "/metadata/namespace"),
            name: text(pod, "/metadata/name"),
            uid: text(pod, "/metadata/uid"),
            node: text(pod, "/spec/nodeName"),
        });
        pods.collect()
    }

    /// The UIDs of the installation's own pods.
    pub fn own_pods(&self) -> Vec<String> {
        self.objects(Kind::Pod, KUBEVIRT).iter().map(|pod| text(pod, "/metadata/uid")).collect()
    }

    /// Sends a signal to every process of a pod; there must be one.
    pub fn signal_pod(&self, pod: &Pod, signal: Signal) {
        let reached = self.signal(&pod.node, &[(pod, Processes::All)], signal);
        assert!(reached > 0, "no process of pod {} is left\n{}", pod.name, self.describe());
    }

    /// The addresses that launcher pods and their vNICs have on all nodes. Those of other pods come
    /// and go.
    pub fn leases(&self) -> BTreeSet<String> {
        let kept = self.own_pods();
        let others = self.owners().into_iter().filter(|(_, owner)| !kept.contains(owner));
        others.map(|(address, _)| address).collect()
    }

    /// The addresses that CNI gave to a container.
    pub fn given(&self, container: &str) -> BTreeSet<String> {
        let own = self.owners().into_iter().filter(|(_, owner)| owner == container);
        own.map(|(address, _)| address).collect()
    }

    /// Every address that CNI gave on all nodes, and the container that it gave it to.
    fn owners(&self) -> Vec<(String, String)> {
        let script = format!(
            "cd /var/lib/cni/networks/{} && for file in *[.:]*; do [ -f $file ] && echo $file $(head -n1 $file); done; true",
            self.pod_network()
        );
        let of_all = NODES.map(|node| self.shell(Place::Node(node), &script));
        let lines = of_all.iter().flat_map(|text| text.lines()).filter_map(|line| line.split_once(' '));
        lines
            .filter(|(address, _)| address.parse::<IpAddr>().is_ok())
            .map(|(address, owner)| (address.to_owned(), owner.trim().to_owned()))
            .collect()
    }

    /// How many vNICs the handlers of all nodes know to be attached.
    pub fn attachments(&self) -> usize {
        let count = |node| {
            self.shell(Place::Node(node), "ls /var/lib/godwit/handler/attachments | grep -c json || true")
        };
        NODES.iter().map(|node| count(node).trim().parse::<usize>().unwrap()).sum()
    }

    /// What a person would look at.
    pub fn describe(&self) -> String {
        let looks: [&[&str]; 7] = [
            &["-n", "kubevirt", "get", "kv,ds,csr", "-o", "yaml"],
            &["get", "pods,vm,vmi,vmim", "-A", "-o", "wide"],
            &["get", "vmi,vmim", "-o", "yaml"],
            &["get", "events"],
            &["-n", "kubevirt", "logs", "-l", "kubevirt.io=virt-handler", "--tail=30"],
            &["-n", "kubevirt", "logs", "-l", "kubevirt.io=virt-controller", "--tail=30"],
            &["logs", "-l", "kubevirt.io=virt-launcher", "--tail=30"],
        ];
        let shown = looks.map(|look| String::from_utf8_lossy(&self.kubectl(look).stdout).into_owned());
        format!("{}\n{}", self.engine.describe(), shown.join("\n"))
    }
}

/// The directory with all programs of this build.
pub fn programs() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        testkit::program("godwit", "GODWIT_BIN");
        testkit::program("godwit-cni", "GODWIT_CNI_BIN");
        let launcher = testkit::program("virt-launcher", "GODWIT_LAUNCHER_BIN");
        launcher.parent().expect("a program is in a directory").to_owned()
    })
}

/// Where the project is.
pub fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// A bare instance, without a machine that would start it again. What it is plugged into, and where
/// it runs, is the caller's.
pub fn instance(name: &str, interfaces: &str, networks: &str, place: &str) -> String {
    format!(
        "
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{ name: {name}, labels: {{ made: by-test }} }}
spec:
  terminationGracePeriodSeconds: 10
  {place}
  domain:
    cpu: {{ cores: 1, model: qemu64 }}
    # With less the kernel has no room to unpack itself.
    memory: {{ guest: 96Mi }}
    firmware:
      kernelBoot:
        kernelArgs: console=ttyS0 quiet no_timer_check cryptomgr.notests
        container: {{ image: 'godwit/guest:1', kernelPath: /vmlinuz, initrdPath: /initrd }}
    devices:
      interfaces: {interfaces}
  networks: {networks}
"
    )
}

/// One with a vNIC on the pod network, on a node.
pub fn simple_instance(name: &str, node: &str) -> String {
    let place = format!("nodeSelector: {{ kubernetes.io/hostname: {node} }}");
    instance(name, "[{ name: default, bridge: {} }]", "[{ name: default, pod: {} }]", &place)
}

/// The same with a binding of its vNIC.
pub fn bound(name: &str, node: &str, binding: &str) -> String {
    simple_instance(name, node).replace("bridge", binding)
}

/// examples/vm.yaml with a bridged vNIC: the guest has an address of its own on the pod network, and
/// cannot migrate. In the file the vNIC is masqueraded.
pub fn bridged_example() -> String {
    let example = std::fs::read_to_string(project().join("examples/vm.yaml")).unwrap();
    let bridged = example.replace("{name: default, masquerade: {}}", "{name: default, bridge: {}}");
    assert_ne!(bridged, example, "examples/vm.yaml has no masqueraded vNIC");
    bridged
}

pub fn other_node(node: &str) -> &'static str {
    NODES.into_iter().find(|other| *other != node).unwrap()
}
