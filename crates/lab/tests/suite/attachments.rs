//! Pods that ask for a network that cannot be had: they wait, say why, and start when it is mended.

use testkit::{TestLab, eventually};

const NODE: &str = "clusters: [{ name: lab, nodes: 1 }]";

fn pod(name: &str, networks: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  annotations: {{ k8s.v1.cni.cncf.io/networks: {networks} }}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{{ name: main, image: host, command: [sleep, infinity] }}]
"
    )
}

fn definition(name: &str, config: &str) -> String {
    format!(
        "
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {{ name: {name} }}
spec: {{ config: '{config}' }}
"
    )
}

async fn warned(lab: &TestLab, pod: &str, text: &str) {
    let selector = format!("involvedObject.name={pod}");
    eventually(&format!("an event of {pod} that says {text:?}"), async || {
        let events = lab.kubectl_ok(&["get", "events", "--field-selector", &selector, "-o", "wide"]);
        (events.contains("FailedCreatePodSandBox") && events.contains(text)).then_some(())
    })
    .await;
    let phase = lab.kubectl_ok(&["get", "pod", pod, "-o", "jsonpath={.status.phase}"]);
    assert_eq!(phase, "Pending");
}

fn starts(lab: &TestLab, pod: &str) {
    lab.kubectl_ok(&["wait", "--for=condition=Ready", &format!("pod/{pod}"), "--timeout=60s"]);
}

#[tokio::test]
async fn a_definition_that_does_not_exist_is_named_and_the_pod_starts_when_it_is_made() {
    let lab = TestLab::up(NODE);
    lab.apply(&pod("waiting", "elsewhere/absent@net5"));
    warned(&lab, "waiting", "elsewhere/absent").await;
    lab.kubectl_ok(&["create", "namespace", "elsewhere"]);
    let config = r#"{"cniVersion":"1.0.0","name":"absent","type":"macvlan","master":"eth1","mode":"bridge","ipam":{"type":"host-local","subnet":"192.0.2.0/24"}}"#;
    lab.apply(&definition("absent, namespace: elsewhere", config));
    starts(&lab, "waiting");
    let status = lab.kubectl_ok(&[
        "get",
        "pod",
        "waiting",
        "-o",
        r"jsonpath={.metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}",
    ]);
    let status: serde_json::Value = serde_json::from_str(&status).expect("network-status is JSON");
    let entry = status
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["name"] == "elsewhere/absent")
        .expect("the network");
    assert_eq!(entry["interface"], "net5");
    // The first of the range is the gateway, to host-local.
    assert_eq!(entry["ips"][0], "192.0.2.2");
    assert!(lab.shell("waiting", "ip -br address show net5").contains("192.0.2.2"));
}

#[tokio::test]
async fn a_plugin_that_fails_is_quoted_and_the_pod_starts_when_it_works() {
    let lab = TestLab::up(NODE);
    // A wrapper around the real plugin, with a fault that can be mended.
    lab.shell(
        "node-1",
        "mkdir -p /opt/cni/bin && cat > /opt/cni/bin/moody <<'PLUGIN'
#!/bin/sh
if [ \"$CNI_COMMAND\" = ADD ] && [ ! -e /run/mended ]; then
  echo '{\"cniVersion\":\"1.0.0\",\"code\":100,\"msg\":\"the cable is not plugged in\"}'
  exit 1
fi
exec /usr/lib/cni/macvlan
PLUGIN
chmod +x /opt/cni/bin/moody",
    );
    let config = r#"{"cniVersion":"1.0.0","name":"moody","type":"moody","master":"eth1","ipam":{"type":"static","addresses":[{"address":"192.0.2.9/24"}]}}"#;
    lab.apply(&definition("moody", config));
    lab.apply(&pod("waiting", "moody"));
    warned(&lab, "waiting", "the cable is not plugged in").await;
    lab.shell("node-1", "touch /run/mended");
    starts(&lab, "waiting");
    assert!(lab.shell("waiting", "ip -br address show net1").contains("192.0.2.9/24"));
}

#[tokio::test]
async fn a_pool_without_an_address_is_said_and_the_pod_starts_when_one_is_free() {
    let lab = TestLab::up(NODE);
    let config = r#"{"cniVersion":"1.0.0","name":"tiny","type":"macvlan","master":"eth1","ipam":{"type":"host-local","ranges":[[{"subnet":"192.0.2.0/24","rangeStart":"192.0.2.5","rangeEnd":"192.0.2.5"}]]}}"#;
    lab.apply(&definition("tiny", config));
    lab.apply(&pod("first", "tiny"));
    starts(&lab, "first");
    lab.apply(&pod("second", "tiny"));
    warned(&lab, "second", "no IP addresses available").await;
    lab.kubectl_ok(&["delete", "pod", "first"]);
    starts(&lab, "second");
    assert!(lab.shell("second", "ip -br address show net1").contains("192.0.2.5/24"));
}
