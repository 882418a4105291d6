//! The life of machines that nobody harms: addresses, restarts, and what the pod has of its own.

use std::time::Instant;

use e2e::{Installation, Place, Pod, Signal, bridged_example, instance, other_node};
use serde_json::{Value, json};

use crate::{PATIENCE, TIDY};

/// The second network is a bridge on every node.
const LAB: &str = "
networks:
  - { name: management, nic: eth0, cidr: 172.30.0.0/24 }
  - { name: blue, nic: eth1, bridge: br-blue }
";

/// A pod on every node that asks guests, also on the second network. One definition is for machines, one for these.
fn askers(image: &str) -> String {
    format!(
        r#"
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {{ name: blue }}
spec:
  config: '{{ "cniVersion": "1.0.0", "name": "blue", "type": "bridge", "bridge": "br-blue", "ipam": {{ "type": "host-local", "ranges": [[
    {{ "subnet": "198.51.100.0/24", "rangeStart": "198.51.100.10", "rangeEnd": "198.51.100.20" }}]] }} }}'
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {{ name: blue-askers }}
spec:
  config: '{{ "cniVersion": "1.0.0", "name": "blue-askers", "type": "bridge", "bridge": "br-blue", "ipam": {{ "type": "host-local", "ranges": [[
    {{ "subnet": "198.51.100.0/24", "rangeStart": "198.51.100.30", "rangeEnd": "198.51.100.40" }}]] }} }}'
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {{ name: asker }}
spec:
  selector: {{ matchLabels: {{ app: asker }} }}
  template:
    metadata: {{ labels: {{ app: asker }}, annotations: {{ k8s.v1.cni.cncf.io/networks: blue-askers }} }}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{{ name: main, image: '{image}', command: [sleep, infinity] }}]
"#
    )
}

#[test]
fn machines_have_their_addresses_as_long_as_they_live_and_no_longer() {
    let lab = Installation::new(LAB);
    lab.apply(&askers(lab.tools_image()));
    lab.kubectl_ok(&["rollout", "status", "ds/asker", "--timeout=60s"]);
    let before = lab.footprint();
    the_example_answers_from_another_nodes_pod(&lab);
    a_reboot_is_the_same_address_again(&lab);
    a_new_handler_is_no_matter(&lab);
    a_machine_that_is_stopped_and_started_keeps_its_mac(&lab, &before);
    lab.kubectl_ok(&["delete", "vm", "vm", "--timeout=60s"]);
    lab.until_all_is_as(&before, TIDY);

    every_vnic_answers_and_eth0_is_not_touched(&lab);
    lab.kubectl_ok(&["delete", "vmi", "three", "--timeout=60s"]);
    lab.until_all_is_as(&before, TIDY);
}

/// The pod that asks, on another node than this.
fn asker(lab: &Installation, node: &str) -> Pod {
    lab.pod_on(other_node(node), "default", "app=asker")
}

/// What CNI gave, as the handler's journal has it: interface and address.
fn given(lab: &Installation, pod: &Pod) -> Vec<(String, String)> {
    let read = "cat /var/lib/godwit/handler/attachments/*.json 2>/dev/null || true";
    let journal = lab.shell(Place::Node(&pod.node), read);
    let entries = serde_json::Deserializer::from_str(&journal).into_iter::<Value>().map(Result::unwrap);
    let of_pod = entries
        .filter(|entry| entry["request"]["containerId"].as_str().unwrap() == format!("{}-vnic", pod.uid));
    let address = |entry: &Value| entry["result"]["ips"][0]["address"].as_str().unwrap().to_owned();
    let mut given: Vec<_> = of_pod
        .map(|entry| (entry["request"]["interface"].as_str().unwrap().to_owned(), address(&entry)))
        .collect();
    given.sort();
    given
}

/// Who has an address, as the address plugin has it.
fn holder(lab: &Installation, node: &str, network: &str, address: &str) -> Vec<String> {
    let file = lab.shell(Place::Node(node), &format!("cat /var/lib/cni/networks/{network}/{address}"));
    file.split_whitespace().map(ToOwned::to_owned).collect()
}

fn the_example_answers_from_another_nodes_pod(lab: &Installation) {
    lab.apply(&bridged_example());
    let started = Instant::now();
    let address = lab.until("the instance has an address", PATIENCE, || lab.address("vm"));
    let pod = lab.launcher("vm").unwrap();
    let asker = asker(lab, &pod.node);
    lab.until_it_is("the guest answers", PATIENCE, || lab.echo(Place::Pod(&asker), &address, "hello"));
    let took = started.elapsed();
    println!("from apply to the answer: {took:.1?}");
    assert!(took < PATIENCE, "it took {took:?}");

    assert_eq!(given(lab, &pod), [("vnic0".to_owned(), format!("{address}/24"))]);
    assert_eq!(
        holder(lab, &pod.node, lab.pod_network(), &address),
        [format!("{}-vnic", pod.uid), "vnic0".to_owned()]
    );
    let report = lab.control(Place::Pod(&asker), &address, r#"{"report":{}}"#).unwrap();
    let nics = report["report"]["nics"].as_array().unwrap();
    assert_eq!(nics.len(), 1);
    assert!(nics[0]["addresses"].as_array().unwrap().contains(&json!(format!("{address}/24"))), "{report}");
    assert_eq!(nics[0]["mac"], lab.status_of("vm")["interfaces"][0]["mac"]);
}

fn a_reboot_is_the_same_address_again(lab: &Installation) {
    let (address, pod) = (lab.address("vm").unwrap(), lab.launcher("vm").unwrap());
    let asker = asker(lab, &pod.node);
    let up = lab.uptime(Place::Pod(&asker), &address).unwrap();
    let asked = Instant::now();
    lab.control(Place::Pod(&asker), &address, r#"{"reboot":{}}"#).unwrap();
    lab.until("the guest is back", PATIENCE, || {
        lab.uptime(Place::Pod(&asker), &address).filter(|now| *now < up + asked.elapsed())
    });
    assert_eq!(lab.address("vm"), Some(address));
    assert_eq!(lab.launcher("vm").unwrap().uid, pod.uid);
    assert_eq!(lab.phase("vm"), "Running");
}

fn a_new_handler_is_no_matter(lab: &Installation) {
    let address = lab.address("vm").unwrap();
    let which = ["-n", "kubevirt", "delete", "pods", "-l", "kubevirt.io=virt-handler"];
    lab.kubectl_ok(&[&which[..], &["--grace-period=0", "--force"]].concat());
    assert!(lab.echo(Place::Node("node-1"), &address, "no handler"));
    lab.rolled_out();
    assert!(lab.echo(Place::Node("node-1"), &address, "a new handler"));
    assert_eq!(lab.phase("vm"), "Running");
}

fn a_machine_that_is_stopped_and_started_keeps_its_mac(
    lab: &Installation,
    before: &std::collections::BTreeSet<String>,
) {
    let mac = lab.status_of("vm")["interfaces"][0]["mac"].clone();
    assert!(mac.is_string());
    let run = |strategy| {
        let spec = json!({ "spec": { "runStrategy": strategy } }).to_string();
        lab.kubectl_ok(&["patch", "vm", "vm", "--type=merge", "-p", &spec]);
    };
    run("Halted");
    lab.until_it_is("the instance is gone", TIDY, || lab.status_of("vm").is_null());
    lab.until_all_is_as(before, TIDY);
    run("Always");
    let address = lab.until("the instance has an address", PATIENCE, || lab.address("vm"));
    assert_eq!(lab.status_of("vm")["interfaces"][0]["mac"], mac);
    lab.until_it_is("the guest answers", PATIENCE, || lab.echo(Place::Node("node-1"), &address, "again"));
}

/// Two vNICs on the pod network and one on another.
fn every_vnic_answers_and_eth0_is_not_touched(lab: &Installation) {
    const VNICS: &str =
        "[{ name: default, bridge: {} }, { name: more, type: pod-network }, { name: blue, bridge: {} }]";
    const NETWORKS: &str = "[{ name: default, pod: {} }, { name: blue, multus: { networkName: blue } }]";
    // A handler that is held still leaves the pod as the kubelet made it.
    let handler = lab.handler("node-1");
    lab.signal_pod(&handler, Signal::Stop);
    lab.apply(&instance("three", VNICS, NETWORKS, "nodeSelector: { kubernetes.io/hostname: node-1 }"));
    let pod = lab.until("the launcher pod runs", PATIENCE, || lab.launcher("three"));
    // The kernel takes a moment to be sure of a link-local address.
    let settled =
        || Some(lab.eth0(&pod)).filter(|shown| !shown.contains("tentative") && shown.contains("fe80"));
    let eth0 = lab.until("eth0 is settled", PATIENCE, settled);
    let links = lab.links(&pod);
    assert_eq!(links, ["lo", "eth0", "pod16477688c0e"]);
    lab.signal_pod(&handler, Signal::Continue);

    let addresses = lab.until("the instance has three addresses", PATIENCE, || lab.addresses("three", 3));
    let asker = asker(lab, "node-1");
    for address in &addresses {
        lab.until_it_is("the guest answers", PATIENCE, || lab.echo(Place::Pod(&asker), address, "hello"));
    }
    let expected: Vec<_> = addresses
        .iter()
        .take(2)
        .enumerate()
        .map(|(n, address)| (format!("vnic{n}"), format!("{address}/24")))
        .collect();
    assert_eq!(given(lab, &pod), expected);
    assert_eq!(holder(lab, "node-1", "blue", &addresses[2])[0], pod.uid);
    assert_eq!(lab.eth0(&pod), eth0, "while the guest runs");
    assert!(commands(lab, &pod).contains(&"dnsmasq".to_owned()));
    assert_eq!(libvirt_networks(lab, &pod), 3);

    // A kubelet that is held still leaves the pod's namespace there when the launcher has cleaned up and is gone.
    lab.signal_kubelet("node-1", Signal::Stop);
    lab.control(Place::Pod(&asker), &addresses[0], r#"{"poweroff":{}}"#).unwrap();
    lab.until_it_is("the launcher has cleaned up", PATIENCE, || lab.links(&pod) == links);
    assert_eq!(lab.eth0(&pod), eth0, "after the guest ran");
    assert_eq!(given(lab, &pod), []);
    lab.until_it_is("the launcher is gone", PATIENCE, || commands(lab, &pod).is_empty());
    assert_eq!(libvirt_networks(lab, &pod), 0);
    lab.signal_kubelet("node-1", Signal::Continue);
    lab.until_it_is("it is known to have ended", PATIENCE, || lab.phase("three") == "Succeeded");
}

/// What runs in a pod.
fn commands(lab: &Installation, pod: &Pod) -> Vec<String> {
    lab.processes(pod).into_iter().map(|process| process.command).collect()
}

/// How many networks libvirt keeps in the files of a pod.
fn libvirt_networks(lab: &Installation, pod: &Pod) -> usize {
    lab.files(pod, "run/libvirt/network/*.xml").len()
}
