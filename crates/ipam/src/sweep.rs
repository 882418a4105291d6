//! What nobody holds any more becomes free: the addresses of pods and claims that are gone.
//!
//! The plugin frees what it gave; this is for what it could not: a node that is gone, a journal that was lost. Run by the
//! controller, on all networks at once. UIDs decide who is gone. A pod refers to its claim by name, and may use its addresses when
//! the claim was forced away: what a claim had that is gone is kept as long as a pod that has not ended refers to one of its name,
//! be it a later one. Addresses are read before pods and claims, so whoever has an address that was read either was there then
//! and is found, or is gone. Every write is conditional on what was read.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::SystemTime;

use api::godwit::{AddressAllocation, ClaimReference};
use api::ipam::IPAMClaim;
use api::multus::{parse_default_network, parse_networks};
use api::names::annotations;
use api::names::labels::ADDRESS_OWNER;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, ListParams, PartialObjectMeta, PostParams, Preconditions};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use crate::allocations::{micro_time, rest};

const PAGE: u32 = 500;
/// On the mirror of a static pod: the UID that its node knows it by.
const STATIC_POD_UID: &str = "kubernetes.io/config.hash";
/// Pods that may still use an address.
const NOT_ENDED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Who is there.
#[derive(Clone, Debug, Default)]
pub struct Living {
    /// UIDs of pods.
    pub pods: BTreeSet<String>,
    /// UIDs of claims.
    pub claims: BTreeSet<String>,
    /// Namespaces and names of the claims that pods refer to which have not ended.
    pub referred: BTreeSet<(String, String)>,
}

impl Living {
    fn has_claim(&self, claim: &ClaimReference) -> bool {
        self.claims.contains(&claim.uid)
            || self.referred.contains(&(claim.namespace.clone(), claim.name.clone()))
    }
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
        (None, Some(claim)) => !claim.uid.is_empty() && !living.has_claim(claim),
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
    let pods: Api<Pod> = Api::all(client.clone());
    for pod in metadata(&pods, ListParams::default()).await? {
        living.pods.extend(pod.metadata.uid);
        living.pods.extend(pod.metadata.annotations.and_then(|mut all| all.remove(STATIC_POD_UID)));
    }
    // The metadata of a pod does not say whether it has ended; the API server can be asked for those that have not.
    for pod in metadata(&pods, ListParams::default().fields(NOT_ENDED)).await? {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        living.referred.extend(referred_to(&pod.metadata).map(|claim| (namespace.clone(), claim)));
    }
    let claims = metadata(&Api::<IPAMClaim>::all(client.clone()), ListParams::default()).await?;
    living.claims.extend(claims.into_iter().filter_map(|claim| claim.metadata.uid));
    Ok(living)
}

/// Names of the claims that a pod refers to, in either of the two ways that the plugin hears of.
fn referred_to(pod: &ObjectMeta) -> impl Iterator<Item = String> {
    let annotation = |key| pod.annotations.as_ref()?.get(key);
    let networks = annotation(annotations::NETWORKS).and_then(|text| parse_networks(text).ok());
    let default = annotation(annotations::DEFAULT_NETWORK).and_then(|text| parse_default_network(text).ok());
    networks.into_iter().flatten().chain(default).flat_map(|selection| {
        let argument = selection.cni_args.get(annotations::IPAM_CLAIM_REFERENCE);
        let argument = argument.and_then(|claim| claim.as_str().map(str::to_owned));
        selection.ipam_claim_reference.into_iter().chain(argument)
    })
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

/// Names, UIDs and annotations only: what pods are made of is of no interest, and there may be many.
async fn metadata<K>(api: &Api<K>, parameters: ListParams) -> Result<Vec<PartialObjectMeta<K>>, kube::Error>
where
    K: Clone + Debug + DeserializeOwned + Resource,
{
    let mut found = Vec::new();
    let mut parameters = parameters.limit(PAGE);
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
