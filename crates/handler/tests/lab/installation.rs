//! A lab with Godwit in it, as its manifests install it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Deref;
use std::path::Path;
use std::process::Command;

use testkit::TestLab;

pub const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

pub struct Installation {
    lab: TestLab,
    _images: tempfile::TempDir,
}

impl Deref for Installation {
    type Target = TestLab;

    fn deref(&self) -> &TestLab {
        &self.lab
    }
}

impl Installation {
    pub fn new() -> Self {
        Self::with("")
    }

    /// In a lab of this `lab.yaml`.
    pub fn with(config: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["build", "--quiet", "--locked", "-p", "virt-launcher"])
            .current_dir(root)
            .status();
        assert!(built.unwrap().success(), "cargo build -p virt-launcher failed");
        let (lab, images) = (TestLab::up(config), tempfile::tempdir().unwrap());
        let test = std::env::current_exe().unwrap();
        let made = Command::new(root.join("tools/images"))
            .arg(images.path())
            .arg(lab.directory().file_name().unwrap())
            .env("GODWIT_LABS", lab.directory().parent().unwrap())
            .env("GODWIT_PROGRAMS", test.ancestors().nth(2).unwrap())
            .output()
            .unwrap();
        assert!(made.status.success(), "tools/images: {}", String::from_utf8_lossy(&made.stderr));
        let installation = Self { lab, _images: images };
        installation.kubectl_ok(&["create", "namespace", "kubevirt"]);
        installation.apply_file("deploy");
        let rolled = ["rollout", "status", "deploy/virt-controller", "--timeout=120s"];
        installation.in_installation(&rolled);
        installation.in_installation(&["wait", "kv/kubevirt", "--for=condition=Available", "--timeout=120s"]);
        installation
    }

    /// What kubectl says in the installation's namespace; it must succeed.
    pub fn in_installation(&self, arguments: &[&str]) -> String {
        self.kubectl_ok(&[&["-n", "kubevirt"], arguments].concat())
    }

    /// A file of the project, or the files of a directory.
    pub fn apply_file(&self, path: &str) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        self.kubectl_ok(&["apply", "-f", root.join(path).to_str().unwrap()]);
    }

    pub fn show(&self, name: &str, path: &str) -> String {
        let shown = self.kubectl(&["get", "vmi", name, "-o", &format!("jsonpath={{{path}}}")]);
        String::from_utf8(shown.stdout).unwrap()
    }

    pub fn phase(&self, name: &str) -> String {
        self.show(name, ".status.phase")
    }

    pub fn node_of(&self, name: &str) -> String {
        self.show(name, ".status.nodeName")
    }

    pub fn address(&self, name: &str) -> Option<String> {
        Some(self.show(name, ".status.interfaces[0].ipAddress")).filter(|address| !address.is_empty())
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

    /// Whether the guest says the same, asked from a node.
    pub fn echo(&self, node: &str, address: &str, text: &str) -> Option<()> {
        let output = self.try_shell(node, &format!("echo '{text}' | timeout 3 socat -t2 - TCP:{address}:7"));
        (String::from_utf8_lossy(&output.stdout).trim() == text).then_some(())
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

pub fn other_node(node: &str) -> &'static str {
    NODES.into_iter().find(|other| *other != node).unwrap()
}

/// An instance on a node, without a machine that would start it again.
pub fn instance(name: &str, node: &str) -> String {
    bound(name, node, "bridge")
}

/// The same with a binding of its vNIC.
pub fn bound(name: &str, node: &str, binding: &str) -> String {
    format!(
        "
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{ name: {name} }}
spec:
  terminationGracePeriodSeconds: 10
  nodeSelector: {{ kubernetes.io/hostname: {node} }}
  domain:
    cpu: {{ cores: 1, model: qemu64 }}
    memory: {{ guest: 256Mi }}
    firmware:
      kernelBoot:
        kernelArgs: console=ttyS0 quiet
        container: {{ image: 'godwit/guest:1', kernelPath: /vmlinuz, initrdPath: /initrd }}
    devices:
      interfaces: [{{ name: default, {binding}: {{}} }}]
  networks: [{{ name: default, pod: {{}} }}]
"
    )
}
