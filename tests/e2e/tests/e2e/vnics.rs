//! vNICs on a pod network with both versions of IP: bridged, and behind the pod's address.

use std::collections::BTreeSet;

use e2e::objects::text;
use e2e::{Installation, Place, Pod, bound};
use serde_json::Value;

use crate::{PATIENCE, TIDY};

const BOTH: &str = "clusters: [{ name: lab, podCIDRs: [10.244.0.0/16, 'fd10:244::/48'] }]";

fn probe(image: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{ name: probe, labels: {{ app: probe }} }}
spec:
  nodeName: node-2
  terminationGracePeriodSeconds: 0
  containers: [{{ name: probe, image: '{image}', command: [sleep, infinity] }}]
"
    )
}

/// A pod of another node, as the one who asks.
struct Probe<'a> {
    lab: &'a Installation,
    pod: Pod,
}

impl Probe<'_> {
    /// What a service of a guest answers.
    fn ask(&self, address: &str, port: u16, question: &str) -> Option<String> {
        let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        let script = format!("echo '{question}' | timeout 5 socat -t3 - TCP:{host}:{port}");
        let output = self.lab.try_shell(Place::PodNetwork(&self.pod), &script);
        let answer = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        (!answer.is_empty()).then_some(answer)
    }

    fn echo(&self, address: &str) {
        let answer = || self.ask(address, 7, "hello").filter(|answer| answer == "hello");
        self.lab.until(&format!("{address} answers a pod of another node"), PATIENCE, answer);
    }

    fn control(&self, address: &str, request: &str) -> Value {
        let answer = self.lab.until("the guest is asked", PATIENCE, || self.ask(address, 7002, request));
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["ok"], true, "{request}: {answer}");
        answer
    }

    /// The guest's addresses as it has them itself, without those of the link.
    fn report(&self, address: &str) -> BTreeSet<String> {
        let report = self.control(address, r#"{"report":{}}"#);
        let nics = report["report"]["nics"].as_array().unwrap();
        let addresses = nics.iter().flat_map(|nic| nic["addresses"].as_array().unwrap());
        let addresses = addresses.filter_map(Value::as_str).filter(|address| !address.starts_with("fe80:"));
        addresses.map(str::to_owned).collect()
    }
}

/// The addresses in the status of an instance, once there are two.
fn addresses(lab: &Installation, name: &str) -> Vec<String> {
    lab.until("the instance has both addresses", PATIENCE, || {
        let status = lab.status_of(name);
        let shown = status["interfaces"][0]["ipAddresses"].as_array()?;
        let addresses: Vec<_> =
            shown.iter().filter_map(|address| Some(address.as_str()?.to_owned())).collect();
        (addresses.len() == 2).then_some(addresses)
    })
}

/// The pod's own interface: link, addresses, routes.
fn own_interface(lab: &Installation, pod: &Pod) -> String {
    let looks = [
        "-br link show dev eth0",
        "-br address show dev eth0",
        "route show dev eth0",
        "-6 route show dev eth0",
    ];
    looks.map(|look| lab.shell(Place::PodNetwork(pod), &format!("ip {look}"))).concat()
}

#[test]
fn guests_are_reached_by_both_versions_of_ip_bridged_or_behind_their_pod() {
    let lab = Installation::new(BOTH);
    let before = lab.leases();
    lab.apply(&probe(lab.tools_image()));
    lab.kubectl_ok(&["wait", "--for=condition=Ready", "pod/probe", "--timeout=60s"]);
    let probe = Probe { lab: &lab, pod: lab.pod_on("node-2", "default", "app=probe") };
    let ranges = lab.kubectl_ok(&["get", "node", "node-2", "-o", "jsonpath={.spec.podCIDRs[*]}"]);
    assert_eq!(ranges.split(' ').count(), 2, "{ranges}");

    lab.apply(&bound("masked", "node-1", "masquerade"));
    let pod = lab.until("its pod has a network", PATIENCE, || {
        let pod = lab.pods_on("node-1", "default", "vm.kubevirt.io/name=masked").pop()?;
        let has_network = "ip -6 route show default | grep -q eth0";
        lab.try_shell(Place::PodNetwork(&pod), has_network).status.success().then_some(pod)
    });
    let own = own_interface(&lab, &pod);
    lab.apply(&bound("bridged", "node-1", "bridge"));

    // Bridged: it has what CNI gave to its vNIC, says so, and so does its status.
    let bridged = addresses(&lab, "bridged");
    for address in &bridged {
        probe.echo(address);
    }
    let launcher = lab.pod_on("node-1", "default", "vm.kubevirt.io/name=bridged");
    assert_eq!(lab.given(&format!("{}-vnic", launcher.uid)), bridged.iter().cloned().collect());
    let [ipv4, ipv6] = &bridged[..] else { panic!("{bridged:?}") };
    assert_eq!(probe.report(ipv4), BTreeSet::from([format!("{ipv4}/24"), format!("{ipv6}/128")]));

    // Behind its pod: it is where the pod is, and reaches out from there.
    let masked = addresses(&lab, "masked");
    let pod_addresses = lab.kubectl_ok(&[
        "get",
        "pods",
        "-l",
        "vm.kubevirt.io/name=masked",
        "-o",
        "jsonpath={.items[0].status.podIPs[*].ip}",
    ]);
    assert_eq!(pod_addresses.split(' ').collect::<Vec<_>>(), masked);
    for address in &masked {
        probe.echo(address);
    }
    assert_eq!(
        probe.report(&masked[0]),
        BTreeSet::from(["10.0.2.2/24".to_owned(), "fd10:0:2::2/128".to_owned()])
    );
    for (own, other) in masked.iter().zip([format!("{ipv4}:7"), format!("[{ipv6}]:7")]) {
        probe.control(own, &format!(r#"{{"connect":{{"to":"{other}"}}}}"#));
    }
    lab.until("it hears from where it called", PATIENCE, || {
        let report = probe.control(&masked[0], r#"{"report":{}}"#);
        let connections = report["report"]["connections"].as_array()?.clone();
        (connections.len() == 2 && connections.iter().all(|one| one["received"].as_u64() > Some(0)))
            .then_some(())
    });
    assert_eq!(own_interface(&lab, &pod), own);
    let movable = |name| {
        let status = lab.status_of(name);
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let condition = conditions.clone().find(|condition| condition["type"] == "LiveMigratable");
        condition.map(|condition| text(condition, "/status")).unwrap_or_default()
    };
    assert_eq!((movable("masked").as_str(), movable("bridged").as_str()), ("True", "False"));

    lab.kubectl_ok(&["delete", "vmi", "--all", "--timeout=60s"]);
    lab.kubectl_ok(&["delete", "pod", "probe", "--timeout=60s"]);
    lab.until("all is given back", TIDY, || (lab.leases() == before && lab.attachments() == 0).then_some(()));
}
