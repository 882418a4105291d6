//! Probes: whether a container has started, is alive, and is ready, asked of the container itself.
//!
//! One task a probe and run of a container. It tells the pod's worker when the answer changes, and decides nothing.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use tokio::sync::mpsc;

use crate::runtime::{ContainerId, Runtime};

mod check;
mod state;

pub use state::Health;
use state::Tracker;

/// Which question is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Startup,
    Liveness,
    Readiness,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }

    pub fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            Self::Startup => container.startup_probe.as_ref(),
            Self::Liveness => container.liveness_probe.as_ref(),
            Self::Readiness => container.readiness_probe.as_ref(),
        }
    }
}

/// What a probe has to tell.
#[derive(Debug)]
pub struct Told {
    pub container: ContainerId,
    pub kind: Kind,
    pub news: News,
}

#[derive(Debug)]
pub enum News {
    /// One failed; it may not count yet.
    Failed(String),
    Health(Health),
}

/// What is asked, of whom.
pub struct Asked {
    pub container: ContainerId,
    pub kind: Kind,
    pub probe: Probe,
    /// Where ports of names are looked up.
    pub spec: Container,
    /// The pod's address.
    pub address: Option<IpAddr>,
    pub runtime: Runtime,
}

/// Asks again and again, for as long as it is polled and somebody listens.
pub async fn ask(asked: Asked, tell: mpsc::UnboundedSender<Told>) {
    let probe = &asked.probe;
    let seconds = |count: Option<i32>, otherwise: u64| {
        Duration::from_secs(count.and_then(|count| u64::try_from(count).ok()).unwrap_or(otherwise))
    };
    let threshold = |count: Option<i32>, otherwise: u32| {
        count.and_then(|count| u32::try_from(count).ok()).unwrap_or(otherwise)
    };
    let timeout = seconds(probe.timeout_seconds, 1).max(Duration::from_secs(1));
    let period = seconds(probe.period_seconds, 10).max(Duration::from_secs(1));
    let mut tracker =
        Tracker::new(threshold(probe.success_threshold, 1), threshold(probe.failure_threshold, 3));
    let said = |news| Told { container: asked.container.clone(), kind: asked.kind, news };
    tokio::time::sleep(seconds(probe.initial_delay_seconds, 0)).await;
    let mut beat = tokio::time::interval(period);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        let result = match tokio::time::timeout(timeout, check::check(&asked, timeout)).await {
            Ok(result) => result,
            Err(_) => Err(format!("no answer within {} s", timeout.as_secs())),
        };
        let health = tracker.take(result.is_ok());
        let news = [result.err().map(News::Failed), health.map(News::Health)];
        for news in news.into_iter().flatten() {
            if tell.send(said(news)).is_err() {
                return;
            }
        }
        // A container that has started never has to start again.
        if asked.kind == Kind::Startup && health == Some(Health::Success) {
            return;
        }
    }
}

/// Whether this agent can ask such a probe.
pub fn is_supported(probe: &Probe) -> bool {
    probe.grpc.is_none()
}
