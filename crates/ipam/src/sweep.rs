//! What nobody holds any more becomes free: the addresses of pods and claims that are gone.
//!
//! The plugin frees what it gave; this is for what it could not: a node that is gone, a journal that was lost. Run by the
//! controller, on all networks at once. UIDs decide, never names. Addresses are read before pods and claims, so whoever has
//! an address that was read either was there then and is found, or is gone. Every write is conditional on what was read.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::SystemTime;

use api::godwit::AddressAllocation;
use api::ipam::IPAMClaim;
use api::names::labels::ADDRESS_OWNER;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PartialObjectMeta, PostParams, Preconditions};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use crate::allocations::{micro_time, rest};

const PAGE: u32 = 500;
/// On the mirror of a static pod: the UID that its node knows it by.
const STATIC_POD_UID: &str = "kubernetes.io/config.hash";

/// Who is there.
#[derive(Clone, Debug, Default)]
pub struct Living {
    /// UIDs of pods.
    pub pods: BTreeSet<String>,
    /// UIDs of claims.
    pub claims: BTreeSet<String>,
}

/// What is to be done with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has an owner, or rests.
    Keep,
    /// Its owner is gone: it rests from now on.
    Release,
    /// It has rested: its object is needless.
    Forget,
}

/// What a sweep did.
#[derive(Debug, Default)]
pub struct Swept {
    /// Names of objects whose owner was gone.
    pub released: Vec<String>,
    /// How many had rested and are as new.
    pub forgotten: usize,
    /// How many have an owner, or rest.
    pub kept: usize,
    /// How many somebody else changed meanwhile: they are looked at next time.
    pub outrun: usize,
}

/// Decides what is to be done with an address. An owner that is not said in full is kept: nobody knows who it is.
pub fn judge(allocation: &AddressAllocation, living: &Living, now: SystemTime) -> Verdict {
    let spec = &allocation.spec;
    let Some(owner) = &spec.owner else {
        let rested = rest(allocation).is_some_and(|rest| rest.until(now).is_none());
        return if rested { Verdict::Forget } else { Verdict::Keep };
    };
    let gone = match (&owner.pod, &owner.claim) {
        (Some(pod), None) => !pod.uid.is_empty() && !living.pods.contains(&pod.uid),
        (None, Some(claim)) => !claim.uid.is_empty() && !living.claims.contains(&claim.uid),
        _ => false,
    };
    if gone { Verdict::Release } else { Verdict::Keep }
}

/// Sweeps every network once.
pub async fn sweep(client: &Client) -> Result<Swept, kube::Error> {
    let allocations: Api<AddressAllocation> = Api::all(client.clone());
    let held = all(&allocations).await?;
    if held.is_empty() {
        return Ok(Swept::default());
    }
    let living = living(client).await?;
    let now = SystemTime::now();
    let mut swept = Swept::default();
    for allocation in held {
        let name = allocation.metadata.name.clone().unwrap_or_default();
        let written = match judge(&allocation, &living, now) {
            Verdict::Keep => {
                swept.kept += 1;
                continue;
            }
            Verdict::Release => {
                let written = release(&allocations, &name, allocation, now).await;
                written.map(|()| swept.released.push(name))
            }
            Verdict::Forget => forget(&allocations, &name, &allocation).await.map(|()| swept.forgotten += 1),
        };
        match written {
            Ok(()) => {}
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => swept.outrun += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(swept)
}

/// Lets go of everything that a claim holds: it rests from now on. Names of what it was.
pub async fn release_claim(client: &Client, uid: &str) -> Result<Vec<String>, kube::Error> {
    let allocations: Api<AddressAllocation> = Api::all(client.clone());
    let parameters = ListParams::default().labels(&format!("{ADDRESS_OWNER}={uid}"));
    let found = match allocations.list(&parameters).await {
        Ok(found) => found.items,
        // Somebody else gives addresses here.
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let holds = |allocation: &AddressAllocation| {
        let owner = allocation.spec.owner.as_ref().and_then(|owner| owner.claim.as_ref());
        owner.is_some_and(|claim| claim.uid == uid)
    };
    let mut released = Vec::new();
    for allocation in found.into_iter().filter(holds) {
        let name = allocation.metadata.name.clone().unwrap_or_default();
        let address = allocation.spec.address.clone();
        release(&allocations, &name, allocation, SystemTime::now()).await?;
        released.push(address);
    }
    Ok(released)
}

async fn release(
    allocations: &Api<AddressAllocation>,
    name: &str,
    mut allocation: AddressAllocation,
    now: SystemTime,
) -> Result<(), kube::Error> {
    allocation.spec.owner = None;
    allocation.spec.released_at = Some(micro_time(now));
    allocation.metadata.managed_fields = None;
    if let Some(labels) = &mut allocation.metadata.labels {
        labels.remove(ADDRESS_OWNER);
    }
    allocations.replace(name, &PostParams::default(), &allocation).await.map(drop)
}

async fn forget(
    allocations: &Api<AddressAllocation>,
    name: &str,
    allocation: &AddressAllocation,
) -> Result<(), kube::Error> {
    let preconditions = Preconditions {
        uid: allocation.metadata.uid.clone(),
        resource_version: allocation.metadata.resource_version.clone(),
    };
    allocations.delete(name, &DeleteParams::default().preconditions(preconditions)).await.map(drop)
}

async fn living(client: &Client) -> Result<Living, kube::Error> {
    let mut living = Living::default();
    for pod in metadata(&Api::<Pod>::all(client.clone())).await? {
        living.pods.extend(pod.metadata.uid);
        living.pods.extend(pod.metadata.annotations.and_then(|mut all| all.remove(STATIC_POD_UID)));
    }
    let claims = metadata(&Api::<IPAMClaim>::all(client.clone())).await?;
    living.claims.extend(claims.into_iter().filter_map(|claim| claim.metadata.uid));
    Ok(living)
}

async fn all<K>(api: &Api<K>) -> Result<Vec<K>, kube::Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut found = Vec::new();
    let mut parameters = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&parameters).await?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(found),
        }
    }
}

/// Names and UIDs only: what pods are is of no interest, and there may be many.
async fn metadata<K>(api: &Api<K>) -> Result<Vec<PartialObjectMeta<K>>, kube::Error>
where
    K: Clone + Debug + DeserializeOwned + Resource,
{
    let mut found = Vec::new();
    let mut parameters = ListParams::default().limit(PAGE);
    loop {
        let page = api.list_metadata(&parameters).await?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(found),
        }
    }
}

#[cfg(test)]
mod tests;
