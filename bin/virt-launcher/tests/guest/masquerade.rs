//! A guest behind the pod's address.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use wire::{AcceleratorPolicy, Command, Outcome, Phase};

use crate::handler::{BEYOND, Handler, MTU, POD};

fn guest() -> Command {
    let container = json!({ "image": "guest", "kernelPath": "/vmlinuz", "initrdPath": "/initrd" });
    let interface = json!({
        "name": "default", "masquerade": {}, "macAddress": "02:00:00:00:09:06",
        "ports": [{ "port": 7 }, { "name": "control", "port": 7002, "protocol": "TCP" }],
    });
    let vmi = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": { "name": "testvm", "namespace": "default", "uid": "0b5d8c9e-0000-4000-8000-000000000003" },
        "spec": {
            "terminationGracePeriodSeconds": 2,
            "domain": {
                "memory": { "guest": "160Mi" },
                "firmware": { "kernelBoot": { "kernelArgs": "console=ttyS0 quiet panic=-1", "container": container } },
                "devices": { "interfaces": [interface] },
            },
            "networks": [{ "name": "default", "pod": {} }],
        },
    });
    Command::Start {
        vmi: Box::new(serde_json::from_value(vmi).unwrap()),
        accelerator: AcceleratorPolicy::Probe,
    }
}

/// Everything of the pod's own interface, and what the pod does with packets.
fn own(handler: &Handler) -> [String; 6] {
    [
        "ip -o link show dev eth0",
        "ip -o address show dev eth0",
        "ip route show dev eth0",
        "ip -6 route show dev eth0",
        "cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding",
        "nft list ruleset",
    ]
    .map(|command| handler.look(command))
}

fn echo(stream: std::io::Result<TcpStream>) {
    let mut stream = stream.unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(b"hello").unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"hello");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_is_reached_at_the_pods_address_and_nothing_of_the_pod_changes() {
    let mut handler = Handler::start().await;
    handler.give_pod_an_interface().await;
    let before = own(&handler);
    handler.send(&guest()).await;
    let status = handler.until("running", 60, |status| status.phase == Phase::Running).await;
    let [interface] = &status.interfaces[..] else { panic!("{status:?}") };
    let pod = POD.map(|address| address.parse::<IpAddr>().unwrap());
    assert_eq!((interface.pod_interface.as_str(), &interface.addresses[..]), ("eth0", &pod[..]));

    // From the node, by both versions of IP; and from there to the world, from the same addresses.
    for (own, beyond) in POD.into_iter().zip(BEYOND) {
        handler.echo(own);
        assert_eq!(handler.reached_by_guest(own, beyond).to_string(), own);
    }
    let report = handler.control_at(POD[0], &json!({ "report": {} }));
    let nic = &report["report"]["nics"][0];
    let addresses: Vec<&str> =
        nic["addresses"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(addresses.contains(&"10.0.2.2/24") && addresses.contains(&"fd10:0:2::2/128"), "{nic}");
    assert_eq!(addresses.len(), 3, "these and a link-local one: {nic}");
    assert_eq!(nic["mtu"], MTU);
    assert!(
        nic["routes"].as_array().unwrap().contains(&json!({ "to": "0.0.0.0/0", "via": "10.0.2.1" })),
        "{nic}"
    );

    // What the spec does not name is the pod's own matter, and nobody is there.
    let namespace = &handler.pod.node.namespace;
    let connect = |address: &str, port| {
        let there = SocketAddr::new(address.parse().unwrap(), port);
        move || TcpStream::connect_timeout(&there, Duration::from_secs(5))
    };
    for own in POD {
        let refused = namespace.run(connect(own, 7001)).unwrap().unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    }
    // The pod's loopback address is the guest's for the pod itself: this is how a port-forward comes in.
    echo(handler.pod.network.namespace.run(connect("127.0.0.1", 7)).unwrap());
    assert_eq!(own(&handler)[..4], before[..4]);

    handler.send(&Command::Shutdown { grace_seconds: 60 }).await;
    let status = handler.until("ended", 60, |status| status.phase == Phase::Ended).await;
    assert_eq!(status.ending.map(|ending| ending.outcome), Some(Outcome::Succeeded));
    assert_eq!(status.problems, Vec::<String>::new());
    assert_eq!(handler.pod.ended().await.code(), Some(0), "{}", handler.pod.log());
    assert_eq!(own(&handler), before);
    assert_eq!(handler.links().await, ["eth0"]);
    assert!(handler.asked.lock().unwrap().is_empty(), "no interface is asked for");
}
