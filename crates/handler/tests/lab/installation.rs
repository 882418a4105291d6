//! A lab with Godwit in it, as its manifests install it; and what kubectl says of machines there.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::TestLab;

use crate::turn::Turn;

pub const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

/// How often it is looked whether something has come to pass. Every look starts a program or two.
const LOOK: Duration = Duration::from_millis(200);

/// The definition of a network to move on, on this NIC of every node; what is said of its addresses besides their range.
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

pub struct Installation {
    // In this order they go: the lab, the next test's turn.
    lab: TestLab,
    _turn: Turn,
}

/// The pod of an instance.
pub struct LauncherPod {
    pub name: String,
    pub uid: String,
    pub node: String,
}

impl Deref for Installation {
    type Target = TestLab;

    fn deref(&self) -> &TestLab {
        &self.lab
    }
}

impl Installation {
    /// In a lab of this `lab.yaml`.
    pub fn new(config: &str) -> Self {
        Self::on(Turn::beside_another(), config)
    }

    /// The same, and no other lab beside it.
    pub fn alone(config: &str) -> Self {
        Self::on(Turn::alone(), config)
    }

    /// A place for a lab that the test makes, and installs into, itself.
    pub fn none() -> Self {
        let turn = Turn::beside_another();
        programs();
        Self { lab: TestLab::none(), _turn: turn }
    }

    fn on(turn: Turn, config: &str) -> Self {
        let programs = programs();
        let lab = TestLab::up(config);
        let installed = Command::new(project().join("tools/install"))
            .arg(lab.directory().file_name().unwrap())
            .env("GODWIT_LABS", lab.directory().parent().unwrap())
            .env("GODWIT_PROGRAMS", programs)
            .output()
            .unwrap();
        let installation = Self { lab, _turn: turn };
        let said = String::from_utf8_lossy(&installed.stderr);
        assert!(installed.status.success(), "tools/install: {said}\n{}", installation.describe());
        // Not only to a terminal.
        let told = String::from_utf8_lossy(&installed.stdout);
        assert!(told.contains("waiting for virt-controller\n"), "tools/install: {told}");
        installation
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
        let mut command = self.command(arguments);
        command.env("KUBECONFIG", self.kubeconfig());
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
        let shown = self.kubectl(&["get", "vmi", name, "-o", "json"]);
        serde_json::from_slice::<Value>(&shown.stdout).unwrap_or_default()["status"].take()
    }

    pub fn phase(&self, name: &str) -> String {
        self.status_of(name)["phase"].as_str().unwrap_or_default().to_owned()
    }

    pub fn show(&self, name: &str, path: &str) -> String {
        let shown = self.kubectl(&["get", "vmi", name, "-o", &format!("jsonpath={{{path}}}")]);
        String::from_utf8(shown.stdout).unwrap()
    }

    pub fn node_of(&self, name: &str) -> String {
        self.show(name, ".status.nodeName")
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
    pub fn launcher(&self, name: &str) -> Option<LauncherPod> {
        let mut pods = self.pods("default", &format!("vm.kubevirt.io/name={name}"));
        assert!(pods.len() <= 1, "an instance has one launcher pod");
        pods.pop()
    }

    /// The pod of the handler of a node.
    pub fn handler(&self, node: &str) -> LauncherPod {
        let pods = self.pods("kubevirt", "kubevirt.io=virt-handler");
        pods.into_iter().find(|pod| pod.node == node).expect("every node has a handler")
    }

    /// Pods that run.
    fn pods(&self, namespace: &str, label: &str) -> Vec<LauncherPod> {
        let arguments =
            ["-n", namespace, "get", "pods", "-l", label, "--field-selector", "status.phase=Running"];
        let shown = self.kubectl_ok(&[&arguments[..], &["-o", "json"]].concat());
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let pods = shown["items"].as_array().unwrap().iter().map(|pod| LauncherPod {
            name: text(&pod["metadata"]["name"]),
            uid: text(&pod["metadata"]["uid"]),
            node: text(&pod["spec"]["nodeName"]),
        });
        pods.collect()
    }

    pub fn pod_uid(&self, namespace: &str, label: &str, node: &str) -> String {
        let field = format!("spec.nodeName={node}");
        let path = "jsonpath={.items[0].metadata.uid}";
        self.kubectl_ok(&[
            "-n",
            namespace,
            "get",
            "pods",
            "-l",
            label,
            "--field-selector",
            &field,
            "-o",
            path,
        ])
    }

    /// The addresses that launcher pods and their vNICs have on all nodes. Those of other pods come and go.
    pub fn leases(&self) -> BTreeSet<String> {
        let kept =
            self.kubectl_ok(&["-n", "kubevirt", "get", "pods", "-o", "jsonpath={.items[*].metadata.uid}"]);
        let others = self.owners().into_iter().filter(|(_, owner)| !kept.split(' ').any(|uid| owner == uid));
        others.map(|(address, _)| address).collect()
    }

    /// The addresses that CNI gave to a container.
    pub fn given(&self, container: &str) -> BTreeSet<String> {
        let own = self.owners().into_iter().filter(|(_, owner)| owner == container);
        own.map(|(address, _)| address).collect()
    }

    /// Every address that CNI gave on all nodes, and the container that it gave it to.
    fn owners(&self) -> Vec<(String, String)> {
        let script = "cd /var/lib/cni/networks/pods && for file in *[.:]*; do [ -f $file ] && echo $file $(head -n1 $file); done; true";
        let of_all = NODES.map(|node| self.shell(node, script));
        let lines = of_all.iter().flat_map(|text| text.lines()).filter_map(|line| line.split_once(' '));
        lines
            .filter(|(address, _)| address.parse::<IpAddr>().is_ok())
            .map(|(address, owner)| (address.to_owned(), owner.trim().to_owned()))
            .collect()
    }

    /// How many vNICs the handlers of all nodes know to be attached.
    pub fn attachments(&self) -> usize {
        let count = |node| self.shell(node, "ls /var/lib/godwit/handler/attachments | grep -c json || true");
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
        looks.map(|look| String::from_utf8_lossy(&self.kubectl(look).stdout).into_owned()).join("\n")
    }
}

/// The directory with all programs of this build.
pub fn programs() -> PathBuf {
    let launcher = testkit::program("virt-launcher", "GODWIT_LAUNCHER_BIN");
    testkit::program("godwit-cni", "GODWIT_CNI_BIN");
    launcher.parent().unwrap().to_owned()
}

/// Where the project is.
pub fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// A bare instance, without a machine that would start it again. What it is plugged into, and where it runs, is the caller's.
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
        kernelArgs: console=ttyS0 quiet no_timer_check
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
