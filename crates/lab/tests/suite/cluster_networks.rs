//! A lab's secondary networks as Harvester's objects, as kubectl shows them.

use serde_json::Value;
use testkit::{TestLab, eventually};

#[tokio::test]
async fn secondary_networks_are_cluster_networks_on_the_nodes_that_have_them() {
    let lab = TestLab::up(
        "
clusters: [{ name: lab, nodes: 2 }]
networks:
  - { name: management, nic: eth0 }
  - { name: fast, nic: eth1, mtu: 4000 }
  - { name: half, nic: eth2, nodes: [node-2], bridge: br-half }
",
    );
    let get = |kind: &str| -> Value {
        serde_json::from_str(&lab.kubectl_ok(&["get", kind, "-o", "json"])).unwrap()
    };
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap();
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let statuses = eventually("the networks to be published", async || {
        // Their kinds come after the nodes.
        let shown = lab.kubectl(&["get", "vlanstatuses", "-o", "json"]);
        let statuses: Value = serde_json::from_slice(&shown.stdout).ok()?;
        (names(&statuses).len() == 3).then_some(statuses)
    })
    .await;
    assert_eq!(names(&statuses), ["fast-node-1", "fast-node-2", "half-node-2"]);
    assert_eq!(statuses["items"][0]["status"]["conditions"][0]["status"], "True");
    let networks = get("clusternetworks");
    assert_eq!(names(&networks), ["fast", "half"]);
    let told = &networks["items"][0]["metadata"]["annotations"];
    assert_eq!(
        (&told["godwit.dev/uplink"], &told["network.harvesterhci.io/uplink-mtu"]),
        (&"eth1".into(), &"4000".into())
    );
    assert_eq!(networks["items"][1]["metadata"]["annotations"]["godwit.dev/bridge"], "br-half");
    let configs = get("vlanconfigs");
    assert_eq!(
        configs["items"][1]["metadata"]["annotations"]["network.harvesterhci.io/matched-nodes"],
        r#"["node-2"]"#
    );
    // The selector says the same.
    let selected = lab.kubectl_ok(&["get", "nodes", "-l", "network.harvesterhci.io/half=true", "-o", "name"]);
    assert_eq!(selected.trim(), "node/node-2");
}
