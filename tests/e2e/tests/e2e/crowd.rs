//! Many machines at a time.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use e2e::{Installation, NODES, Place, instance};
use serde_json::Value;

use crate::TIDY;

const MACHINES: usize = 20;
/// Emulated guests share the machine's processors: together they need as long as one after the other.
const ALL: Duration = Duration::from_mins(4);

#[test]
fn twenty_machines_have_twenty_addresses_and_leave_nothing() {
    let lab = Installation::new("");
    let before = lab.footprint();
    let one = |number| {
        let networks = "[{ name: default, pod: {} }]";
        instance(&format!("vm-{number}"), "[{ name: default, bridge: {} }]", networks, "")
    };
    let started = Instant::now();
    lab.apply(&(1..=MACHINES).map(one).collect::<String>());
    let addresses = lab.until("all have an address and run", ALL, || running(&lab));
    println!("twenty addresses after {:.1?}", started.elapsed());
    for address in &addresses {
        lab.until_it_is("the guest answers", ALL, || lab.echo(Place::Node(NODES[0]), address, "hello"));
    }
    println!("twenty answers after {:.1?}", started.elapsed());
    let stopped = Instant::now();
    lab.kubectl_ok(&["delete", "vmi", "--all", "--timeout=90s"]);
    lab.until_all_is_as(&before, TIDY.saturating_sub(stopped.elapsed()));
    println!("nothing left after {:.1?}", stopped.elapsed());
}

/// The addresses of all machines, once all run; no two have the same.
fn running(lab: &Installation) -> Option<BTreeSet<String>> {
    let shown: Value = serde_json::from_str(&lab.kubectl_ok(&["get", "vmi", "-o", "json"])).unwrap();
    let all = shown["items"].as_array().unwrap();
    let run = all.iter().filter(|vmi| vmi["status"]["phase"] == "Running");
    let addresses: Vec<_> = run
        .filter_map(|vmi| Some(vmi["status"]["interfaces"][0]["ipAddress"].as_str()?.to_owned()))
        .collect();
    let distinct: BTreeSet<_> = addresses.iter().cloned().collect();
    assert_eq!(distinct.len(), addresses.len(), "two machines have one address: {addresses:?}");
    (addresses.len() == MACHINES).then_some(distinct)
}
