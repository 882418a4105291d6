//! A node is drained, by kubectl and by taint: its machines leave, a few at a time, and run on elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use e2e::objects::VMS;
use e2e::{Installation, Kind, NODES, instance};
use serde_json::{Value, json};

const MACHINES: usize = 6;
/// How many may leave a node at a time, if nobody says otherwise.
const LEAVING: i32 = 2;
/// How many may arrive at one: fewer, so that two that leave for the same node wait for each other.
const ARRIVING: i32 = 1;
/// Slow enough that the queue is full when the drain comes.
const BANDWIDTH: &str = "16Mi";
/// Where there is room for two at once, they begin one after the other, in either order, within so many seconds. Who has to wait for another's
/// end waits for longer.
const TOGETHER: i64 = 3;
/// Guests are emulated, and share the machine's processors.
const ALL: Duration = Duration::from_mins(4);

/// Where machines run; none before all of them do.
fn homes(lab: &Installation) -> Option<Vec<String>> {
    let all = lab.objects(Kind::Vmi, VMS);
    let run = all.iter().filter(|vmi| vmi["status"]["phase"] == "Running");
    let homes: Vec<_> = run.filter_map(|vmi| Some(vmi["status"]["nodeName"].as_str()?.to_owned())).collect();
    (homes.len() == MACHINES).then_some(homes)
}

/// All moves, once all of them have succeeded.
fn moves(lab: &Installation) -> Option<Vec<Value>> {
    let all = lab.objects(Kind::Migration, VMS);
    assert!(all.iter().all(|migration| migration["status"]["phase"] != "Failed"), "{all:#?}");
    all.iter().all(|migration| migration["status"]["phase"] == "Succeeded").then_some(all)
}

/// When a move entered a phase, to the second; none: it has not.
fn entered(migration: &Value, phase: &str) -> Option<String> {
    let transitions = migration["status"]["phaseTransitionTimestamps"].as_array()?;
    let entry = transitions.iter().find(|transition| transition["phase"] == phase)?;
    Some(entry["phaseTransitionTimestamp"].as_str().unwrap().to_owned())
}

/// The most moves that were under way at a time, as their timestamps say, from this phase on: those that end in a second make room for
/// those that begin in it.
fn most_at_a_time<'a>(migrations: impl Iterator<Item = &'a Value>, from: &str) -> i32 {
    let mut changes = BTreeMap::<(String, i32), i32>::new();
    for migration in migrations {
        let at = |phase| entered(migration, phase).unwrap_or_else(|| panic!("never {phase}: {migration:#}"));
        *changes.entry((at(from), 1)).or_default() += 1;
        *changes.entry((at("Succeeded"), -1)).or_default() -= 1;
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

fn of<'a>(migrations: &'a [Value], side: &'static str, node: &'a str) -> impl Iterator<Item = &'a Value> {
    migrations.iter().filter(move |migration| migration["status"]["migrationState"][side] == node)
}

/// No more at a time than may leave a node, and than may arrive at one.
fn keep_the_limits(migrations: &[Value]) {
    for node in NODES {
        let leaving = most_at_a_time(of(migrations, "sourceNode", node), "Scheduling");
        let arriving = most_at_a_time(of(migrations, "targetNode", node), "PreparingTarget");
        println!("{node}: at most {leaving} left and {arriving} arrived at a time");
        assert!(leaving <= LEAVING, "{leaving} left {node} at a time");
        assert!(arriving <= ARRIVING, "{arriving} arrived at {node} at a time");
    }
}

fn rank(migration: &Value) -> usize {
    let priority = migration["spec"]["priority"].as_str().unwrap_or_default();
    let order = ["system-maintenance", "user-triggered", "system-critical"];
    order.iter().position(|known| *known == priority).unwrap_or_else(|| panic!("{priority}: {migration:#}"))
}

/// Of moves that leave one node: none began while one of a higher priority waited. How many began while one of a lower priority did.
fn keep_the_order(migrations: &[Value]) -> usize {
    let at = |migration: &Value, phase: &str| -> i64 {
        entered(migration, phase).unwrap().parse::<jiff::Timestamp>().unwrap().as_second()
    };
    let mut overtaken = 0;
    for (one, other) in migrations.iter().flat_map(|one| migrations.iter().map(move |other| (one, other))) {
        let (began, begins) = (at(one, "Scheduling"), at(other, "Scheduling"));
        let passed = at(other, "Pending") < began && began + TOGETHER < begins;
        assert!(!passed || rank(one) >= rank(other), "{one:#}\nbegan while this waited: {other:#}");
        overtaken += usize::from(passed && rank(one) > rank(other));
    }
    overtaken
}

/// A request for the move of a machine, with a priority or with none.
fn request(machine: &str, priority: Option<&str>) -> String {
    let priority = priority.map(|priority| format!(", priority: {priority}")).unwrap_or_default();
    format!(
        "---\napiVersion: kubevirt.io/v1\nkind: VirtualMachineInstanceMigration\nmetadata: {{ name: {machine} }}\n\
         spec: {{ vmiName: {machine}{priority} }}\n"
    )
}

/// A node is drained while there is nowhere to go, and then is not: moves that wait are cancelled, and machines stay.
fn a_drain_is_called_off(lab: &Installation, before: &[String]) {
    let machines = "--pod-selector=kubevirt.io=virt-launcher";
    let drained = lab.kubectl(&["drain", "node-1", machines, "--delete-emptydir-data", "--timeout=2s"]);
    assert!(!drained.status.success(), "it cannot have been drained");
    lab.until_it_is("all are to leave", ALL, || lab.objects(Kind::Migration, VMS).len() == MACHINES);
    lab.kubectl_ok(&["uncordon", "node-1"]);
    let cancelled = lab.at_terminal(&["evacuate-cancel", "--node", "node-1"]).output().unwrap();
    let said = String::from_utf8_lossy(&cancelled.stdout);
    assert!(cancelled.status.success(), "{said}{}", String::from_utf8_lossy(&cancelled.stderr));
    assert_eq!(said.lines().count(), MACHINES, "{said}");
    lab.until_it_is("no move is left", ALL, || lab.objects(Kind::Migration, VMS).is_empty());
    assert_eq!(homes(lab).as_deref(), Some(before));
    let refused = lab.at_terminal(&["evacuate-cancel", "vm-1"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("is not being evacuated"), "{said}");
}

#[test]
fn machines_leave_a_node_that_is_drained_a_few_at_a_time_and_the_urgent_ones_first() {
    let lab = Installation::new("");
    lab.configure(
        &json!({ "parallelInboundMigrationsPerNode": ARRIVING, "bandwidthPerMigration": BANDWIDTH }),
    );
    let others = ["node-2", "node-3"];
    lab.kubectl_ok(&["cordon", others[0], others[1]]);
    let one = |number| {
        let (interfaces, networks) = ("[{ name: default, masquerade: {} }]", "[{ name: default, pod: {} }]");
        instance(&format!("vm-{number}"), interfaces, networks, "evictionStrategy: LiveMigrate")
    };
    lab.apply(&(1..=MACHINES).map(one).collect::<String>());
    let homes_before = lab.until("all machines run", ALL, || homes(&lab));
    assert!(homes_before.iter().all(|home| home == "node-1"), "{homes_before:?}");
    a_drain_is_called_off(&lab, &homes_before);
    lab.kubectl_ok(&["uncordon", others[0], others[1]]);

    // Two are on their way for a person, and there is room for no more. Behind them waits one that is to balance the load.
    lab.apply(&(request("vm-1", None) + &request("vm-2", None)));
    lab.until_it_is("two have begun", ALL, || {
        lab.objects(Kind::Migration, VMS)
            .iter()
            .filter(|migration| entered(migration, "Scheduling").is_some())
            .count()
            == 2
    });
    lab.apply(&request("vm-3", Some("system-maintenance")));
    lab.until_it_is("the third waits", ALL, || {
        lab.objects(Kind::Migration, VMS)
            .iter()
            .filter(|migration| migration["status"]["phase"] == "Pending")
            .count()
            == 1
    });

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
    let ranks = migrations.iter().map(rank).collect::<Vec<_>>();
    let of_rank = |wanted| ranks.iter().filter(|rank| **rank == wanted).count();
    assert_eq!([of_rank(0), of_rank(1), of_rank(2)], [1, 2, MACHINES - 3], "{migrations:#?}");
    for migration in &migrations {
        let at = |phase| entered(migration, phase).unwrap_or_default();
        let (name, priority) = (&migration["spec"]["vmiName"], &migration["spec"]["priority"]);
        println!(
            "{name} {priority}: {} waits, {} begins, {} is over",
            at("Pending"),
            at("Scheduling"),
            at("Succeeded")
        );
    }
    keep_the_limits(&migrations);
    assert_eq!(
        most_at_a_time(of(&migrations, "sourceNode", "node-1"), "Scheduling"),
        LEAVING,
        "as many as may: {migrations:#?}"
    );
    // The last of the drain and the one that waited for all of them may begin together.
    let overtaken = keep_the_order(&migrations);
    assert!(overtaken >= MACHINES - 4, "what balances the load waits for the drain: {migrations:#?}");

    // The older way.
    lab.kubectl_ok(&["uncordon", "node-1"]);
    lab.kubectl_ok(&["taint", "node", "node-2", "kubevirt.io/drain=now:NoSchedule"]);
    lab.until("node-2 is left", ALL, || homes(&lab)?.iter().all(|home| home != "node-2").then_some(()));
    let all = lab.until("all moves are over", ALL, || moves(&lab));
    keep_the_limits(&all);
    let expected = MACHINES + moved.iter().filter(|home| *home == "node-2").count();
    assert_eq!(all.len(), expected, "nobody moved who did not have to");
}
