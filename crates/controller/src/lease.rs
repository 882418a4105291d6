//! One leader among the replicas, by a `Lease`.
//!
//! Whoever holds the lease renews it; whoever does not waits until it has not been renewed for as long as it says. Time is only ever
//! measured on one's own clock, from the moment that a change was seen: clocks may differ. A leader that cannot renew stops working before
//! anybody else may begin.

use std::time::Duration;

use api::names::objects;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt as _};
use tokio::time::{Instant, sleep};

use crate::Error;
use crate::error::describe;

/// How long things take. Every duration is shorter than the one before.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How long others wait before they take a lease that is not renewed.
    pub lease: Duration,
    /// How long a leader works without having renewed.
    pub deadline: Duration,
    /// How often a leader renews and others look.
    pub period: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            deadline: Duration::from_secs(10),
            period: Duration::from_secs(2),
        }
    }
}

/// Works while leading, again and again, until `stop` resolves; then gives the lease back.
pub async fn lead<W: Future<Output = ()>>(
    client: Client,
    namespace: &str,
    identity: &str,
    timing: Timing,
    work: impl Fn() -> W,
    stop: impl Future<Output = ()>,
) {
    let mut candidate = Candidate {
        leases: Api::namespaced(client, namespace),
        identity: identity.to_owned(),
        timing,
        seen: None,
    };
    let campaign = async {
        loop {
            candidate.win().await;
            tracing::info!(identity, "leading");
            tokio::select! {
                () = work() => {}
                () = candidate.hold() => tracing::warn!(identity, "the lease was lost; another may lead now"),
            }
        }
    };
    tokio::select! {
        () = campaign => {}
        () = stop => {}
    }
    candidate.give_back().await;
}

struct Candidate {
    leases: Api<Lease>,
    identity: String,
    timing: Timing,
    /// The version of the lease that was last seen, and since when.
    seen: Option<(String, Instant)>,
}

/// What is to be done about a lease.
#[derive(Debug, PartialEq, Eq)]
enum Claim {
    Renew,
    Take,
    Wait,
}

/// Decides. `unchanged`: how long the lease has been as it is.
fn claim(lease: &LeaseSpec, identity: &str, unchanged: Duration) -> Claim {
    let holder = lease.holder_identity.as_deref().unwrap_or_default();
    let duration =
        lease.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default();
    if holder == identity {
        Claim::Renew
    } else if holder.is_empty() || unchanged >= Duration::from_secs(duration) {
        Claim::Take
    } else {
        Claim::Wait
    }
}

impl Candidate {
    /// Returns when the lease is held.
    async fn win(&mut self) {
        loop {
            match self.attempt().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) if error.is_conflict() => {}
                Err(error) => tracing::warn!("{}", error.explain()),
            }
            sleep(self.timing.period).await;
        }
    }

    /// Returns when the lease may not be held any more.
    async fn hold(&mut self) {
        let mut renewed = Instant::now();
        loop {
            sleep(self.timing.period).await;
            let left = self.timing.deadline.saturating_sub(renewed.elapsed());
            let began = Instant::now();
            match tokio::time::timeout(left, self.attempt()).await {
                Ok(Ok(true)) => renewed = began,
                Ok(Err(error)) if renewed.elapsed() < self.timing.deadline => {
                    tracing::warn!("{}", error.explain());
                }
                Ok(Ok(false) | Err(_)) | Err(_) => return,
            }
        }
    }

    /// Takes or renews the lease if it may be; says whether it is held.
    async fn attempt(&mut self) -> Result<bool, Error> {
        let failed = |operation| Error::api(operation, format!("Lease {}", objects::CONTROLLER));
        let Some(mut lease) = self.leases.get_opt(objects::CONTROLLER).await.map_err(failed("reading"))?
        else {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(objects::CONTROLLER.into()), ..ObjectMeta::default() },
                spec: Some(self.record(None, true)),
            };
            return match self.leases.create(&PostParams::default(), &lease).await {
                Ok(_) => Ok(true),
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
                Err(source) => Err(Error::api("making", describe(&lease))(source)),
            };
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let unchanged = self.unchanged_for(&lease);
        let claim = claim(&spec, &self.identity, unchanged);
        if claim == Claim::Wait {
            return Ok(false);
        }
        lease.spec = Some(self.record(Some(&spec), claim == Claim::Take));
        // The version that was read is in it: of two who take the lease, one fails.
        self.leases
            .replace(objects::CONTROLLER, &PostParams::default(), &lease)
            .await
            .map_err(failed("renewing"))?;
        Ok(true)
    }

    fn unchanged_for(&mut self, lease: &Lease) -> Duration {
        let version = lease.resource_version().unwrap_or_default();
        match &self.seen {
            Some((seen, since)) if *seen == version => since.elapsed(),
            _ => {
                self.seen = Some((version, Instant::now()));
                Duration::ZERO
            }
        }
    }

    fn record(&self, previous: Option<&LeaseSpec>, taken: bool) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let previous = previous.cloned().unwrap_or_default();
        let transitions = previous.lease_transitions.unwrap_or_default();
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            // Rounded up: a lease of no seconds would be anybody's.
            lease_duration_seconds: i32::try_from(self.timing.lease.as_millis().div_ceil(1000)).ok(),
            acquire_time: if taken { Some(now.clone()) } else { previous.acquire_time },
            renew_time: Some(now),
            lease_transitions: Some(if taken { transitions.saturating_add(1) } else { transitions }),
            ..LeaseSpec::default()
        }
    }

    /// Lets another lead at once. Failing to is no harm: the lease runs out.
    async fn give_back(&self) {
        let Ok(Some(mut lease)) = self.leases.get_opt(objects::CONTROLLER).await else { return };
        let Some(spec) = lease.spec.as_mut() else { return };
        if spec.holder_identity.as_ref() != Some(&self.identity) {
            return;
        }
        spec.holder_identity = None;
        if let Err(error) = self.leases.replace(objects::CONTROLLER, &PostParams::default(), &lease).await {
            tracing::debug!(%error, "the lease was not given back");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_taken_only_when_nobody_holds_it() {
        let held = |holder: Option<&str>| LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        };
        for (holder, unchanged, expected) in [
            (Some("me"), 0, Claim::Renew),
            (Some("me"), 60, Claim::Renew),
            (Some("other"), 0, Claim::Wait),
            (Some("other"), 14, Claim::Wait),
            (Some("other"), 15, Claim::Take),
            (Some(""), 0, Claim::Take),
            (None, 0, Claim::Take),
        ] {
            assert_eq!(
                claim(&held(holder), "me", Duration::from_secs(unchanged)),
                expected,
                "{holder:?} {unchanged}"
            );
        }
    }
}
