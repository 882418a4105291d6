//! Decisions, by example and by law.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on stops")]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::pod::seen::{Refusal, Stopping};
use crate::runtime::Exit;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

const NOW: i64 = 1_000;

fn wanted(name: &str) -> Wanted {
    Wanted { name: name.to_owned(), sidecar: false, grace_when_unhealthy: None }
}

fn plan() -> Plan {
    Plan {
        init: Vec::new(),
        main: vec![wanted("main")],
        restart: Restart::Always,
        grace: Duration::from_secs(30),
        ending: None,
        deadline: None,
        settled: None,
    }
}

fn ready() -> Seen {
    Seen {
        volumes: Setup::Ready,
        sandbox: Setup::Ready,
        sandbox_since: Some(at(500)),
        containers: BTreeMap::new(),
        traces: Setup::Ready,
        farewell: Setup::Absent,
    }
}

fn running() -> Container {
    Container {
        attempt: Some(0),
        run: Run::Running { since: at(900) },
        started: true,
        ready: true,
        ..Container::default()
    }
}

fn ended(code: i32, finished: i64) -> Container {
    let exit = Exit { code, started: at(finished - 1), finished: at(finished), reason: "Error".into() };
    Container { attempt: Some(0), run: Run::Ended(exit), streak: 1, ..Container::default() }
}

fn with(mut seen: Seen, containers: &[(&str, Container)]) -> Seen {
    seen.containers
        .extend(containers.iter().map(|(name, container)| ((*name).to_owned(), container.clone())));
    seen
}

fn start(name: &str) -> Action {
    Action::Start { container: name.to_owned() }
}

fn stop(name: &str, grace: u64) -> Action {
    Action::Stop { container: name.to_owned(), grace: Duration::from_secs(grace) }
}

#[track_caller]
fn expect(plan: &Plan, seen: &Seen, actions: &[Action], wake: Option<i64>) {
    let decision = decide(plan, seen, at(NOW));
    assert_eq!(decision.actions, actions);
    assert_eq!(decision.wake, wake.map(at));
}

#[test]
fn a_new_pod_gets_volumes_then_a_sandbox_then_containers() {
    let new = Seen::new(at(NOW));
    expect(&plan(), &new, &[Action::PublishVolumes], None);
    let volumes = Seen { volumes: Setup::Ready, ..new.clone() };
    expect(&plan(), &volumes, &[Action::MakeSandbox], None);
    let working = Seen { volumes: Setup::Working, ..new.clone() };
    expect(&plan(), &working, &[], None);
    let failed = Seen { sandbox: Setup::Doubtful { until: at(1_015) }, ..volumes };
    expect(&plan(), &failed, &[], Some(1_015));
    expect(&plan(), &ready(), &[start("main")], None);
    expect(&plan(), &with(ready(), &[("main", running())]), &[], None);
}

#[test]
fn init_containers_come_one_by_one() {
    let mut plan = plan();
    plan.init = vec![wanted("one"), Wanted { sidecar: true, ..wanted("side") }, wanted("two")];
    let done = ended(0, 600);
    let starting = Container { started: false, ..running() };
    expect(&plan, &ready(), &[start("one")], None);
    expect(&plan, &with(ready(), &[("one", running())]), &[], None);
    expect(&plan, &with(ready(), &[("one", done.clone())]), &[start("side")], None);
    expect(&plan, &with(ready(), &[("one", done.clone()), ("side", starting)]), &[], None);
    let sidecar = with(ready(), &[("one", done.clone()), ("side", running())]);
    expect(&plan, &sidecar, &[start("two")], None);
    expect(&plan, &with(sidecar.clone(), &[("two", done)]), &[start("main")], None);

    // Once the main containers run, only sidecars are kept.
    let lost = with(sidecar, &[("side", ended(1, 990)), ("two", ended(0, 600)), ("main", running())]);
    expect(&plan, &lost, &[start("side")], None);
    // In another sandbox, what was done before does not count.
    let old = with(ready(), &[("one", ended(0, 100))]);
    expect(&plan, &old, &[start("one")], None);
}

#[test]
fn policies_say_who_is_started_again() {
    for (restart, code, again) in [
        (Restart::Always, 0, true),
        (Restart::Always, 1, true),
        (Restart::OnFailure, 0, false),
        (Restart::OnFailure, 1, true),
        (Restart::Never, 0, false),
        (Restart::Never, 1, false),
    ] {
        let plan = Plan { restart, ..plan() };
        let seen = with(ready(), &[("main", ended(code, 990))]);
        let decision = decide(&plan, &seen, at(NOW));
        assert_eq!(decision.actions.contains(&start("main")), again, "{restart:?} {code}");
        let over = decision.actions.contains(&Action::ReleaseSandbox);
        assert_eq!(over, !again, "{restart:?} {code}: what is over is released");
    }
}

#[test]
fn the_next_start_is_later_each_time() {
    let waits: Vec<i64> = (1..=8)
        .map(|streak| {
            let container = Container { streak, ..ended(1, NOW) };
            let decision = decide(&plan(), &with(ready(), &[("main", container)]), at(NOW));
            decision.wake.map_or(0, |wake| wake.as_second() - NOW)
        })
        .collect();
    assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);

    let mut long = Container { streak: 7, ..running() };
    long.end(Exit { code: 1, started: at(0), finished: at(600), reason: "Error".into() });
    assert_eq!(long.delay(), Duration::ZERO, "a long run clears what went before");
}

#[test]
fn what_could_not_start_is_tried_again_under_its_own_number() {
    let refusal = Refusal { reason: "ErrImageNeverPull", message: String::new(), until: at(1_005) };
    let refused = Container { attempt: Some(3), run: Run::Refused(refusal), ..Container::default() };
    expect(&plan(), &with(ready(), &[("main", refused.clone())]), &[], Some(1_005));
    assert_eq!(refused.next_attempt(), 3);
    assert_eq!(ended(1, 5).next_attempt(), 1);
}

#[test]
fn a_container_that_is_dead_by_its_probe_is_stopped() {
    let dead = Container { unhealthy: true, ..running() };
    expect(&plan(), &with(ready(), &[("main", dead.clone())]), &[stop("main", 30)], None);
    let mut quick = plan();
    quick.main = vec![Wanted { grace_when_unhealthy: Some(Duration::from_secs(3)), ..wanted("main") }];
    expect(&quick, &with(ready(), &[("main", dead.clone())]), &[stop("main", 3)], None);
    let stopping = Stopping { since: at(999), grace: Duration::from_secs(3), killed: false };
    let stopped = Container { stopping: Some(stopping), ..dead };
    expect(&quick, &with(ready(), &[("main", stopped)]), &[], Some(1_002));
}

#[test]
fn a_pod_that_ends_stops_releases_removes_and_says_so() {
    let plan = Plan { ending: Some(Ending::Deleted), ..plan() };
    let alive = with(ready(), &[("main", running())]);
    expect(&plan, &alive, &[stop("main", 30)], None);
    let stopping = |since: i64, killed| Container {
        stopping: Some(Stopping { since: at(since), grace: Duration::from_secs(30), killed }),
        ..running()
    };
    expect(&plan, &with(ready(), &[("main", stopping(990, false))]), &[], Some(1_020));
    let kill = Action::Kill { container: "main".to_owned() };
    expect(&plan, &with(ready(), &[("main", stopping(970, false))]), std::slice::from_ref(&kill), None);
    expect(&plan, &with(ready(), &[("main", stopping(970, true))]), &[], None);
    let hurried = Plan { grace: Duration::from_secs(5), ..plan.clone() };
    expect(&hurried, &with(ready(), &[("main", stopping(990, false))]), &[kill], None);

    let dead = with(ready(), &[("main", ended(137, 990))]);
    expect(&plan, &dead, &[Action::ReleaseSandbox, Action::ReleaseVolumes], None);
    let released = Seen { sandbox: Setup::Absent, volumes: Setup::Absent, ..dead };
    expect(&plan, &released, &[Action::RemoveTraces], None);
    let removed = Seen { traces: Setup::Absent, ..released };
    expect(&plan, &removed, &[Action::Finalise], None);
    expect(&plan, &Seen { farewell: Setup::Ready, ..removed.clone() }, &[], None);
    let gone = Plan { ending: Some(Ending::Gone), ..plan };
    expect(&gone, &Seen { farewell: Setup::Ready, ..removed }, &[Action::Forget], None);
}

#[test]
fn sidecars_end_last_and_in_reverse() {
    let sidecar = |name: &str| Wanted { sidecar: true, ..wanted(name) };
    let plan = Plan { ending: Some(Ending::Deleted), init: vec![sidecar("a"), sidecar("b")], ..plan() };
    let all = with(ready(), &[("a", running()), ("b", running()), ("main", running())]);
    expect(&plan, &all, &[stop("main", 30)], None);
    let without = with(all.clone(), &[("main", ended(0, 990))]);
    expect(&plan, &without, &[stop("b", 30)], None);
    expect(&plan, &with(without, &[("b", ended(0, 990))]), &[stop("a", 30)], None);
    // A job whose work is done does not go on for its sidecars.
    let job = Plan { ending: None, restart: Restart::Never, ..plan };
    expect(&job, &with(all, &[("main", ended(0, 990))]), &[stop("b", 30)], None);
}

#[test]
fn containers_that_lost_their_sandbox_are_stopped() {
    let seen = with(Seen { sandbox: Setup::Doubtful { until: at(0) }, ..ready() }, &[("main", running())]);
    expect(&plan(), &seen, &[stop("main", 30)], None);
}

#[test]
fn outcomes_follow_the_policy() {
    let seen = |codes: &[i32]| {
        let containers: Vec<(String, Container)> =
            codes.iter().enumerate().map(|(n, code)| (format!("c{n}"), ended(*code, 990))).collect();
        Seen { containers: containers.into_iter().collect(), ..ready() }
    };
    let of = |restart, ending, codes: &[i32]| {
        let main = (0..codes.len()).map(|n| wanted(&format!("c{n}"))).collect();
        outcome(&Plan { main, restart, ending, ..plan() }, &seen(codes), at(NOW))
    };
    assert_eq!(of(Restart::Never, None, &[0, 0]), Some(Outcome::Succeeded));
    assert_eq!(of(Restart::Never, None, &[0, 2]), Some(Outcome::Failed));
    assert_eq!(of(Restart::OnFailure, None, &[0, 0]), Some(Outcome::Succeeded));
    assert_eq!(of(Restart::OnFailure, None, &[0, 2]), None);
    assert_eq!(of(Restart::Always, None, &[0, 0]), None);
    assert_eq!(of(Restart::Always, Some(Ending::Deleted), &[0, 0]), Some(Outcome::Succeeded));
    assert_eq!(of(Restart::Always, Some(Ending::Deleted), &[0, 143]), Some(Outcome::Failed));

    let overdue = Plan { deadline: Some(at(NOW)), ..plan() };
    assert_eq!(outcome(&overdue, &ready(), at(NOW)), Some(Outcome::Failed));
    let settled = Plan { settled: Some(Outcome::Succeeded), ..plan() };
    assert_eq!(outcome(&settled, &ready(), at(NOW)), Some(Outcome::Succeeded));
    let mut init = Plan { restart: Restart::Never, init: vec![wanted("one")], ..plan() };
    assert_eq!(outcome(&init, &with(ready(), &[("one", ended(1, 990))]), at(NOW)), Some(Outcome::Failed));
    init.restart = Restart::OnFailure;
    assert_eq!(outcome(&init, &with(ready(), &[("one", ended(1, 990))]), at(NOW)), None);
}

prop_compose! {
    fn any_setup()(which in 0..4, until in 900_i64..1_100) -> Setup {
        match which {
            0 => Setup::Absent,
            1 => Setup::Working,
            2 => Setup::Ready,
            _ => Setup::Doubtful { until: at(until) },
        }
    }
}

prop_compose! {
    fn any_container()(
        which in 0..5,
        code in 0..2,
        time in 0_i64..1_000,
        streak in 0_u32..9,
        flags in any::<[bool; 3]>(),
        stopping in proptest::option::of((900_i64..1_000, any::<bool>())),
    ) -> Container {
        let [started, ready, unhealthy] = flags;
        let exit = Exit { code, started: at(time), finished: at(time + 1), reason: String::new() };
        let refusal = Refusal { reason: "", message: String::new(), until: at(time) };
        let (attempt, run) = match which {
            0 => (None, Run::Never),
            1 => (Some(0), Run::Starting),
            2 => (Some(0), Run::Running { since: at(time) }),
            3 => (Some(0), Run::Ended(exit)),
            _ => (Some(0), Run::Refused(refusal)),
        };
        let stopping = stopping.filter(|_| which == 2).map(|(since, killed)| Stopping {
            since: at(since), grace: Duration::from_secs(30), killed,
        });
        Container { attempt, run, previous: None, streak, refused: 0, started, ready, unhealthy, stopping }
    }
}

prop_compose! {
    fn any_pod()(
        init in proptest::collection::vec(any::<bool>(), 0..3),
        main in 1_usize..3,
        restart in 0_usize..3,
        ending in 0_usize..4,
        setups in (any_setup(), any_setup(), any_setup(), any_setup()),
        containers in proptest::collection::vec(any_container(), 6),
    ) -> (Plan, Seen) {
        let init: Vec<Wanted> = init
            .into_iter()
            .enumerate()
            .map(|(n, sidecar)| Wanted { sidecar, ..wanted(&format!("i{n}")) })
            .collect();
        let main: Vec<Wanted> = (0..main).map(|n| wanted(&format!("m{n}"))).collect();
        let names = init.iter().chain(&main).map(|wanted| wanted.name.clone());
        let (volumes, sandbox, traces, farewell) = setups;
        let seen = Seen {
            containers: names.zip(containers).collect(),
            volumes, sandbox, traces, farewell,
            sandbox_since: Some(at(500)),
        };
        let plan = Plan {
            init,
            main,
            restart: [Restart::Always, Restart::OnFailure, Restart::Never][restart],
            ending: [None, None, Some(Ending::Deleted), Some(Ending::Gone)][ending],
            ..plan()
        };
        (plan, seen)
    }
}

/// A world in which everything that is asked for succeeds at once, and what is asked to end ends.
fn obey(seen: &mut Seen, action: &Action, now: Timestamp) {
    let container = |seen: &mut Seen, name: &str, change: &dyn Fn(&mut Container)| {
        change(seen.containers.entry(name.to_owned()).or_default());
    };
    match action {
        Action::PublishVolumes => seen.volumes = Setup::Ready,
        Action::MakeSandbox => (seen.sandbox, seen.sandbox_since) = (Setup::Ready, Some(now)),
        Action::Start { container: name } => container(seen, name, &|container| {
            container.begin();
            (container.run, container.started) = (Run::Running { since: now }, true);
        }),
        Action::Stop { container: name, .. } | Action::Kill { container: name } => {
            container(seen, name, &|container| {
                container.end(Exit { code: 143, started: now, finished: now, reason: "Error".into() });
            });
        }
        Action::ReleaseSandbox => seen.sandbox = Setup::Absent,
        Action::ReleaseVolumes => seen.volumes = Setup::Absent,
        Action::RemoveTraces => seen.traces = Setup::Absent,
        Action::Finalise => seen.farewell = Setup::Ready,
        Action::Forget => {}
    }
}

/// What is under way comes to its end.
fn finish(seen: &mut Seen, now: Timestamp) {
    for setup in [&mut seen.volumes, &mut seen.sandbox, &mut seen.traces, &mut seen.farewell] {
        if *setup == Setup::Working {
            *setup = Setup::Doubtful { until: now };
        }
    }
    for container in seen.containers.values_mut().filter(|container| container.is_alive()) {
        if container.stopping.as_ref().is_some_and(|stopping| stopping.killed) {
            container.end(Exit { code: 137, started: now, finished: now, reason: "Error".into() });
        } else {
            let since = if let Run::Running { since } = container.run { since } else { now };
            (container.run, container.started) = (Run::Running { since }, true);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn nothing_starts_where_it_must_not((plan, seen) in any_pod()) {
        for action in decide(&plan, &seen, at(NOW)).actions {
            match action {
                Action::Start { container } => {
                    prop_assert!(plan.ending.is_none());
                    prop_assert_eq!((&seen.volumes, &seen.sandbox), (&Setup::Ready, &Setup::Ready));
                    prop_assert!(!seen.container(&container).is_alive());
                }
                Action::ReleaseSandbox | Action::ReleaseVolumes | Action::RemoveTraces => {
                    prop_assert!(!seen.is_alive(), "it is taken from a container that runs");
                }
                Action::MakeSandbox => prop_assert!(!seen.is_alive()),
                Action::Stop { container, .. } => prop_assert!(seen.container(&container).stopping.is_none()),
                Action::Kill { container } => prop_assert!(seen.container(&container).stopping.is_some()),
                Action::Finalise | Action::Forget => {
                    prop_assert!(plan.ending.is_some());
                    prop_assert_eq!(&seen.traces, &Setup::Absent);
                }
                Action::PublishVolumes => {}
            }
        }
    }

    #[test]
    fn nothing_is_asked_for_while_it_is_under_way((plan, seen) in any_pod()) {
        let actions = decide(&plan, &seen, at(NOW)).actions;
        let asked = |action: &Action| actions.contains(action);
        if seen.sandbox == Setup::Working {
            prop_assert!(!asked(&Action::MakeSandbox) && !asked(&Action::ReleaseSandbox));
        }
        if seen.volumes == Setup::Working {
            prop_assert!(!asked(&Action::PublishVolumes) && !asked(&Action::ReleaseVolumes));
        }
        let mut once = actions.iter().map(|action| format!("{action:?}")).collect::<Vec<_>>();
        once.sort();
        once.dedup();
        prop_assert_eq!(once.len(), actions.len(), "the same is asked twice");
    }

    /// Whatever state a pod is in, once it is to end it ends, if the world does what it is asked.
    #[test]
    fn a_pod_that_is_to_end_ends((plan, mut seen) in any_pod()) {
        let plan = Plan { ending: Some(Ending::Gone), ..plan };
        let mut now = at(NOW);
        for _ in 0..100 {
            finish(&mut seen, now);
            let decision = decide(&plan, &seen, now);
            if decision.actions.contains(&Action::Forget) {
                return Ok(());
            }
            for action in &decision.actions {
                obey(&mut seen, action, now);
            }
            now = if decision.actions.is_empty() { decision.wake.expect("it waits for something") } else { now };
        }
        prop_assert!(false, "it goes on for ever: {seen:?}");
    }

    /// A pod that goes on either has all that it wants or knows when to look again.
    #[test]
    fn a_pod_that_goes_on_comes_to_rest((plan, mut seen) in any_pod()) {
        let plan = Plan { ending: None, restart: Restart::Always, ..plan };
        let mut now = at(NOW);
        for _ in 0..100 {
            finish(&mut seen, now);
            for container in seen.containers.values_mut() {
                container.unhealthy = false;
                // A step that runs comes to its end.
                if container.stopping.is_some() {
                    container.end(Exit { code: 1, started: now, finished: now, reason: String::new() });
                }
            }
            for step in plan.steps() {
                if let Some(container) = seen.containers.get_mut(&step.name)
                    && matches!(container.run, Run::Running { .. })
                {
                    container.end(Exit { code: 0, started: now, finished: now, reason: String::new() });
                }
            }
            let decision = decide(&plan, &seen, now);
            if plan.main.iter().all(|wanted| matches!(seen.container(&wanted.name).run, Run::Running { .. })) {
                return Ok(());
            }
            for action in &decision.actions {
                obey(&mut seen, action, now);
            }
            if decision.actions.is_empty() {
                now = decision.wake.expect("it waits for something");
            }
        }
        prop_assert!(false, "it never comes to rest: {seen:?}");
    }
}
