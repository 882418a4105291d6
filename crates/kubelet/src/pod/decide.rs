//! What is to be done for a pod now. Pure: the same pod, the same sight of it and the same time give the same answer.
//!
//! ```text
//!              volumes      sandbox     init containers,     all
//!             published      made        one by one        containers
//!   assigned ──────────►───────────►────────────────────►─────────────► running
//!                                                                        │ deleted, or done
//!   forgotten ◄──────────◄───────────◄──────────────────◄────────────────┘
//!            status, DELETE  traces    network, volumes     containers
//!                           removed       released           stopped
//! ```
//!
//! Invariants, each with a property test: no container starts in a sandbox or with volumes that are not ready, nor in a pod
//! that is to end; no network is taken from a container that runs; nothing is asked for twice while it is under way; a pod
//! that is to end ends.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::plan::{Ending, Outcome, Plan, Restart, Wanted};
use super::seen::{Container, Run, Seen, Setup};

#[cfg(test)]
mod tests;

/// Something that a worker can do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    PublishVolumes,
    MakeSandbox,
    Start {
        container: String,
    },
    /// Asks it to end.
    Stop {
        container: String,
        grace: Duration,
    },
    /// Makes it end.
    Kill {
        container: String,
    },
    /// Detaches every network and removes the namespace.
    ReleaseSandbox,
    ReleaseVolumes,
    /// Removes what is left of containers, and the pod's own directory.
    RemoveTraces,
    /// Tells the API that nothing is left, once it has the last status.
    Finalise,
    /// The worker has nothing more to do.
    Forget,
}

/// What is to be done, and when to look again if nothing happens before.
#[derive(Debug, Default, PartialEq)]
pub struct Decision {
    pub actions: Vec<Action>,
    pub wake: Option<Timestamp>,
}

impl Decision {
    fn wake_at(&mut self, time: Timestamp) {
        self.wake = Some(self.wake.map_or(time, |wake| wake.min(time)));
    }
}

pub fn decide(plan: &Plan, seen: &Seen, now: Timestamp) -> Decision {
    let mut decision = Decision::default();
    if plan.ending.is_some() {
        end(plan, seen, now, &mut decision);
    } else if outcome(plan, seen, now).is_some() {
        settle(plan, seen, now, &mut decision);
    } else {
        if let Some(deadline) = plan.deadline {
            decision.wake_at(deadline);
        }
        carry_on(plan, seen, now, &mut decision);
    }
    decision
}

/// How the pod ended, if it will never run again.
pub fn outcome(plan: &Plan, seen: &Seen, now: Timestamp) -> Option<Outcome> {
    if plan.settled.is_some() {
        return plan.settled;
    }
    if plan.deadline.is_some_and(|deadline| now >= deadline) {
        return Some(Outcome::Failed);
    }
    let failed_step = |wanted: &Wanted| {
        let exit = seen.containers.get(&wanted.name).and_then(Container::exit);
        exit.is_some_and(|exit| exit.code != 0 && ran_here(seen, exit.started))
    };
    if plan.restart == Restart::Never && !main_has_run(plan, seen) && plan.steps().any(failed_step) {
        return Some(Outcome::Failed);
    }
    let ends: Option<Vec<i32>> = exit_codes(plan, seen);
    let clean = |codes: &Vec<i32>| codes.iter().all(|code| *code == 0);
    match (plan.restart, ends) {
        (Restart::Always, _) if plan.ending.is_none() => None,
        (Restart::OnFailure, Some(codes)) if plan.ending.is_none() => {
            clean(&codes).then_some(Outcome::Succeeded)
        }
        (_, Some(codes)) => Some(if clean(&codes) { Outcome::Succeeded } else { Outcome::Failed }),
        (_, None) => None,
    }
}

/// The exit codes of all main containers, if all have ended.
fn exit_codes(plan: &Plan, seen: &Seen) -> Option<Vec<i32>> {
    let code = |wanted: &Wanted| Some(seen.containers.get(&wanted.name)?.exit()?.code);
    plan.main.iter().map(code).collect()
}

/// Whether a run that began then was in the sandbox of now.
fn ran_here(seen: &Seen, started: Timestamp) -> bool {
    seen.sandbox_since.is_none_or(|since| started >= since)
}

/// Whether the init containers are behind us: a main container was started in this sandbox.
fn main_has_run(plan: &Plan, seen: &Seen) -> bool {
    let has_run = |wanted: &Wanted| match seen.containers.get(&wanted.name).map(|container| &container.run) {
        Some(Run::Starting | Run::Running { .. }) => true,
        Some(Run::Ended(exit)) => ran_here(seen, exit.started),
        _ => false,
    };
    plan.main.iter().any(has_run)
}

/// Whether all init containers have done their part, so that the main containers may start.
pub fn is_initialised(plan: &Plan, seen: &Seen) -> bool {
    let done = |wanted: &Wanted| {
        let container = seen.container(&wanted.name);
        if wanted.sidecar { is_started(&container) } else { is_done(seen, &container) }
    };
    main_has_run(plan, seen) || plan.init.iter().all(done)
}

fn is_started(container: &Container) -> bool {
    matches!(container.run, Run::Running { .. }) && container.started
}

fn is_done(seen: &Seen, container: &Container) -> bool {
    container.exit().is_some_and(|exit| exit.code == 0 && ran_here(seen, exit.started))
}

/// The pod goes on: whatever is missing is made, in order.
fn carry_on(plan: &Plan, seen: &Seen, now: Timestamp, decision: &mut Decision) {
    if seen.sandbox != Setup::Ready && seen.is_alive() {
        // They live in a sandbox that is lost; the next one is not theirs.
        stop_all(plan, seen, now, decision);
        return;
    }
    if !set_up(&seen.volumes, Action::PublishVolumes, now, decision)
        || !set_up(&seen.sandbox, Action::MakeSandbox, now, decision)
    {
        return;
    }
    let past_init = main_has_run(plan, seen);
    for wanted in &plan.init {
        let container = seen.container(&wanted.name);
        if wanted.sidecar {
            keep(wanted, &container, Restart::Always, plan, now, decision);
            if !past_init && !is_started(&container) {
                return;
            }
        } else if !past_init && !is_done(seen, &container) {
            let here = container.exit().is_none_or(|exit| ran_here(seen, exit.started));
            let container = if here { container } else { Container { run: Run::Never, ..container } };
            keep(wanted, &container, step_restart(plan.restart), plan, now, decision);
            return;
        }
    }
    for wanted in &plan.main {
        keep(wanted, &seen.container(&wanted.name), plan.restart, plan, now, decision);
    }
}

/// A step of the initialisation that has succeeded is over, whatever the pod's policy.
fn step_restart(restart: Restart) -> Restart {
    if restart == Restart::Never { Restart::Never } else { Restart::OnFailure }
}

/// Keeps one container running as its policy wants.
fn keep(
    wanted: &Wanted,
    container: &Container,
    restart: Restart,
    plan: &Plan,
    now: Timestamp,
    decision: &mut Decision,
) {
    let mut start_at = |time: Timestamp| {
        if now >= time {
            decision.actions.push(Action::Start { container: wanted.name.clone() });
        } else {
            decision.wake_at(time);
        }
    };
    match &container.run {
        Run::Never => start_at(now),
        Run::Refused(refusal) => start_at(refusal.until),
        Run::Ended(exit) => {
            let again = match restart {
                Restart::Always => true,
                Restart::OnFailure => exit.code != 0,
                Restart::Never => false,
            };
            if again {
                start_at(exit.finished + container.delay());
            }
        }
        Run::Running { .. } if container.unhealthy || container.stopping.is_some() => {
            let grace = wanted.grace_when_unhealthy.unwrap_or(plan.grace);
            stop(&wanted.name, container, grace, now, decision);
        }
        Run::Starting | Run::Running { .. } => {}
    }
}

/// Has something made. True: it is there.
fn set_up(setup: &Setup, make: Action, now: Timestamp, decision: &mut Decision) -> bool {
    match setup {
        Setup::Ready => return true,
        Setup::Working => {}
        Setup::Absent => decision.actions.push(make),
        Setup::Doubtful { until } if now >= *until => decision.actions.push(make),
        Setup::Doubtful { until } => decision.wake_at(*until),
    }
    false
}

/// Has something undone. True: there is nothing of it.
fn undo(setup: &Setup, undo: Action, now: Timestamp, decision: &mut Decision) -> bool {
    match setup {
        Setup::Absent => return true,
        Setup::Working => {}
        Setup::Ready => decision.actions.push(undo),
        Setup::Doubtful { until } if now >= *until => decision.actions.push(undo),
        Setup::Doubtful { until } => decision.wake_at(*until),
    }
    false
}

/// Stops everything: first the main and init containers, then the sidecars, the last of them first. True: nothing runs.
fn stop_all(plan: &Plan, seen: &Seen, now: Timestamp, decision: &mut Decision) -> bool {
    let mut alive = false;
    for wanted in plan.main.iter().chain(plan.steps()) {
        if let Some(container) = seen.containers.get(&wanted.name).filter(|container| container.is_alive()) {
            stop(&wanted.name, container, plan.grace, now, decision);
            alive = true;
        }
    }
    if alive {
        return false;
    }
    let last = plan.sidecars().rev().find_map(|wanted| {
        let container = seen.containers.get(&wanted.name)?;
        container.is_alive().then_some((wanted, container))
    });
    if let Some((wanted, container)) = last {
        stop(&wanted.name, container, plan.grace, now, decision);
    }
    last.is_none()
}

fn stop(name: &str, container: &Container, grace: Duration, now: Timestamp, decision: &mut Decision) {
    match (&container.run, &container.stopping) {
        // What is about to start is stopped once it has.
        (Run::Starting, _) => {}
        (_, None) => decision.actions.push(Action::Stop { container: name.to_owned(), grace }),
        (_, Some(stopping)) if !stopping.killed => {
            // Whoever is in more of a hurry wins.
            let kill_at = stopping.since + stopping.grace.min(grace);
            if now >= kill_at {
                decision.actions.push(Action::Kill { container: name.to_owned() });
            } else {
                decision.wake_at(kill_at);
            }
        }
        _ => {}
    }
}

/// Network and volumes go back once nothing runs. True: they have.
fn release(seen: &Seen, now: Timestamp, decision: &mut Decision) -> bool {
    // Both at once: neither needs the other, and a failure of one must not keep the other.
    let sandbox = undo(&seen.sandbox, Action::ReleaseSandbox, now, decision);
    let volumes = undo(&seen.volumes, Action::ReleaseVolumes, now, decision);
    sandbox && volumes
}

/// The pod is done, and stays to be looked at.
fn settle(plan: &Plan, seen: &Seen, now: Timestamp, decision: &mut Decision) {
    if stop_all(plan, seen, now, decision) {
        release(seen, now, decision);
    }
}

/// The pod is to leave the node.
fn end(plan: &Plan, seen: &Seen, now: Timestamp, decision: &mut Decision) {
    if !stop_all(plan, seen, now, decision) || !release(seen, now, decision) {
        return;
    }
    if undo(&seen.traces, Action::RemoveTraces, now, decision) {
        if plan.ending == Some(Ending::Gone) {
            decision.actions.push(Action::Forget);
        } else {
            set_up(&seen.farewell, Action::Finalise, now, decision);
        }
    }
}
