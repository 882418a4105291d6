//! In a lab: three nodes, one range, a real plugin that asks ours for addresses.

use std::collections::BTreeSet;

use serde_json::Value;
use testkit::{TestLab, eventually};

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

const NETWORK: &str = r#"
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: { name: blue }
spec:
  config: '{ "cniVersion": "1.0.0", "name": "blue", "type": "macvlan", "master": "eth1", "mode": "bridge",
    "ipam": { "type": "godwit-ipam", "range": "198.51.100.0/24", "range_start": "198.51.100.10", "range_end": "198.51.100.14" } }'
"#;

const PODS: &str = "
apiVersion: apps/v1
kind: DaemonSet
metadata: { name: pods }
spec:
  selector: { matchLabels: { app: pods } }
  template:
    metadata:
      labels: { app: pods }
      annotations: { k8s.v1.cni.cncf.io/networks: blue }
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{ name: main, image: host, command: [sleep, infinity] }]
";

fn machine(name: &str, node: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  annotations: {{ k8s.v1.cni.cncf.io/networks: '[{{"name":"blue","ipam-claim-reference":"vm.blue"}}]' }}
spec:
  nodeName: {node}
  terminationGracePeriodSeconds: 0
  containers: [{{ name: main, image: host, command: [sleep, infinity] }}]
"#
    )
}

const CLAIM: &str = r#"
apiVersion: k8s.cni.cncf.io/v1alpha1
kind: IPAMClaim
metadata: { name: vm.blue, annotations: { godwit.dev/addresses: "198.51.100.13" } }
spec: { network: blue, interface: "" }
"#;

fn ready(lab: &TestLab, pod: &str) {
    lab.kubectl_ok(&["wait", "--for=condition=Ready", &format!("pod/{pod}"), "--timeout=60s"]);
}

fn json(lab: &TestLab, arguments: &[&str]) -> Value {
    let arguments = [&["get", "-o", "json"], arguments].concat();
    serde_json::from_str(&lab.kubectl_ok(&arguments)).unwrap()
}

/// Who has which address, by the objects: the pods' names, or claims', by address.
fn owners(lab: &TestLab) -> Vec<(String, String)> {
    let list = json(lab, &["addressallocations"]);
    let owned = list["items"].as_array().unwrap().iter().filter(|item| item["spec"]["owner"].is_object());
    let name = |item: &Value| {
        let owner = &item["spec"]["owner"];
        owner["pod"]["nodeName"].as_str().or(owner["claim"]["name"].as_str()).unwrap().to_owned()
    };
    owned.map(|item| (item["spec"]["address"].as_str().unwrap().to_owned(), name(item))).collect()
}

#[tokio::test]
async fn three_nodes_share_a_range_and_a_claim_keeps_its_address_across_nodes() {
    let lab = TestLab::up("clusters: [{ name: lab, nodes: 3 }]");
    let program = testkit::program("godwit-cni", "GODWIT_CNI_BIN");
    for node in NODES {
        lab.shell(
            node,
            &format!(
                "mkdir -p /opt/cni/bin /etc/cni/net.d/whereabouts.d && cp {} /opt/cni/bin/godwit-ipam &&
                 cp /etc/godwit/kubeconfig /etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig",
                program.display()
            ),
        );
    }
    lab.apply(NETWORK);
    lab.apply(CLAIM);
    lab.apply(&machine("source", "node-1"));
    ready(&lab, "source");
    lab.apply(PODS);
    lab.kubectl_ok(&["rollout", "status", "ds/pods", "--timeout=60s"]);

    let pods = json(&lab, &["pods", "-l", "app=pods"]);
    let mut addresses = BTreeSet::new();
    for pod in pods["items"].as_array().unwrap() {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let status = pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"].as_str().unwrap();
        let status: Value = serde_json::from_str(status).unwrap();
        let entry = status.as_array().unwrap().iter().find(|entry| entry["name"] == "default/blue").unwrap();
        let address = entry["ips"][0].as_str().unwrap().to_owned();
        assert!(lab.shell(name, "ip -br address show net1").contains(&format!("{address}/24")));
        addresses.insert(address);
    }
    assert_eq!(addresses.len(), 3, "{addresses:?}");
    let mut nodes: Vec<String> = owners(&lab)
        .into_iter()
        .filter(|(address, _)| addresses.contains(address))
        .map(|(_, name)| name)
        .collect();
    nodes.sort();
    assert_eq!(nodes, NODES, "each is held by the pod of its node");

    // The claim's address is on the source, then on the target, and nobody else gets it meanwhile.
    lab.apply(&machine("target", "node-2"));
    ready(&lab, "target");
    for pod in ["source", "target"] {
        assert!(lab.shell(pod, "ip -br address show net1").contains("198.51.100.13/24"), "{pod}");
    }
    lab.kubectl_ok(&["delete", "pod", "source", "target", "--wait"]);
    let claim = json(&lab, &["ipamclaim", "vm.blue"]);
    assert_eq!(claim["status"]["ips"], serde_json::json!(["198.51.100.13/24"]));
    assert!(owners(&lab).contains(&("198.51.100.13".to_owned(), "vm.blue".to_owned())));

    lab.kubectl_ok(&["delete", "ds", "pods"]);
    eventually("the pods' addresses to be free", async || (owners(&lab).len() == 1).then_some(())).await;
    for node in NODES {
        let journal = lab.shell(node, "ls /var/lib/cni/godwit-ipam 2>/dev/null | wc -l");
        assert_eq!(journal.trim(), "0", "the journal of {node}");
    }
}
