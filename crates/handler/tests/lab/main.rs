//! Machines in a lab: controller, handler and launcher as they are deployed, a guest that boots, and what is left of it.
//!
//! Needs root and `tools/setup vm`; without them it fails, and says so.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on stops")]

mod console;
mod installation;
mod moves;
mod road;
mod vnics;

use std::thread;
use std::time::{Duration, Instant};

use installation::{Installation, instance, other_node};

/// What a person who types `kubectl apply` waits, at most, for an emulated guest to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Within this nothing may be left of a pod that was killed.
const TIDY: Duration = Duration::from_secs(90);

#[test]
fn a_machine_answers_from_another_node_and_leaves_nothing() {
    let lab = Installation::new();
    let before = lab.leases();
    lab.apply_file("examples/vm.yaml");
    let started = Instant::now();
    let address = lab.until("the instance has an address", PATIENCE, || lab.address("vm"));
    lab.until("the guest answers", PATIENCE, || lab.echo(other_node(&lab.node_of("vm")), &address, "hello"));
    let took = started.elapsed();
    println!("from apply to the answer: {took:?}");
    assert!(took < PATIENCE, "it took {took:?}");

    // A handler that is gone, or new, is no matter to the guest.
    lab.kubectl_ok(&[
        "-n",
        "kubevirt",
        "delete",
        "pods",
        "-l",
        "kubevirt.io=virt-handler",
        "--grace-period=0",
        "--force",
    ]);
    assert!(lab.echo("node-1", &address, "no handler").is_some());
    lab.kubectl_ok(&["-n", "kubevirt", "rollout", "status", "ds/virt-handler", "--timeout=60s"]);
    assert!(lab.echo("node-1", &address, "a new handler").is_some());
    assert_eq!(lab.phase("vm"), "Running");

    lab.kubectl_ok(&["delete", "vm", "vm", "--timeout=60s"]);
    lab.until("all is given back", TIDY, || (lab.leases() == before && lab.attachments() == 0).then_some(()));
}

#[test]
fn a_pod_that_is_killed_with_its_handler_leaves_nothing_and_its_neighbour_alone() {
    let lab = Installation::new();
    let before = lab.leases();
    for name in ["goes", "stays"] {
        lab.apply(&instance(name, "node-1"));
    }
    let addresses =
        ["goes", "stays"].map(|name| lab.until("it has an address", PATIENCE, || lab.address(name)));
    for address in &addresses {
        lab.until("it answers", PATIENCE, || lab.echo("node-2", address, "hello"));
    }
    let with_both = lab.leases();
    let (launcher, handler) = (
        lab.pod_uid("default", "vm.kubevirt.io/name=goes", "node-1"),
        lab.pod_uid("kubevirt", "kubevirt.io=virt-handler", "node-1"),
    );
    // Everything at once: hypervisor, its daemon, launcher, handler.
    // With the first process of a container, its others are gone before their turn.
    lab.shell("node-1", &format!("kill -9 $(ip netns pids {launcher}) $(ip netns pids {handler}) || true"));
    let killed = Instant::now();
    lab.until("it is known to have failed", TIDY, || (lab.phase("goes") == "Failed").then_some(()));
    let left = TIDY.saturating_sub(killed.elapsed());
    lab.until("its address is given back", left, || (!lab.leases().contains(&addresses[0])).then_some(()));
    println!("from the kill to the last trace: {:?}", killed.elapsed());
    assert!(lab.leases().contains(&addresses[1]) && with_both.len() > before.len());
    assert!(lab.echo("node-2", &addresses[1], "still here").is_some());
    assert_eq!((lab.phase("stays").as_str(), lab.attachments()), ("Running", 1));

    lab.kubectl_ok(&["delete", "vmi", "--all", "--timeout=60s"]);
    lab.until("all is given back", TIDY, || (lab.leases() == before && lab.attachments() == 0).then_some(()));
}

impl Installation {
    /// Looks until there is something.
    pub fn until<T>(&self, what: &str, within: Duration, look: impl Fn() -> Option<T>) -> T {
        let end = Instant::now() + within;
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(Instant::now() < end, "not within {within:?}: {what}\n{}", self.describe());
            thread::sleep(Duration::from_millis(100));
        }
    }
}
