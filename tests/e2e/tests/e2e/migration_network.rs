//! The road of guest memory in a lab: a network is named, rolled out, broken, mended and taken away again.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::json;

use crate::installation::{Installation, NODES, network_to_move_on};

/// How long three handlers may take to be replaced, one after the other, and to find each other.
const ROLLED: Duration = Duration::from_mins(2);
/// How long it may take until a change of the network shows.
const SHOWN: Duration = Duration::from_mins(1);

const ROLE: &str = r#"[{ "networkAttachmentDefinition": "fast", "role": "migration" }]"#;

impl Installation {
    pub fn set_roles(&self, roles: &str) -> std::process::Output {
        let patch = format!(r#"{{"spec":{{"configuration":{{"network":{{"roles":{roles}}}}}}}}}"#);
        self.kubectl(&["-n", "kubevirt", "patch", "kv", "kubevirt", "--type=merge", "-p", &patch])
    }

    /// Status and message of a condition of the installation.
    pub fn condition(&self, type_: &str) -> (String, String) {
        let part = |field: &str| {
            let path = format!("jsonpath={{.status.conditions[?(@.type==\"{type_}\")].{field}}}");
            self.in_installation(&["get", "kv", "kubevirt", "-o", &path])
        };
        (part("status"), part("message"))
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
    pub fn in_handler(&self, node: &str, command: &str) -> String {
        let uid = self.pod_uid("kubevirt", "kubevirt.io=virt-handler", node);
        self.shell(node, &format!("ip netns exec {uid} {command}"))
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

    pub fn handlers(&self) -> String {
        let path = "jsonpath={.items[*].metadata.uid}";
        self.in_installation(&["get", "pods", "-l", "kubevirt.io=virt-handler", "-o", path])
    }
}

#[test]
fn guest_memory_takes_the_network_that_is_named_and_says_where_it_cannot() {
    let lab = Installation::new("");
    lab.ready_on("the pod network");
    lab.listens_only_on("eth0");
    let controllers =
        lab.in_installation(&["get", "pods", "-l", "kubevirt.io=virt-controller", "-o", "name"]);

    let refused = lab.set_roles(ROLE);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("there is no NetworkAttachmentDefinition kubevirt/fast")
    );
    assert!(said.contains("spec.configuration.network.roles[0].networkAttachmentDefinition"), "{said}");

    lab.apply(&network_to_move_on("fast", "eth1", &json!({})));
    let before = lab.handlers();
    assert!(lab.set_roles(ROLE).status.success());
    lab.ready_on("kubevirt/fast");
    lab.listens_only_on("migration0");
    assert!(lab.handlers().split(' ').all(|uid| !before.contains(uid)), "every handler was replaced");

    // One node loses its address: it is named, and listens nowhere rather than elsewhere.
    let address = lab.address_of("node-2", "migration0");
    lab.in_handler("node-2", "ip address flush dev migration0");
    lab.until("node-2 is named", SHOWN, || {
        let (status, message) = lab.condition("MigrationNetworkReady");
        (status == "False" && message.contains("node-2: migration0 has no address")).then_some(())
    });
    assert_eq!(lab.listeners("node-2"), [""; 0]);
    lab.in_handler("node-2", &format!("ip address add {address}/24 dev migration0"));
    lab.ready_on("kubevirt/fast");

    // One node is cut off: its peers say so.
    lab.in_handler("node-3", "ip link set migration0 down");
    lab.until("node-3 is named", SHOWN, || {
        let (status, message) = lab.condition("MigrationNetworkReady");
        (status == "False" && message.contains("node-3: ")).then_some(())
    });

    // One of IPv6 takes its place.
    lab.apply(&network_to_move_on("six", "eth1", &json!({ "range": "2001:db8:7::/64" })));
    assert!(lab.set_roles(&ROLE.replace("fast", "six")).status.success());
    lab.ready_on("kubevirt/six");
    lab.listens_only_on("migration0");
    assert!(lab.address_of("node-1", "migration0").is_ipv6());

    assert!(lab.set_roles("[]").status.success());
    lab.ready_on("the pod network");
    lab.listens_only_on("eth0");
    let after = lab.in_installation(&["get", "pods", "-l", "kubevirt.io=virt-controller", "-o", "name"]);
    assert_eq!(controllers, after, "only handlers were rolled");
}
