//! Many machines at a time.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use e2e::objects::VMS;
use e2e::{Installation, Kind, NODES, Place, instance};

use crate::{TIDY, asked};

/// How many VMs, unless `GODWIT_VMS` says otherwise.
const FEW: u64 = 8;
/// Emulated guests share the machine's processors: together they need as long as one after the other.
const ALL: Duration = Duration::from_mins(4);

#[test]
fn every_machine_of_a_crowd_has_its_address_and_leaves_nothing() {
    let count = asked("GODWIT_VMS").unwrap_or(FEW);
    let lab = Installation::new("");
    let before = lab.footprint();
    let one = |number| {
        let networks = "[{ name: default, pod: {} }]";
        instance(&format!("vm-{number}"), "[{ name: default, bridge: {} }]", networks, "")
    };
    let started = Instant::now();
    lab.apply(&(1..=count).map(one).collect::<String>());
    let addresses = lab.until("all have an address and run", ALL, || running(&lab, count));
    println!("{count} addresses after {:.1?}", started.elapsed());
    for address in &addresses {
        lab.until_it_is("the guest answers", ALL, || lab.echo(Place::Node(NODES[0]), address, "hello"));
    }
    println!("{count} answers after {:.1?}", started.elapsed());
    let stopped = Instant::now();
    lab.kubectl_ok(&["delete", "vmi", "--all", "--timeout=90s"]);
    lab.until_all_is_as(&before, TIDY.saturating_sub(stopped.elapsed()));
    println!("nothing left after {:.1?}", stopped.elapsed());
}

/// The addresses of all machines, once all run; no two have the same.
fn running(lab: &Installation, count: u64) -> Option<BTreeSet<String>> {
    let all = lab.objects(Kind::Vmi, VMS);
    let run = all.iter().filter(|vmi| vmi["status"]["phase"] == "Running");
    let addresses: Vec<_> = run
        .filter_map(|vmi| Some(vmi["status"]["interfaces"][0]["ipAddress"].as_str()?.to_owned()))
        .collect();
    let distinct: BTreeSet<_> = addresses.iter().cloned().collect();
    assert_eq!(distinct.len(), addresses.len(), "two machines have one address: {addresses:?}");
    (addresses.len() as u64 == count).then_some(distinct)
}
