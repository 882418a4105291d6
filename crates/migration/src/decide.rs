//! The phases of a move, and what each step does.
//!
//! ```text
//!             turn to start      target pod runs   turn to hand over      target listens     source begins     guest runs there
//!   Pending ─────────────► Scheduling ─────► Scheduled ─────► PreparingTarget ─────► TargetReady ─────► Running ─────► Succeeded
//!      │ 24 h                 │ 5 or 15 min     │ 1 h              │ 5 min              │ 2 min            │ by size
//!      └──── target pod ends, if there is one ──┴──────────────────┤                    └── ask to abort ──┤
//!                                                                  └─────────────── close the record ──────┴─────► Failed
//! ```
//!
//! Until the target has said where it listens, nothing can have begun, and the controller may end the move alone. From then on
//! the source may be sending: the move is then asked to abort, and the source's word is waited for. Only when that does not
//! come is the record closed without it. A guest that has arrived stands still at the target until it is known to have left the source: the source
//! says so, or its pod has ended without a word, and then nothing can run there. Once the guest was seen running at the target nothing
//! turns back. Phases only go forward;
//! every phase but the last two has a deadline. The guest's home changes in one effect, [`Effect::SwitchOver`].

use std::time::Duration;

use api::kubevirt::{AbortStatus, MigrationMode, MigrationPhase, MigrationState};
use jiff::Timestamp;

use crate::queue::{Turn, Wait};
use crate::{Deadlines, over};

pub mod texts;

/// What is known of a move.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// None: nobody has looked at it yet.
    pub phase: Option<MigrationPhase>,
    /// When that phase began.
    pub since: Timestamp,
    /// Somebody deleted the migration: it is to be given up.
    pub deleted: bool,
    pub instance: Instance,
    /// Another move has this VM.
    pub has_rival: bool,
    pub target: Target,
    /// The pod that the guest leaves, or has left, still runs.
    pub source_lives: bool,
    pub record: Record<'a>,
    /// Since when the source is asked to abort.
    pub abort_since: Option<Timestamp>,
    /// Whether it may make its target pod.
    pub start: Turn,
    /// Whether it may be given to the handlers.
    pub hand_over: Turn,
    pub deadlines: Deadlines,
    /// Why the installation is not ready: a handler that does nothing may lack what it says there.
    pub unready: Option<&'a str>,
}

/// The VM that is to move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instance {
    Gone,
    Ended,
    /// Its guest does not run yet.
    Starting,
    /// It cannot move: the reason and the message of its condition.
    Bound {
        reason: String,
        message: String,
    },
    /// Its guest runs on this node.
    Runs {
        node: String,
    },
}

/// The pod that the guest is to move to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    None,
    /// It has no node, or its container has not started.
    Waiting {
        /// What the scheduler says, if no node takes it.
        unschedulable: Option<String>,
    },
    Runs {
        node: String,
        /// It says since when the guest runs in it.
        marked: bool,
    },
    /// It is told to end.
    Ending,
    Ended,
}

impl Target {
    fn is_lost(&self) -> bool {
        matches!(self, Self::None | Self::Ending | Self::Ended)
    }

    fn lives(&self) -> bool {
        matches!(self, Self::Waiting { .. } | Self::Runs { .. })
    }
}

/// What the instance's status says of the move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Record<'a> {
    /// Nothing, or something of an earlier move that is over.
    None,
    /// Another move is under way.
    Other,
    Ours(&'a MigrationState),
}

/// One thing to do. Doing it twice is doing it once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    CreateTarget,
    /// Writes the record and tells the target's handler.
    HandOver,
    /// Asks the source to give up, for this reason.
    RequestAbort(String),
    /// Writes that the move is over and came to nothing, for this reason.
    Close(String),
    /// Writes that the guest has left its source, which cannot say so any more.
    Complete,
    /// Lets network providers know that the guest runs in the target pod.
    MarkTarget,
    /// The instance's home is the target from now on.
    SwitchOver,
    /// The target's handler has no part in the instance any more.
    Release,
    DeleteTarget,
    DeleteSource,
    /// What was lent to this move alone is taken back.
    Forget,
    RemoveFinalizer,
}

/// What people are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing new.
    GoesOn,
    Waits(Wait),
    Succeeded,
    /// It came to nothing, for this reason.
    Failed(String),
    /// It was given up because somebody asked for it.
    Aborted(String),
}

/// What is to be done: the effects in their order, then the phase is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub phase: MigrationPhase,
    pub effects: Vec<Effect>,
    pub outcome: Outcome,
    /// When to look again though nothing changed: the next deadline.
    pub again: Option<Duration>,
}

impl Decision {
    fn enter(phase: MigrationPhase, effects: Vec<Effect>) -> Self {
        Self { phase, effects, outcome: Outcome::GoesOn, again: None }
    }

    fn stay(phase: MigrationPhase, outcome: Outcome, again: Option<Duration>) -> Self {
        Self { phase, effects: Vec::new(), outcome, again }
    }
}

/// Decides. Deciding again after everything was done decides on nothing more.
pub fn decide(facts: &Facts<'_>, now: Timestamp) -> Decision {
    use MigrationPhase::{
        Failed, Pending, PreparingTarget, Running, Scheduled, Scheduling, Succeeded, Synchronizing,
        TargetReady, WaitingForSync,
    };
    let step = Step { facts, now };
    match facts.phase {
        Some(Succeeded | Failed) => return step.settle(),
        // The gateway's.
        Some(phase @ (WaitingForSync | Synchronizing)) => {
            return Decision::stay(phase, Outcome::GoesOn, None);
        }
        _ => {}
    }
    if let Some(decision) = step.ended_elsewhere() {
        return decision;
    }
    match facts.phase {
        None => step.accept(),
        Some(Pending) => step.queue(),
        Some(Scheduling) => step.place(),
        Some(Scheduled) => step.hand_over(),
        Some(PreparingTarget) => step.prepare(),
        Some(TargetReady) => step.begin(),
        Some(Running) => step.follow(),
        Some(Succeeded | Failed | WaitingForSync | Synchronizing) => step.settle(),
    }
}

struct Step<'a> {
    facts: &'a Facts<'a>,
    now: Timestamp,
}

impl Step<'_> {
    fn phase(&self) -> MigrationPhase {
        self.facts.phase.unwrap_or(MigrationPhase::Pending)
    }

    fn record(&self) -> Option<&MigrationState> {
        match self.facts.record {
            Record::Ours(state) => Some(state),
            Record::None | Record::Other => None,
        }
    }

    /// What ends a move in every phase: the VM ended, the record is over or lost, somebody asks for it.
    fn ended_elsewhere(&self) -> Option<Decision> {
        let facts = self.facts;
        match facts.instance {
            Instance::Gone => return Some(self.fail(texts::NO_INSTANCE.into(), false)),
            Instance::Ended => return Some(self.fail(texts::INSTANCE_ENDED.into(), false)),
            _ => {}
        }
        let handed_over = matches!(
            facts.phase,
            Some(MigrationPhase::PreparingTarget | MigrationPhase::TargetReady | MigrationPhase::Running)
        );
        match facts.record {
            Record::Ours(state) if over(state) => return Some(self.failed_at_source(state)),
            Record::None if handed_over => return Some(self.fail(texts::RECORD_CLEARED.into(), false)),
            Record::Other if handed_over => return Some(self.fail(texts::RECORD_TAKEN.into(), false)),
            _ => {}
        }
        // The guest is there: it is too late for everything that follows, and all that is left is to catch up.
        if self
            .record()
            .is_some_and(|state| state.completed || seen_at_target(state) || self.is_orphan(state))
        {
            return next(self.facts.phase).map(|phase| Decision::enter(phase, Vec::new()));
        }
        if facts.deleted {
            return Some(self.give_up(texts::ABORTED.into()));
        }
        if facts.abort_since.is_some() {
            let why = self.record().and_then(|state| state.failure_reason.clone());
            return Some(self.give_up(why.unwrap_or_else(|| texts::ABORTED.into())));
        }
        let has_target = !matches!(facts.phase, None | Some(MigrationPhase::Pending));
        if has_target && facts.target.is_lost() {
            let why = if facts.target == Target::None { texts::TARGET_GONE } else { texts::TARGET_ENDED };
            return Some(self.give_up(why.into()));
        }
        None
    }

    fn accept(&self) -> Decision {
        if self.facts.has_rival {
            return self.fail(texts::RIVAL.into(), false);
        }
        Decision::enter(MigrationPhase::Pending, Vec::new())
    }

    fn queue(&self) -> Decision {
        let facts = self.facts;
        if facts.has_rival {
            return self.fail(texts::RIVAL.into(), false);
        }
        if let Instance::Bound { reason, message } = &facts.instance {
            return self.fail(texts::not_migratable(reason, message), false);
        }
        if facts.target.lives() {
            return Decision::enter(MigrationPhase::Scheduling, Vec::new());
        }
        match &facts.start {
            Turn::Go => Decision::enter(MigrationPhase::Scheduling, vec![Effect::CreateTarget]),
            Turn::Wait(wait) => self.wait(facts.deadlines.queue, Outcome::Waits(wait.clone()), || {
                format!("its turn did not come within {}: {}", span(facts.deadlines.queue), wait.message)
            }),
        }
    }

    fn place(&self) -> Decision {
        let deadlines = &self.facts.deadlines;
        match &self.facts.target {
            Target::Runs { node, .. } if self.source_node() == Some(node.as_str()) => {
                self.fail(format!("the target pod was put on node {node}, which the VM is to leave"), false)
            }
            Target::Runs { .. } => Decision::enter(MigrationPhase::Scheduled, Vec::new()),
            Target::Waiting { unschedulable: Some(why) } => {
                let limit = deadlines.unschedulable.min(deadlines.starting);
                self.wait(limit, Outcome::GoesOn, || {
                    format!("no node took the target pod within {}: {why}", span(limit))
                })
            }
            _ => self.wait(deadlines.starting, Outcome::GoesOn, || {
                format!("the target pod did not start within {}", span(deadlines.starting))
            }),
        }
    }

    fn hand_over(&self) -> Decision {
        let facts = self.facts;
        // Written already, by one who was killed before he said so.
        let go = self.record().is_some() || facts.hand_over == Turn::Go;
        match (&facts.record, &facts.hand_over) {
            (Record::Other, _) => self.fail(texts::RIVAL.into(), false),
            (_, Turn::Wait(wait)) if !go => {
                self.wait(facts.deadlines.hand_over, Outcome::Waits(wait.clone()), || {
                    let limit = span(facts.deadlines.hand_over);
                    format!("there was no room at the target's node within {limit}: {}", wait.message)
                })
            }
            _ => Decision::enter(MigrationPhase::PreparingTarget, vec![Effect::HandOver]),
        }
    }

    fn prepare(&self) -> Decision {
        let listens = |state: &MigrationState| state.target_node_address.is_some();
        if self.record().is_some_and(listens) {
            return Decision::enter(MigrationPhase::TargetReady, Vec::new());
        }
        let limit = self.facts.deadlines.preparing;
        let node = self.record().and_then(|state| state.target_node.clone()).unwrap_or_default();
        self.wait_for_handler(limit, &format!("the handler of node {node} did not get the target ready"))
    }

    fn begin(&self) -> Decision {
        if self.record().is_some_and(|state| state.start_timestamp.is_some() || state.completed) {
            return Decision::enter(MigrationPhase::Running, Vec::new());
        }
        let limit = self.facts.deadlines.beginning;
        let node = self.source_node().unwrap_or_default();
        self.wait_for_handler(limit, &format!("the handler of node {node} did not begin to send"))
    }

    fn follow(&self) -> Decision {
        let (facts, deadlines) = (self.facts, &self.facts.deadlines);
        let Some(state) = self.record() else { return self.settle() };
        let begun = state.start_timestamp.as_ref().map_or(facts.since, |time| time.0);
        let Some(seen) = state.target_node_domain_ready_timestamp.as_ref().map(|time| time.0) else {
            return if state.completed {
                self.await_arrival(state)
            } else if self.is_orphan(state) {
                let mut decision =
                    Decision::stay(MigrationPhase::Running, Outcome::GoesOn, Some(deadlines.arriving));
                decision.effects.push(Effect::Complete);
                decision
            } else {
                self.wait_since(begun, deadlines.moving, Outcome::GoesOn, || {
                    format!("the transfer did not end within {}", span(deadlines.moving))
                })
            };
        };
        let marked = !matches!(facts.target, Target::Runs { marked: false, .. });
        let effects = if marked { Vec::new() } else { vec![Effect::MarkTarget] };
        // Behind post-copy there is still memory at the source, and the source alone knows when it is through.
        let word = match state.mode {
            Some(MigrationMode::PostCopy) => self.left(begun, deadlines.moving),
            _ => self.left(seen, deadlines.source_word),
        };
        match word.filter(|_| !state.completed) {
            Some(left) => {
                Decision { effects, ..Decision::stay(MigrationPhase::Running, Outcome::GoesOn, Some(left)) }
            }
            None => self.succeed(effects),
        }
    }

    /// All of the guest is at the target, and nothing is left at the source that could run it or say that it is gone.
    fn is_orphan(&self, state: &MigrationState) -> bool {
        let source_ended = state.source_pod.is_some() && !self.facts.source_lives;
        state.target_node_domain_detected && source_ended && self.facts.target.lives()
    }

    /// The source says that the guest has left, and nobody has seen it arrive. It is certainly not at the source any more, so its
    /// home is the target, whatever runs there; who keeps it there will say.
    fn await_arrival(&self, state: &MigrationState) -> Decision {
        let ended = state.end_timestamp.as_ref().map_or(self.facts.since, |time| time.0);
        let limit = self.facts.deadlines.arriving;
        match self.left(ended, limit) {
            Some(left) => Decision::stay(MigrationPhase::Running, Outcome::GoesOn, Some(left)),
            None => Decision {
                phase: MigrationPhase::Failed,
                outcome: Outcome::Failed(format!(
                    "the guest left its node and was not seen at the target within {}",
                    span(limit)
                )),
                ..self.succeed(Vec::new())
            },
        }
    }

    fn succeed(&self, mut effects: Vec<Effect>) -> Decision {
        effects.extend([Effect::SwitchOver, Effect::Forget]);
        Decision {
            phase: MigrationPhase::Succeeded,
            effects,
            outcome: Outcome::Succeeded,
            again: Some(self.facts.deadlines.leaving),
        }
    }

    /// The source said that it failed, or that it was given up.
    fn failed_at_source(&self, state: &MigrationState) -> Decision {
        let why = state.failure_reason.clone().unwrap_or_else(|| texts::SOURCE_FAILED.into());
        let mut decision = self.fail(why.clone(), false);
        if state.abort_status == Some(AbortStatus::Succeeded) || self.facts.deleted {
            decision.outcome = Outcome::Aborted(why);
        }
        decision
    }

    /// Gives up, in the way that is safe at this moment.
    fn give_up(&self, why: String) -> Decision {
        let Some(state) = self.record() else { return self.failed_or_aborted(why, false) };
        if state.target_node_address.is_none() {
            return self.failed_or_aborted(why, true);
        }
        let Some(since) = self.facts.abort_since.filter(|_| state.abort_requested) else {
            let mut decision =
                Decision::stay(self.phase(), Outcome::GoesOn, Some(self.facts.deadlines.abort));
            decision.effects.push(Effect::RequestAbort(why));
            return decision;
        };
        match self.left(since, self.facts.deadlines.abort) {
            Some(left) => Decision::stay(self.phase(), Outcome::GoesOn, Some(left)),
            None => self.failed_or_aborted(why, true),
        }
    }

    fn failed_or_aborted(&self, why: String, close: bool) -> Decision {
        let mut decision = self.fail(why.clone(), close);
        if self.facts.deleted {
            decision.outcome = Outcome::Aborted(why);
        }
        decision
    }

    /// The move is over, and the guest is where it was. `close`: the record does not say so yet.
    fn fail(&self, why: String, close: bool) -> Decision {
        let mut effects = Vec::new();
        if close {
            effects.push(Effect::Close(why.clone()));
        }
        if self.record().is_some() {
            effects.push(Effect::Release);
        }
        if self.facts.target.lives() {
            effects.push(Effect::DeleteTarget);
        }
        effects.push(Effect::Forget);
        Decision { phase: MigrationPhase::Failed, effects, outcome: Outcome::Failed(why), again: None }
    }

    /// It is over: what is left of it goes.
    fn settle(&self) -> Decision {
        let facts = self.facts;
        let mut decision = Decision::stay(self.phase(), Outcome::GoesOn, None);
        match decision.phase {
            MigrationPhase::Failed if facts.target.lives() => decision.effects.push(Effect::DeleteTarget),
            MigrationPhase::Succeeded if facts.source_lives => {
                match self.left(facts.since, facts.deadlines.leaving) {
                    Some(left) if !facts.deleted => decision.again = Some(left),
                    _ => decision.effects.push(Effect::DeleteSource),
                }
            }
            _ => {}
        }
        if facts.deleted {
            decision.effects.push(Effect::RemoveFinalizer);
        }
        decision
    }

    /// Waits for what a handler does, and says when that takes too long what the installation lacks.
    fn wait_for_handler(&self, limit: Duration, failed: &str) -> Decision {
        let cause = || self.facts.unready.map(|cause| format!(": {cause}")).unwrap_or_default();
        self.wait(limit, Outcome::GoesOn, || format!("{failed} within {}{}", span(limit), cause()))
    }

    /// Waits in this phase until its deadline is over, then gives up.
    fn wait(&self, limit: Duration, outcome: Outcome, why: impl FnOnce() -> String) -> Decision {
        self.wait_since(self.facts.since, limit, outcome, why)
    }

    fn wait_since(
        &self,
        since: Timestamp,
        limit: Duration,
        outcome: Outcome,
        why: impl FnOnce() -> String,
    ) -> Decision {
        match self.left(since, limit) {
            Some(left) => Decision::stay(self.phase(), outcome, Some(left)),
            None => self.give_up(why()),
        }
    }

    /// What is left of a span that began then; none: it is over.
    fn left(&self, since: Timestamp, span: Duration) -> Option<Duration> {
        let passed = Duration::try_from(self.now.duration_since(since)).unwrap_or_default();
        span.checked_sub(passed).filter(|left| !left.is_zero())
    }

    fn source_node(&self) -> Option<&str> {
        match &self.facts.instance {
            Instance::Runs { node } => Some(node),
            _ => None,
        }
    }
}

/// The phase that follows, up to the one in which guests arrive.
fn next(phase: Option<MigrationPhase>) -> Option<MigrationPhase> {
    use MigrationPhase::{Pending, PreparingTarget, Running, Scheduled, Scheduling, TargetReady};
    let way = [Pending, Scheduling, Scheduled, PreparingTarget, TargetReady, Running];
    let passed = phase.map_or(0, |phase| way.iter().take_while(|other| **other != phase).count() + 1);
    way.get(passed).copied()
}

fn seen_at_target(state: &MigrationState) -> bool {
    state.target_node_domain_ready_timestamp.is_some()
}

/// A span for people: seconds up to two minutes, then minutes, then hours.
fn span(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..120 => format!("{seconds} seconds"),
        seconds @ 120..7200 => format!("{} minutes", seconds / 60),
        seconds => format!("{} hours", seconds / 3600),
    }
}

#[cfg(test)]
mod tests;
