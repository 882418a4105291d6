//! What there is of a pod on this node, as its worker knows it. Nothing here looks or acts.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::runtime::Exit;

/// A run that was longer than this clears what went before.
const LONG_RUN: Duration = Duration::from_mins(10);
const FIRST_DELAY: Duration = Duration::from_secs(10);
const LONGEST_DELAY: Duration = Duration::from_mins(5);

/// What there is of a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    pub volumes: Setup,
    /// The network namespace and what is attached to it.
    pub sandbox: Setup,
    /// When the sandbox was made: init containers that ran before it ran for another.
    pub sandbox_since: Option<Timestamp>,
    pub containers: BTreeMap<String, Container>,
    /// Traces of containers and the pod's own directory.
    pub traces: Setup,
    /// The API was told that nothing is left.
    pub farewell: Setup,
}

/// Something that is made and undone again.
#[derive(Debug, Clone, PartialEq)]
pub enum Setup {
    /// There is nothing of it.
    Absent,
    /// It is being made, or undone.
    Working,
    Ready,
    /// It failed, or nobody knows: there may be something of it. It is tried again, either way, at this time.
    Doubtful {
        until: Timestamp,
    },
}

/// What there is of one container.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Container {
    /// Number of the latest attempt; none: there was none yet.
    pub attempt: Option<u32>,
    pub run: Run,
    /// How the attempt before the latest ended.
    pub previous: Option<Exit>,
    /// Ends in a row that came soon after the start.
    pub streak: u32,
    /// Starts in a row that failed.
    pub refused: u32,
    /// Whether its startup probe has passed, or there is none.
    pub started: bool,
    pub ready: bool,
    /// A probe found it dead.
    pub unhealthy: bool,
    pub stopping: Option<Stopping>,
}

/// The latest attempt.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Run {
    #[default]
    Never,
    Starting,
    Running {
        since: Timestamp,
    },
    Ended(Exit),
    /// It could not be started.
    Refused(Refusal),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// As `kubectl get pod` shows it.
    pub reason: &'static str,
    pub message: String,
    pub until: Timestamp,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Stopping {
    pub since: Timestamp,
    pub grace: Duration,
    pub killed: bool,
}

impl Seen {
    /// A pod that was never seen before: whether anything is left of an earlier life is yet to be found out.
    pub fn new(now: Timestamp) -> Self {
        let doubtful = Setup::Doubtful { until: now };
        Self {
            volumes: doubtful.clone(),
            sandbox: doubtful.clone(),
            sandbox_since: None,
            containers: BTreeMap::new(),
            traces: doubtful,
            farewell: Setup::Absent,
        }
    }

    pub fn container(&self, name: &str) -> Container {
        self.containers.get(name).cloned().unwrap_or_default()
    }

    pub fn is_alive(&self) -> bool {
        self.containers.values().any(Container::is_alive)
    }
}

impl Container {
    pub fn is_alive(&self) -> bool {
        matches!(self.run, Run::Starting | Run::Running { .. })
    }

    pub fn exit(&self) -> Option<&Exit> {
        if let Run::Ended(exit) = &self.run { Some(exit) } else { None }
    }

    /// The number of the next attempt: one that did not start is tried again under its own.
    pub fn next_attempt(&self) -> u32 {
        match (self.attempt, &self.run) {
            (Some(attempt), Run::Ended(_)) => attempt + 1,
            (attempt, _) => attempt.unwrap_or_default(),
        }
    }

    /// Its next attempt begins.
    pub fn begin(&mut self) {
        let attempt = self.next_attempt();
        if let Run::Ended(exit) = std::mem::replace(&mut self.run, Run::Starting) {
            self.previous = Some(exit);
        }
        self.attempt = Some(attempt);
    }

    /// It ended: from here on nothing of that run counts but how it ended.
    pub fn end(&mut self, exit: Exit) {
        let ran = exit.finished.duration_since(exit.started).unsigned_abs();
        self.streak = if ran >= LONG_RUN { 1 } else { self.streak.saturating_add(1) };
        (self.started, self.ready, self.unhealthy, self.stopping) = (false, false, false, None);
        self.run = Run::Ended(exit);
    }

    /// How long it waits after its end before it is started again: the first time not at all.
    pub fn delay(&self) -> Duration {
        match self.streak {
            0 | 1 => Duration::ZERO,
            more => doubled(FIRST_DELAY, more - 2, LONGEST_DELAY),
        }
    }
}

/// `first`, doubled so often, up to `longest`.
pub fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    first.saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX)).min(longest)
}
