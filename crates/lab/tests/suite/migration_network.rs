//! A DaemonSet gets a second network: what a dedicated migration network is made of.
//!
//! Once with static addresses, once by DHCP from a server on the segment, once through a bridge of the node.

use std::collections::BTreeMap;

use serde_json::Value;
use testkit::{TestLab, eventually};

const HANDLER: &str = "
apiVersion: apps/v1
kind: DaemonSet
metadata: { name: handler }
spec:
  updateStrategy: { rollingUpdate: { maxUnavailable: 1 } }
  selector: { matchLabels: { app: handler } }
  template:
    metadata: { labels: { app: handler } }
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: handler
        image: host
        command: [iperf3, -s]
        readinessProbe: { tcpSocket: { port: 5201 }, periodSeconds: 1 }
        volumeMounts: [{ name: podinfo, mountPath: /etc/podinfo }]
      volumes:
      - name: podinfo
        downwardAPI:
          items:
          - path: network-status
            fieldRef: { fieldPath: \"metadata.annotations['k8s.v1.cni.cncf.io/network-status']\" }
";

/// A definition without a configuration: each node has its own on disk, because the addresses differ.
const ON_DISK: &str = "
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: { name: net1 }
";

const BYTES: u64 = 64 << 20;

fn write_configuration(lab: &TestLab, node: &str, config: &str) {
    lab.shell(node, &format!("cat > /etc/cni/net.d/90-net1.conf <<'END'\n{config}\nEND"));
}

/// Adds the network to the DaemonSet and watches it roll: never more than one pod away.
async fn roll(lab: &TestLab) {
    let patch = r#"{"spec":{"template":{"metadata":{"annotations":{"k8s.v1.cni.cncf.io/networks":"net1@migration0"}}}}}"#;
    lab.kubectl_ok(&["patch", "ds", "handler", "-p", patch]);
    let rolled = async || {
        let set: Value =
            serde_json::from_str(&lab.kubectl_ok(&["get", "ds", "handler", "-o", "json"])).unwrap();
        let status = &set["status"];
        let unavailable = status["numberUnavailable"].as_u64().unwrap_or_default();
        assert!(unavailable <= 1, "one node at a time: {status}");
        let seen = status["observedGeneration"] == set["metadata"]["generation"];
        (seen && status["updatedNumberScheduled"] == 3 && status["numberAvailable"] == 3).then_some(())
    };
    eventually("the DaemonSet to have rolled", rolled).await;
    lab.kubectl_ok(&["rollout", "status", "ds/handler", "--timeout=60s"]);
}

/// Pod, node, and the address on `migration0`, checked in all three places.
fn addresses(lab: &TestLab) -> Vec<(String, String, String)> {
    let pods: Value =
        serde_json::from_str(&lab.kubectl_ok(&["get", "pods", "-l", "app=handler", "-o", "json"])).unwrap();
    let pods = pods["items"].as_array().unwrap();
    assert_eq!(pods.len(), 3);
    let mut found = Vec::new();
    for pod in pods {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let status = pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"]
            .as_str()
            .expect("network-status");
        let entries: Value = serde_json::from_str(status).unwrap();
        let entry = entries
            .as_array()
            .unwrap()
            .iter()
            .find(|entry| entry["interface"] == "migration0")
            .expect("migration0");
        assert_eq!(entry["name"], "default/net1");
        let address = entry["ips"][0].as_str().unwrap();
        let file: Value = serde_json::from_str(&lab.shell(name, "cat /etc/podinfo/network-status")).unwrap();
        assert_eq!(file, entries, "the downward file says what the annotation says");
        let link = lab.shell(name, "ip -br address show migration0");
        assert!(link.contains(&format!("{address}/24")), "{address}: {link}");
        found.push((
            name.to_owned(),
            pod["spec"]["nodeName"].as_str().unwrap().to_owned(),
            address.to_owned(),
        ));
    }
    let distinct: std::collections::BTreeSet<_> = found.iter().map(|(_, _, address)| address).collect();
    assert_eq!(distinct.len(), 3, "{found:?}");
    found
}

/// What went through a NIC of every node so far.
fn sent(lab: &TestLab, nic: &str) -> BTreeMap<String, u64> {
    let read = |node: &str| {
        lab.shell(node, &format!("cat /sys/class/net/{nic}/statistics/tx_bytes")).trim().parse().unwrap()
    };
    ["node-1", "node-2", "node-3"].into_iter().map(|node| (node.to_owned(), read(node))).collect()
}

/// Every pod sends to the next one; the bytes are on `eth1` and not on `eth0`.
fn reach_each_other(lab: &TestLab) {
    let pods = addresses(lab);
    let (management, secondary) = (sent(lab, "eth0"), sent(lab, "eth1"));
    for (index, (pod, _, _)) in pods.iter().enumerate() {
        let (_, _, next) = &pods[(index + 1) % pods.len()];
        lab.shell(pod, &format!("iperf3 -c {next} -n {BYTES}"));
    }
    let (management_after, secondary_after) = (sent(lab, "eth0"), sent(lab, "eth1"));
    for (_, node, _) in &pods {
        let (on_eth0, on_eth1) =
            (management_after[node] - management[node], secondary_after[node] - secondary[node]);
        println!("{node}: {on_eth1} bytes on eth1, {on_eth0} on eth0");
        // iperf3 stops a little short of what it was asked for.
        assert!(on_eth1 >= BYTES / 10 * 9, "{node}: {on_eth1} bytes on eth1");
        // What the cluster itself says meanwhile: heartbeats and watches.
        assert!(on_eth0 < BYTES / 100, "{node}: {on_eth0} bytes on eth0");
    }
}

fn up(config: &str) -> TestLab {
    let lab = TestLab::up(config);
    lab.apply(HANDLER);
    lab.kubectl_ok(&["rollout", "status", "ds/handler", "--timeout=60s"]);
    lab
}

#[tokio::test]
async fn macvlan_with_static_addresses() {
    let lab = up("");
    for last in 1..=3 {
        let config = format!(
            r#"{{"cniVersion":"1.0.0","name":"net1","type":"macvlan","master":"eth1","mode":"bridge","ipam":{{"type":"static","addresses":[{{"address":"192.0.2.{last}/24"}}]}}}}"#
        );
        write_configuration(&lab, &format!("node-{last}"), &config);
    }
    lab.apply(ON_DISK);
    roll(&lab).await;
    reach_each_other(&lab);
}

#[tokio::test]
async fn macvlan_with_addresses_by_dhcp() {
    let lab = up("");
    let directory = lab.directory();
    lab.shell(
        "fabric",
        &format!(
            "ip address add 192.0.2.1/24 dev secondary && dnsmasq --conf-file=/dev/null --port=0 --interface=secondary \
             --bind-interfaces --except-interface=lo --dhcp-range=192.0.2.50,192.0.2.99 --dhcp-leasefile={0}/leases --pid-file={0}/dnsmasq.pid",
            directory.display()
        ),
    );
    lab.apply(
        "
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: { name: net1 }
spec:
  config: '{\"cniVersion\":\"1.0.0\",\"name\":\"net1\",\"type\":\"macvlan\",\"master\":\"eth1\",\"mode\":\"bridge\",\"ipam\":{\"type\":\"dhcp\"}}'
",
    );
    roll(&lab).await;
    reach_each_other(&lab);
    let leases = std::fs::read_to_string(directory.join("leases")).unwrap();
    for (_, _, address) in addresses(&lab) {
        assert!(leases.contains(&address), "{address} is a lease of the server: {leases}");
    }
}

#[tokio::test]
async fn a_bridge_of_the_node() {
    let lab = up("
networks:
  - { name: management, nic: eth0 }
  - { name: secondary, nic: eth1, bridge: br-migration }
");
    for node in 1..=3 {
        let config = format!(
            r#"{{"cniVersion":"1.0.0","name":"net1","type":"bridge","bridge":"br-migration","ipam":{{"type":"host-local","ranges":[[{{"subnet":"192.0.2.0/24","rangeStart":"192.0.2.{node}0","rangeEnd":"192.0.2.{node}9"}}]]}}}}"#
        );
        write_configuration(&lab, &format!("node-{node}"), &config);
    }
    lab.apply(ON_DISK);
    roll(&lab).await;
    reach_each_other(&lab);
}
