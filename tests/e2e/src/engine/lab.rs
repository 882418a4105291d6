//! The engine `lab`: a cluster as `godwit lab up` makes it.
//!
//! Everything that is true of labs alone is here: a pod's network namespace is named by the pod's
//! UID, the kubelet is the agent of the lab, containers lie below `/var/lib/kubelet/containers`, a
//! node has the programs of this machine, and outside is the fabric.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lab::topology::{self, Topology};
use testkit::TestLab;

use super::{Engine, Place, Pod, Process, Processes, Signal};
use crate::installation::project;

/// Every line names what it is and whose: files and their content, links and their other ends,
/// mounts, processes.
const TRACES: &str = r#"
uid='[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}'
find /run /var/lib/cni /var/lib/godwit /var/lib/kubelet -xdev -maxdepth 4 -regextype posix-extended -regex ".*/$uid[^/]*" -printf 'file %p\n' |
  sed 's|^file /run/netns/|netns |'
grep -rHoE -- "$uid(-vnic)?" /var/lib/cni /var/lib/godwit/handler /var/lib/kubelet/networks | sed 's/^/entry /'
grep -oE " [^ ]*$uid[^ ]*" /proc/self/mounts | sed 's/^/mount/'
ip -o link show | sed -E 's/^[0-9]+: ([^@:]+)[@:].*link-netns ([^ ]+).*/link \1 to \2/; t; s/^[0-9]+: ([^@:]+)[@:].*/link \1/'
for process in /proc/[0-9]*; do
  read -r command 2>/dev/null <"$process/comm" || continue
  case $command in qemu-system*|libvirtd|dnsmasq|virt-launcher) echo "process ${process#/proc/} $command" ;; esac
done
true
"#;

/// Defines `of UID PROGRAM`, which runs an awk program on the processes of a pod. A line has the
/// number on the node, the number in the container, and the command. A process that is exiting has
/// the number 0, and is left out: `kill` of 0 would signal the shell itself.
const OF: &str = r#"of() {
  for process in $(ip netns pids "$1" 2>/dev/null); do
    awk '/^Name:/ { name = $2 } /^NSpid:/ && $2 > 1 { print $2, $NF, name }' /proc/$process/status 2>/dev/null
  done | awk "$2"
}
"#;

/// A running lab.
pub struct Lab {
    lab: TestLab,
    topology: Topology,
}

impl Lab {
    /// Of a `lab.yaml`.
    pub fn up(spec: &str) -> Self {
        let topology = topology::read(spec).unwrap_or_else(|refusal| panic!("{refusal}\n{spec}"));
        Self { lab: TestLab::up(spec), topology }
    }

    /// A lab that does not exist yet: the test makes it, with `godwit lab up`.
    pub fn none() -> Self {
        Self { lab: TestLab::none(), topology: Topology::default() }
    }

    /// What a script prints on a node; it must succeed.
    fn on_node(&self, node: &str, script: &str) -> String {
        let output = self.command(Place::Node(node), script).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script:?} on {node}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The NIC of a node on a network.
    fn nic(&self, node: &str, network: &str) -> &str {
        let (_, node) = self.topology.node(node).unwrap_or_else(|| panic!("the lab has no node {node}"));
        let nic = node.nics.iter().find(|nic| nic.network == network);
        &nic.unwrap_or_else(|| panic!("{} is not on the network {network}", node.name)).name
    }
}

impl Engine for Lab {
    fn kubeconfig(&self) -> PathBuf {
        self.lab.kubeconfig()
    }

    fn directory(&self) -> PathBuf {
        self.lab.directory()
    }

    fn install(&self, programs: &Path) -> Output {
        let directory = self.directory();
        let mut install = Command::new(project().join("tools/install"));
        install.arg(directory.file_name().unwrap());
        install.env("GODWIT_LABS", directory.parent().unwrap()).env("GODWIT_PROGRAMS", programs);
        install.output().unwrap()
    }

    fn command(&self, place: Place<'_>, script: &str) -> Command {
        let (place, netns) = match place {
            Place::Node(node) => (node.to_owned(), None),
            Place::Pod(pod) => (format!("{}/{}", pod.namespace, pod.name), None),
            Place::PodNetwork(pod) => (pod.node.clone(), Some(pod.uid.as_str())),
            Place::Outside => ("fabric".to_owned(), None),
        };
        let mut arguments = vec!["lab", "shell", &place, "--"];
        arguments.extend(netns.into_iter().flat_map(|netns| ["ip", "netns", "exec", netns]));
        arguments.extend(["/bin/sh", "-c", script]);
        self.lab.command(&arguments)
    }

    /// The node's own root file system.
    fn tools_image(&self) -> &'static str {
        "host"
    }

    fn pod_network(&self) -> &'static str {
        "pods"
    }

    fn processes(&self, pod: &Pod) -> Vec<Process> {
        let shown = self.on_node(&pod.node, &format!("{OF}of {} '{{ print $1, $3 }}'", pod.uid));
        let lines = shown.lines().filter_map(|line| line.split_once(' '));
        lines
            .map(|(number, command)| Process { number: number.parse().unwrap(), command: command.to_owned() })
            .collect()
    }

    fn signal(&self, node: &str, targets: &[(&Pod, Processes<'_>)], signal: Signal) -> usize {
        let of = |(pod, processes): &(&Pod, Processes<'_>)| {
            let condition = match processes {
                Processes::All => "1".to_owned(),
                Processes::First => "$2 == 1".to_owned(),
                Processes::Named(command) => format!("$3 ~ /^{command}/"),
                Processes::NamedButFirst(command) => format!("$3 ~ /^{command}/ && $2 != 1"),
            };
            format!("of {} '{condition} {{ print $1 }}'", pod.uid)
        };
        let all = targets.iter().map(of).collect::<Vec<_>>().join("; ");
        // Find all processes before any is signalled: a pod's other processes end with its first.
        let script = format!(
            "{OF}processes=$({all})\nfor process in $processes; do kill -{} $process 2>/dev/null && echo; done; true",
            signal.name()
        );
        self.on_node(node, &script).lines().count()
    }

    fn signal_kubelet(&self, node: &str, signal: Signal) {
        self.on_node(node, &format!("kill -{} $(pgrep -f '[i]nternal agent')", signal.name()));
    }

    fn machine_processes(&self, command: &str) -> Vec<u32> {
        let directory = self.directory();
        let directory = directory.to_str().unwrap();
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let of_lab = |process: &u32| {
            let read =
                |name: &str| std::fs::read_to_string(format!("/proc/{process}/{name}")).unwrap_or_default();
            read("comm").starts_with(command) && read("mountinfo").contains(directory)
        };
        all.filter(of_lab).collect()
    }

    fn files(&self, pod: &Pod, pattern: &str) -> Vec<String> {
        let files = format!("/var/lib/kubelet/containers/containers/{}_*/upper/{pattern}", pod.uid);
        let shown = self.on_node(&pod.node, &format!("ls -d {files} 2>/dev/null || true"));
        shown.lines().map(ToOwned::to_owned).collect()
    }

    fn volume(&self, pod: &Pod, volume: &str) -> String {
        format!("/var/lib/kubelet/pods/{}/volumes/kubernetes.io~empty-dir/{volume}", pod.uid)
    }

    fn traces(&self, node: &str) -> Vec<String> {
        self.on_node(node, TRACES).lines().map(ToOwned::to_owned).collect()
    }

    fn set_connected(&self, node: &str, network: &str, connected: bool) {
        let state = if connected { "up" } else { "down" };
        self.on_node(node, &format!("ip link set {} {state}", self.nic(node, network)));
    }

    /// The agent looks for plugins in `/opt/cni/bin` first.
    fn record_plugin_calls(&self, node: &str, plugin: &str, file: &str) {
        let script = format!(
            r#"mkdir -p /opt/cni/bin
cat >/opt/cni/bin/{plugin} <<'PLUGIN'
#!/bin/sh
echo "$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $CNI_NETNS" >>{file}
exec /usr/lib/cni/{plugin}
PLUGIN
chmod +x /opt/cni/bin/{plugin}"#
        );
        self.on_node(node, &script);
    }

    fn describe(&self) -> String {
        String::from_utf8_lossy(&self.lab.godwit(&["lab", "status"]).stdout).into_owned()
    }
}
