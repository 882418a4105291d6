//! The migration network of a cluster: which one the installation names, whether handlers reach
//! each other on it, and where they listen.

use std::net::IpAddr;
use std::process::Output;
use std::time::Duration;

use crate::engine::Place;
use crate::installation::{Installation, NODES};
use crate::objects::{KUBEVIRT, Kind, text};

/// Guests and their moves have a network each, so that one can be cut without the other.
pub const SPEC: &str = "
networks:
  - { name: management, nic: eth0 }
  - { name: secondary, nic: eth1, bridge: br-guests }
  - { name: moving, nic: eth2 }
";
/// Migrations take the definition `moving`.
pub const ROLE: &str = r#"[{ "networkAttachmentDefinition": "moving", "role": "migration" }]"#;

/// How long three handlers may take to be replaced, one after the other, and to find each other.
const ROLLED: Duration = Duration::from_mins(2);

/// The manifest of a pod `squatter` that has an address of the definition `moving`.
pub fn squatter(image: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{ name: squatter, namespace: kubevirt, annotations: {{ k8s.v1.cni.cncf.io/networks: moving }} }}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{{ name: squatter, image: '{image}', command: [sleep, infinity] }}]
"
    )
}

impl Installation {
    pub fn set_roles(&self, roles: &str) -> Output {
        let patch = format!(r#"{{"spec":{{"configuration":{{"network":{{"roles":{roles}}}}}}}}}"#);
        self.kubectl(&["-n", "kubevirt", "patch", "kv", "kubevirt", "--type=merge", "-p", &patch])
    }

    /// Status and message of a condition of the installation.
    pub fn condition(&self, type_: &str) -> (String, String) {
        let installation = self.object(Kind::KubeVirt, KUBEVIRT, "kubevirt");
        let conditions = installation["status"]["conditions"].as_array();
        let condition = conditions.into_iter().flatten().find(|condition| condition["type"] == type_);
        let part = |field: &str| condition.map(|condition| text(condition, field)).unwrap_or_default();
        (part("/status"), part("/message"))
    }

    /// Waits until every handler reaches every other on this network, and the roll-out is over.
    pub fn ready_on(&self, network: &str) {
        self.until(&format!("ready on {network}"), ROLLED, || {
            let (status, message) = self.condition("MigrationNetworkReady");
            let all = self.condition("Available").1 == "All components are ready.";
            (status == "True" && message.contains(network) && all).then_some(())
        });
    }

    /// Runs in the network namespace of a node's handler.
    pub fn in_handler(&self, node: &str, script: &str) -> String {
        let handler = self.pod_on(node, "kubevirt", "kubevirt.io=virt-handler");
        self.shell(Place::PodNetwork(&handler), script)
    }

    /// Addresses and interfaces on which a node's handler listens for guest memory.
    pub fn listeners(&self, node: &str) -> Vec<String> {
        let sockets = self.in_handler(node, "ss -Hltn 'sport = :9186'");
        sockets.lines().filter_map(|line| line.split_whitespace().nth(3)).map(str::to_owned).collect()
    }

    /// The address of an interface of a node's handler.
    pub fn address_of(&self, node: &str, interface: &str) -> IpAddr {
        let shown = self.in_handler(node, &format!("ip -br address show scope global dev {interface}"));
        let address = shown.split_whitespace().nth(2).unwrap_or_else(|| panic!("{node}: {shown}"));
        address.split('/').next().unwrap().parse().unwrap()
    }

    /// Every handler listens on the address of this interface, by this interface, and nowhere else.
    pub fn listens_only_on(&self, interface: &str) {
        for node in NODES {
            let address = match self.address_of(node, interface) {
                IpAddr::V4(address) => address.to_string(),
                IpAddr::V6(address) => format!("[{address}]"),
            };
            let expected = format!("{address}%{interface}:9186");
            assert_eq!(self.listeners(node), [expected], "{node}");
        }
    }

    /// The UIDs of all handlers' pods.
    pub fn handlers(&self) -> String {
        let handlers = self.selected(Kind::Pod, KUBEVIRT, "kubevirt.io=virt-handler", "");
        handlers.iter().map(|pod| text(pod, "/metadata/uid")).collect::<Vec<_>>().join(" ")
    }
}
