//! The migration network: one is named, rolled out, broken, mended and taken away again.

use std::time::Duration;

use e2e::{Installation, network_to_move_on};
use serde_json::json;

/// How long it may take until a change of the network shows.
const SHOWN: Duration = Duration::from_mins(1);

const ROLE: &str = r#"[{ "networkAttachmentDefinition": "fast", "role": "migration" }]"#;

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
