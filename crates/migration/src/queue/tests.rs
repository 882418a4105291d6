//! The queue by example, and what holds for every queue.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on stops")]

use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits { cluster: 5, outbound: 2, inbound: 2 };

fn entry(uid: &str, source: &str, stage: Stage) -> Entry {
    let created = uid.bytes().map(i64::from).sum();
    Entry {
        uid: uid.into(),
        instance: format!("default/{uid}"),
        priority: None,
        created: Timestamp::from_second(created).unwrap(),
        source: Some(source.into()),
        target: None,
        stage,
    }
}

fn placed(uid: &str, target: &str, stage: Stage) -> Entry {
    Entry { target: Some(target.into()), ..entry(uid, uid, stage) }
}

fn waits_for(turn: Turn) -> &'static str {
    match turn {
        Turn::Wait(wait) => wait.reason,
        Turn::Go => panic!("it goes"),
    }
}

#[test]
fn a_full_node_holds_up_nobody_else() {
    use Stage::{Moving, Placing, Waiting};
    let queue = Queue::new(
        vec![
            entry("a", "n1", Moving),
            entry("b", "n1", Placing),
            entry("c", "n1", Waiting),
            entry("d", "n1", Waiting),
            entry("e", "n2", Waiting),
        ],
        LIMITS,
    );
    assert_eq!(waits_for(queue.start("c")), reasons::OUTBOUND_LIMIT);
    assert_eq!(queue.start("e"), Turn::Go);
    let Turn::Wait(wait) = queue.start("d") else { panic!() };
    assert_eq!(wait.message, "2 VMs leave node n1, and no more than 2 may; 1 wait before this one");
}

#[test]
fn the_cluster_is_full_before_anybody_passes() {
    use Stage::{Moving, Waiting};
    let mut entries: Vec<Entry> =
        ["a", "b", "c", "d", "e"].map(|uid| entry(uid, uid, Moving)).into_iter().collect();
    entries.push(entry("f", "f", Waiting));
    assert_eq!(waits_for(Queue::new(entries.clone(), LIMITS).start("f")), reasons::CLUSTER_LIMIT);
    entries.remove(0);
    entries.push(Entry { priority: Some(MigrationPriority::SystemCritical), ..entry("g", "g", Waiting) });
    entries.push(Entry { priority: Some(MigrationPriority::SystemMaintenance), ..entry("A", "A", Waiting) });
    let queue = Queue::new(entries, LIMITS);
    assert_eq!(queue.start("g"), Turn::Go, "a drain comes before what a person asked for earlier");
    assert_eq!(waits_for(queue.start("f")), reasons::CLUSTER_LIMIT);
    assert_eq!(waits_for(queue.start("A")), reasons::CLUSTER_LIMIT);
}

#[test]
fn a_node_takes_so_many_at_a_time() {
    use Stage::{Moving, Placed};
    let queue = Queue::new(
        vec![placed("a", "n1", Moving), placed("b", "n1", Placed), placed("c", "n1", Placed)],
        LIMITS,
    );
    assert_eq!(queue.hand_over("b"), Turn::Go);
    assert_eq!(waits_for(queue.hand_over("c")), reasons::INBOUND_LIMIT);
}

#[test]
fn of_two_moves_of_a_vm_one_goes() {
    use Stage::{Placing, Waiting};
    let same = |uid: &str, stage| Entry { instance: "default/vm".into(), ..entry(uid, "n1", stage) };
    let queue = Queue::new(vec![same("a", Waiting), same("b", Waiting)], LIMITS);
    assert!(queue.rival("a").is_none());
    assert_eq!(queue.rival("b").unwrap().uid, "a");
    let queue = Queue::new(vec![same("a", Waiting), same("b", Placing)], LIMITS);
    assert_eq!(queue.rival("a").unwrap().uid, "b", "who has begun goes on");
    assert!(queue.rival("b").is_none());
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let priority = prop_oneof![
        Just(None),
        Just(Some(MigrationPriority::SystemCritical)),
        Just(Some(MigrationPriority::UserTriggered)),
        Just(Some(MigrationPriority::SystemMaintenance)),
    ];
    let one = (0..4_u8, 0..4_u8, priority, 0..20_i64);
    prop::collection::vec(one, 0..40).prop_map(|drawn| {
        let of = |(index, (source, target, priority, created)): (usize, (u8, u8, _, i64))| Entry {
            uid: format!("m{index}"),
            instance: format!("default/vm{index}"),
            priority,
            created: Timestamp::from_second(created).unwrap(),
            source: Some(format!("n{source}")),
            target: Some(format!("n{}", if target == source { (target + 1) % 4 } else { target })),
            stage: Stage::Waiting,
        };
        drawn.into_iter().enumerate().map(of).collect()
    })
}

fn limits() -> impl Strategy<Value = Limits> {
    (1..6_u32, 1..4_u32, 1..4_u32).prop_map(|(cluster, outbound, inbound)| Limits {
        cluster,
        outbound,
        inbound,
    })
}

fn most<'a>(entries: impl Iterator<Item = &'a Option<String>>) -> u32 {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for node in entries.flatten() {
        *counts.entry(node.as_str()).or_default() += 1;
    }
    counts.into_values().max().unwrap_or_default()
}

fn keeps(entries: &[Entry], limits: Limits) -> bool {
    let begun = || entries.iter().filter(|entry| entry.stage > Stage::Waiting);
    let moving = entries.iter().filter(|entry| entry.stage == Stage::Moving);
    count(begun()) <= limits.cluster
        && most(begun().map(|entry| &entry.source)) <= limits.outbound
        && most(moving.map(|entry| &entry.target)) <= limits.inbound
}

proptest! {
    /// Whatever order they are asked in, whichever ends first: limits hold after every step, and all get their turn.
    #[test]
    fn limits_hold_and_nobody_starves(mut entries in entries(), limits in limits(), seed: u64) {
        let mut random = seed;
        let mut steps = 0;
        while !entries.is_empty() {
            let before = entries.clone();
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let offset = usize::try_from(random >> 33).unwrap() % entries.len();
            entries.rotate_left(offset);
            for index in 0..entries.len() {
                let queue = Queue::new(entries.clone(), limits);
                let uid = entries[index].uid.clone();
                let next = match entries[index].stage {
                    Stage::Waiting if queue.start(&uid) == Turn::Go => Stage::Placing,
                    Stage::Placing => Stage::Placed,
                    Stage::Placed if queue.hand_over(&uid) == Turn::Go => Stage::Moving,
                    stage => stage,
                };
                entries[index].stage = next;
                prop_assert!(keeps(&entries, limits), "{limits:?} {entries:?}");
            }
            if let Some(done) = entries.iter().position(|entry| entry.stage == Stage::Moving) {
                entries.remove(done);
            }
            steps += 1;
            prop_assert!(steps < 500, "nothing moves any more: {before:?}");
        }
    }

    /// Everybody who may go may go at once: the answers to all are one plan.
    #[test]
    fn all_who_are_told_to_go_may_go_together(mut entries in entries(), limits in limits()) {
        let queue = Queue::new(entries.clone(), limits);
        for entry in &mut entries {
            if queue.start(&entry.uid) == Turn::Go {
                entry.stage = Stage::Placing;
            }
        }
        prop_assert!(keeps(&entries, limits));
    }

    /// Nobody goes while someone of the same node who comes first waits.
    #[test]
    fn first_things_first(entries in entries(), limits in limits()) {
        let queue = Queue::new(entries.clone(), limits);
        for later in &entries {
            for earlier in &entries {
                if earlier.source == later.source && earlier.order() < later.order() && queue.start(&later.uid) == Turn::Go {
                    prop_assert_eq!(queue.start(&earlier.uid), Turn::Go);
                }
            }
        }
    }
}
