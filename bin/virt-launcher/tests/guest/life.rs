//! Lives of guests.

use std::net::IpAddr;

use api::kubevirt::VirtualMachineInstance;
use serde_json::{Value, json};
use wire::{Accelerator, AcceleratorPolicy, Command, Outcome, Phase, ProxyRequest};

use crate::handler::{ADDRESS, ADDRESS_IPV6, BEYOND, GATEWAY, Handler, MTU};

const MAC: &str = "02:00:00:00:09:05";

pub fn instance(firmware: &Value) -> Box<VirtualMachineInstance> {
    let vmi = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": { "name": "testvm", "namespace": "default", "uid": "0b5d8c9e-0000-4000-8000-000000000001" },
        "spec": {
            "terminationGracePeriodSeconds": 2,
            "domain": {
                "memory": { "guest": "160Mi" },
                "firmware": firmware,
                "devices": {
                    "disks": [{ "name": "scratch", "disk": { "bus": "virtio" } }, { "name": "settings" }],
                    "interfaces": [{ "name": "default", "bridge": {}, "macAddress": MAC }],
                },
            },
            "networks": [{ "name": "default", "pod": {} }],
            "volumes": [
                { "name": "scratch", "emptyDisk": { "capacity": "8Mi" } },
                { "name": "settings", "cloudInitNoCloud": { "userData": "#cloud-config\n" } },
            ],
        },
    });
    Box::new(serde_json::from_value(vmi).unwrap())
}

/// Boots the test guest.
pub fn guest() -> Command {
    let container = json!({ "image": "guest", "kernelPath": "/vmlinuz", "initrdPath": "/initrd" });
    let firmware = json!({ "kernelBoot": { "kernelArgs": "console=ttyS0 quiet no_timer_check cryptomgr.notests panic=-1", "container": container } });
    Command::Start { vmi: instance(&firmware), accelerator: AcceleratorPolicy::Probe }
}

/// What was taken away, in the order in which it was.
fn detached(handler: &Handler) -> Vec<String> {
    let asked = handler.asked.lock().unwrap();
    asked
        .iter()
        .filter_map(|request| match request {
            ProxyRequest::Del { vnic } => Some(vnic.to_string()),
            _ => None,
        })
        .collect()
}

pub async fn nothing_is_left(handler: &Handler) {
    assert_eq!(detached(handler), ["default"], "{}", handler.pod.log());
    assert_eq!(handler.links().await, Vec::<String>::new());
    assert_eq!(handler.look("nft list ruleset"), "");
    assert_eq!(handler.pod.processes(""), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_runs_survives_its_daemon_reboots_and_shuts_down() {
    let mut handler = Handler::start().await;
    handler.send(&guest()).await;
    let status = handler.until("running", 60, |status| status.phase == Phase::Running).await;
    let [interface] = &status.interfaces[..] else { panic!("{status:?}") };
    assert_eq!((interface.mac.to_string().as_str(), interface.pod_interface.as_str()), (MAC, "vnic0"));
    let given = [ADDRESS, ADDRESS_IPV6].map(|address| address.parse::<IpAddr>().unwrap());
    assert_eq!(interface.addresses, given);
    if status.accelerator == Some(Accelerator::Tcg) {
        assert!(status.accelerator_reason.is_some());
    }

    // The guest is at the address that the network gave to the vNIC, and knows what the network said.
    handler.echo(ADDRESS);
    let nic = handler.control(&json!({ "report": {} }))["report"]["nics"][0].clone();
    assert_eq!((&nic["mac"], &nic["mtu"]), (&json!(MAC), &json!(MTU)), "{nic}");
    assert!(nic["addresses"].as_array().unwrap().contains(&json!(format!("{ADDRESS}/24"))), "{nic}");
    assert!(
        nic["routes"].as_array().unwrap().contains(&json!({ "to": "0.0.0.0/0", "via": GATEWAY })),
        "{nic}"
    );
    assert!(nic["dns"].as_array().unwrap().contains(&json!("10.96.0.10")), "{nic}");

    // So it is with IPv6, where the router is known by another address of the gateway; and it has no address but that.
    handler.echo(ADDRESS_IPV6);
    let nic = handler.control(&json!({ "report": {} }))["report"]["nics"][0].clone();
    let ipv6: Vec<&str> = nic["addresses"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let ipv6: Vec<&str> =
        ipv6.into_iter().filter(|own| own.contains(':') && !own.starts_with("fe80:")).collect();
    assert_eq!(ipv6, [format!("{ADDRESS_IPV6}/128")], "{nic}");
    for (beyond, own) in BEYOND.into_iter().zip(given) {
        assert_eq!(handler.reached_by_guest(ADDRESS, beyond), own, "{nic}");
    }
    let seen = handler.look("ip -6 route show default");
    assert!(!seen.contains("vbr0"), "the pod believes no router on the guest's segment: {seen}");

    // Its daemon dies: the guest does not notice, and still does what it is told.
    handler.pod.kill("libvirtd");
    handler.echo(ADDRESS);
    handler.send(&Command::Pause).await;
    handler.until("paused", 30, |status| status.phase == Phase::Paused).await;
    handler.send(&Command::Resume).await;
    handler.until("running again", 10, |status| status.phase == Phase::Running).await;
    handler.echo(ADDRESS);

    // A restart of the guest is its own matter; it finds its address again.
    assert_eq!(handler.control(&json!({ "reboot": {} })), json!({ "ok": true }));
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
    let has_lease = |console: &str| {
        console.splitn(3, r#""event":"boot""#).nth(2).is_some_and(|second| second.contains(ADDRESS))
    };
    while !has_lease(&handler.pod.console()) {
        assert!(std::time::Instant::now() < deadline, "no lease after a reboot:\n{}", handler.pod.console());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    handler.echo(ADDRESS);

    // Another VM is refused; the same one is what runs already.
    let Command::Start { mut vmi, accelerator } = guest() else { unreachable!() };
    vmi.metadata.uid = Some("another".to_owned());
    handler.send(&Command::Start { vmi, accelerator }).await;
    assert_eq!(handler.refused().await.0, "start");
    handler.send(&guest()).await;

    handler.send(&Command::Shutdown { grace_seconds: 60 }).await;
    let status = handler.until("ended", 60, |status| status.phase == Phase::Ended).await;
    let ending = status.ending.unwrap();
    assert_eq!((ending.outcome, ending.reason.as_str()), (Outcome::Succeeded, "GuestShutdown"), "{ending:?}");
    assert_eq!(status.problems, Vec::<String>::new());
    assert_eq!(handler.pod.ended().await.code(), Some(0), "{}", handler.pod.log());
    assert!(handler.pod.console().contains(r#""why":"power button""#), "{}", handler.pod.console());
    nothing_is_left(&handler).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_whose_hypervisor_dies_has_crashed() {
    let mut handler = Handler::start().await;
    handler.send(&guest()).await;
    handler.until("running", 60, |status| status.phase == Phase::Running).await;
    handler.pod.kill("qemu-system");
    let status = handler.until("ended", 30, |status| status.phase == Phase::Ended).await;
    let ending = status.ending.unwrap();
    assert_eq!((ending.outcome, ending.reason.as_str()), (Outcome::Failed, "Crashed"), "{ending:?}");
    assert_eq!(handler.pod.ended().await.code(), Some(1));
    nothing_is_left(&handler).await;
}

/// With nothing to boot, the firmware waits for ever and hears no power button.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_that_does_not_listen_is_switched_off_when_its_time_is_over() {
    let mut handler = Handler::start().await;
    handler.send(&Command::Start { vmi: instance(&json!({})), accelerator: AcceleratorPolicy::Tcg }).await;
    handler.until("running", 60, |status| status.phase == Phase::Running).await;
    let begun = std::time::Instant::now();
    handler.pod.terminate();
    let status = handler.until("ended", 30, |status| status.phase == Phase::Ended).await;
    assert!(begun.elapsed().as_secs() >= 2, "it had its grace period");
    let ending = status.ending.unwrap();
    assert_eq!((ending.outcome, ending.reason.as_str()), (Outcome::Succeeded, "Killed"), "{ending:?}");
    assert_eq!(handler.pod.ended().await.code(), Some(0));
    nothing_is_left(&handler).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_that_cannot_start_says_why_and_leaves_nothing() {
    let mut handler = Handler::start().await;
    let container = json!({ "image": "guest", "kernelPath": "/no-such-kernel" });
    let vmi = instance(&json!({ "kernelBoot": { "container": container } }));
    handler.send(&Command::Start { vmi, accelerator: AcceleratorPolicy::Tcg }).await;
    let status = handler.until("ended", 60, |status| status.phase == Phase::Ended).await;
    let ending = status.ending.unwrap();
    assert_eq!((ending.outcome, ending.reason.as_str()), (Outcome::Failed, "StartFailed"), "{ending:?}");
    assert!(ending.message.contains("no-such-kernel"), "{}", ending.message);
    assert_eq!(handler.pod.ended().await.code(), Some(1));
    nothing_is_left(&handler).await;
}
