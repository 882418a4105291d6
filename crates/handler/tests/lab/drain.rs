//! A node is drained, by kubectl and by taint: its machines leave, a few at a time, and run on elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::installation::{Installation, instance};

const MACHINES: usize = 6;
/// What an installation allows that says nothing.
const AT_A_TIME: i32 = 2;
/// Guests are emulated, and share the machine's processors.
const ALL: Duration = Duration::from_mins(4);

fn list(lab: &Installation, kind: &str) -> Vec<Value> {
    let mut shown: Value = serde_json::from_str(&lab.kubectl_ok(&["get", kind, "-o", "json"])).unwrap();
    serde_json::from_value(shown["items"].take()).unwrap()
}

/// Where machines run; none before all of them do.
fn homes(lab: &Installation) -> Option<Vec<String>> {
    let all = list(lab, "vmi");
    let run = all.iter().filter(|vmi| vmi["status"]["phase"] == "Running");
    let homes: Vec<_> = run.filter_map(|vmi| Some(vmi["status"]["nodeName"].as_str()?.to_owned())).collect();
    (homes.len() == MACHINES).then_some(homes)
}

/// All moves, once all of them have succeeded.
fn moves(lab: &Installation) -> Option<Vec<Value>> {
    let all = list(lab, "vmim");
    assert!(all.iter().all(|migration| migration["status"]["phase"] != "Failed"), "{all:#?}");
    all.iter().all(|migration| migration["status"]["phase"] == "Succeeded").then_some(all)
}

/// The most moves from one node that were under way at a time, as their timestamps say: those that end in a second make room for
/// those that begin in it.
fn most_at_a_time(migrations: &[Value], node: &str) -> i32 {
    let mut changes = BTreeMap::<(String, i32), i32>::new();
    for migration in migrations {
        let status = &migration["status"];
        if status["migrationState"]["sourceNode"] != node {
            continue;
        }
        let entered = |phase: &str| {
            let transitions = status["phaseTransitionTimestamps"].as_array().unwrap();
            let entry = transitions.iter().find(|transition| transition["phase"] == phase);
            let entry = entry.unwrap_or_else(|| panic!("never {phase}: {migration:#}"));
            entry["phaseTransitionTimestamp"].as_str().unwrap().to_owned()
        };
        *changes.entry((entered("Scheduling"), 1)).or_default() += 1;
        *changes.entry((entered("Succeeded"), -1)).or_default() -= 1;
    }
    let mut now = 0;
    changes
        .values()
        .map(|change| {
            now += change;
            now
        })
        .max()
        .unwrap_or_default()
}

#[test]
fn machines_leave_a_node_that_is_drained_a_few_at_a_time() {
    let lab = Installation::new("");
    let others = ["node-2", "node-3"];
    lab.kubectl_ok(&["cordon", others[0], others[1]]);
    let one = |number| {
        let (interfaces, networks) = ("[{ name: default, masquerade: {} }]", "[{ name: default, pod: {} }]");
        instance(&format!("vm-{number}"), interfaces, networks, "evictionStrategy: LiveMigrate")
    };
    lab.apply(&(1..=MACHINES).map(one).collect::<String>());
    let homes_before = lab.until("all machines run", ALL, || homes(&lab));
    assert!(homes_before.iter().all(|home| home == "node-1"), "{homes_before:?}");
    lab.kubectl_ok(&["uncordon", others[0], others[1]]);

    let limit = format!("--timeout={}s", ALL.as_secs());
    // Machines alone: evictions are judged by the controller, which would be evicted as well.
    let machines = "--pod-selector=kubevirt.io=virt-launcher";
    let drained = lab.kubectl(&["drain", "node-1", machines, "--delete-emptydir-data", &limit]);
    let said = String::from_utf8_lossy(&drained.stderr);
    assert!(drained.status.success(), "{said}\n{}", lab.describe());
    assert!(said.contains("Eviction triggered evacuation of VMI"), "{said}");
    let moved = lab.until("all machines run", ALL, || homes(&lab));
    assert!(moved.iter().all(|home| others.contains(&home.as_str())), "{moved:?}");
    let migrations = lab.until("all moves are over", ALL, || moves(&lab));
    assert_eq!(migrations.len(), MACHINES, "one move each");
    for migration in &migrations {
        assert_eq!(migration["spec"]["priority"], "system-critical", "{migration:#}");
    }
    let most = most_at_a_time(&migrations, "node-1");
    assert!(most <= AT_A_TIME, "{most} at a time");

    // The older way.
    lab.kubectl_ok(&["uncordon", "node-1"]);
    lab.kubectl_ok(&["taint", "node", "node-2", "kubevirt.io/drain=now:NoSchedule"]);
    lab.until("node-2 is left", ALL, || homes(&lab)?.iter().all(|home| home != "node-2").then_some(()));
    let all = lab.until("all moves are over", ALL, || moves(&lab));
    let most = most_at_a_time(&all, "node-2");
    assert!(most <= AT_A_TIME, "{most} at a time");
    let expected = MACHINES + moved.iter().filter(|home| *home == "node-2").count();
    assert_eq!(all.len(), expected, "nobody moved who did not have to");
}
