//! Addresses of a claim: they outlive the pods that use them.
//!
//! The claim owns the addresses, as long as it exists; its status says which they are, so that every pod of it gets the same.
//! `ownerPod` is the pod that uses them: the first, until it is gone or the controller moves it. A second pod gets the addresses
//! and leaves `ownerPod` alone: it is the target of a move. The interfaces of a machine's pods are mute ([`crate::standby`]) until their
//! addresses are the guest's.

use std::net::IpAddr;
use std::time::SystemTime;

use addressing::decision::Choice;
use api::godwit::{AddressOwner, ClaimReference, PodInterface};
use api::ipam::{IPAMClaim, IPAMClaimStatus, OwnerPod};
use api::multus::RequestedAddress;
use api::names::finalizers::PERSISTENT_IPAM;
use api::names::{annotations, conditions, reasons};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::json;

use crate::allocate::{Asked, allocate};
use crate::allocations::{Allocations, Held, understood};
use crate::config::Giving;
use crate::journal::{Entry, Record};
use crate::wire::Wire;
use crate::{Config, Error, Owner};

/// How often it is begun anew when others change the claim meanwhile.
const ATTEMPTS: u32 = 5;

/// A claim that a pod refers to.
pub(crate) struct Reference<'a> {
    pub(crate) name: &'a str,
    pub(crate) pod: &'a PodInterface,
}

/// What a claim has.
pub(crate) struct Given {
    pub(crate) choices: Vec<Choice>,
    /// A machine's: the addresses are for its guest, not for the pod.
    pub(crate) for_guest: bool,
}

/// Gives a claim its addresses, and says so in its status.
pub(crate) fn allocate_for(
    wire: &mut Wire,
    (config, giving): (&Config, &Giving),
    reference: &Reference<'_>,
    entry: &mut Entry,
    template: &Record,
) -> Result<Given, Error> {
    for _ in 0..ATTEMPTS {
        let claim = read(wire, reference, config.name())?;
        let owner = owner(&claim, reference);
        let template = Record { owner: owner.0.clone(), ..template.clone() };
        let given = given(&claim);
        let held = |finalizers: &Vec<String>| finalizers.iter().any(|held| held == PERSISTENT_IPAM);
        let for_guest = claim.metadata.finalizers.as_ref().is_some_and(held);
        let mut wanted = given.clone();
        wanted.extend(asked_for(&claim, reference)?.into_iter().chain(giving.wanted.iter().copied()));
        let mut api = Allocations::of(wire, config.network());
        let known = if given.is_empty() {
            // Whoever gave it addresses may have died before it could say so.
            let owned = api.owned_by(&owner)?;
            owned.iter().filter_map(Held::of).map(|held| held.address).collect()
        } else {
            given.clone()
        };
        let asked = Asked {
            pool: &giving.pool,
            owner: &owner,
            wanted: &wanted,
            known: &known,
            rest_seconds: config.rest_seconds(),
        };
        let choices = match allocate(&mut api, &asked, entry, &template) {
            Ok(choices) => choices,
            Err(error) => {
                say_why_not(wire, claim, &error);
                return Err(error);
            }
        };
        if settle(wire, claim, reference, &choices)? {
            return Ok(Given { choices, for_guest });
        }
        // Another pod of the claim was given others at the same time, and said so first.
        let claim = read(wire, reference, config.name())?;
        drop_others(wire, config.network(), &owner, &given_to(&claim, &choices))?;
    }
    Err(Error::Contended { attempts: ATTEMPTS })
}

/// Who has the addresses of a claim: the one that has its name now. That it is being deleted takes nothing from those who use it.
pub(crate) fn owner_of(wire: &mut Wire, reference: &Reference<'_>) -> Result<Owner, Error> {
    Ok(owner(&get(wire, reference)?, reference))
}

fn get(wire: &mut Wire, reference: &Reference<'_>) -> Result<IPAMClaim, Error> {
    let (namespace, name) = (&reference.pod.namespace, reference.name);
    let reply = wire.get(&path(namespace, name))?;
    if reply.status == 404 {
        let claim = format!("claim {namespace}/{name}");
        return Err(Error::Claim { claim, why: "does not exist".to_owned() });
    }
    understood(&reply, || format!("to read claim {namespace}/{name}"))
}

/// A claim that may be given addresses of a network.
fn read(wire: &mut Wire, reference: &Reference<'_>, network: &str) -> Result<IPAMClaim, Error> {
    let (namespace, name) = (&reference.pod.namespace, reference.name);
    let refused = |why: String| Error::Claim { claim: format!("claim {namespace}/{name}"), why };
    let claim = get(wire, reference)?;
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(refused("is being deleted".to_owned()));
    }
    if !claim.spec.network.is_empty() && claim.spec.network != network {
        return Err(refused(format!("is for network {:?}, and this is {network:?}", claim.spec.network)));
    }
    Ok(claim)
}

fn path(namespace: &str, name: &str) -> String {
    format!("/apis/k8s.cni.cncf.io/v1alpha1/namespaces/{namespace}/ipamclaims/{name}")
}

fn owner(claim: &IPAMClaim, reference: &Reference<'_>) -> Owner {
    let reference = ClaimReference {
        namespace: reference.pod.namespace.clone(),
        name: reference.name.to_owned(),
        uid: claim.metadata.uid.clone().unwrap_or_default(),
    };
    Owner(AddressOwner { pod: None, claim: Some(reference) })
}

/// What its status says that it has.
fn given(claim: &IPAMClaim) -> Vec<IpAddr> {
    let ips = claim.status.iter().flat_map(|status| &status.ips);
    ips.filter_map(|text| text.parse::<RequestedAddress>().ok()).map(|given| given.address).collect()
}

/// What it says that it wants.
fn asked_for(claim: &IPAMClaim, reference: &Reference<'_>) -> Result<Vec<IpAddr>, Error> {
    let annotations = claim.metadata.annotations.as_ref();
    let text = annotations.and_then(|all| all.get(annotations::CLAIM_ADDRESSES));
    let parts =
        text.into_iter().flat_map(|text| text.split(',')).map(str::trim).filter(|part| !part.is_empty());
    let read = |part: &str| {
        part.parse::<RequestedAddress>().map(|asked| asked.address).map_err(|cause| Error::Claim {
            claim: format!("claim {}/{}", reference.pod.namespace, reference.name),
            why: format!("asks in {} for an address that is none: {cause}", annotations::CLAIM_ADDRESSES),
        })
    };
    parts.map(read).collect()
}

/// Of the chosen addresses, those that are not the claim's by its status.
fn given_to(claim: &IPAMClaim, choices: &[Choice]) -> Vec<IpAddr> {
    let given = given(claim);
    choices.iter().map(|choice| choice.address).filter(|address| !given.contains(address)).collect()
}

/// Writes into the status what there is; false: the claim has changed meanwhile.
fn settle(
    wire: &mut Wire,
    mut claim: IPAMClaim,
    reference: &Reference<'_>,
    choices: &[Choice],
) -> Result<bool, Error> {
    let before = claim.status.clone();
    let mut status = before.clone().unwrap_or_default();
    if given(&claim).is_empty() {
        status.ips = choices.iter().map(ToString::to_string).collect();
    }
    if uses_nobody(wire, &status, reference)? {
        status.owner_pod = Some(OwnerPod { name: reference.pod.name.clone() });
    }
    let given = status.ips.join(", ");
    let fact = (reasons::SUCCESSFUL_ALLOCATION, format!("{given} of network {}", claim.spec.network));
    set_condition(&mut status, "True", fact, claim.metadata.generation);
    if before.as_ref() == Some(&status) {
        return Ok(true);
    }
    claim.status = Some(status);
    write_status(wire, &claim, reference)
}

fn write_status(wire: &mut Wire, claim: &IPAMClaim, reference: &Reference<'_>) -> Result<bool, Error> {
    let (namespace, name) = (&reference.pod.namespace, reference.name);
    let reply = wire.put(&format!("{}/status", path(namespace, name)), &json!(claim))?;
    if matches!(reply.status, 404 | 409) {
        return Ok(false);
    }
    understood::<IPAMClaim>(&reply, || format!("to write the status of claim {namespace}/{name}"))
        .map(|_| true)
}

/// Whether no other pod uses the addresses: nobody is named, or whoever is named is gone.
fn uses_nobody(wire: &mut Wire, status: &IPAMClaimStatus, reference: &Reference<'_>) -> Result<bool, Error> {
    let Some(pod) = status.owner_pod.as_ref().filter(|pod| pod.name != reference.pod.name) else {
        return Ok(true);
    };
    let reply = wire.get(&format!("/api/v1/namespaces/{}/pods/{}", reference.pod.namespace, pod.name))?;
    Ok(reply.status == 404)
}

/// Frees what another's choice has made needless; it was never used.
fn drop_others(wire: &mut Wire, network: &str, owner: &Owner, needless: &[IpAddr]) -> Result<(), Error> {
    let mut api = Allocations::of(wire, network);
    for address in needless {
        let object = api.get(*address)?;
        let ours = object.filter(|object| object.spec.owner.as_ref() == Some(&owner.0));
        if let Some(held) = ours.as_ref().and_then(Held::of) {
            api.forget(&held)?;
        }
    }
    Ok(())
}

/// Says on the claim why it has no addresses, for whoever looks there. The pod's event says it too, so this may fail.
fn say_why_not(wire: &mut Wire, mut claim: IPAMClaim, error: &Error) {
    let reason = match error {
        Error::Exhausted { .. } => reasons::SUBNET_EXHAUSTED,
        Error::Refused(_) => reasons::IP_ADDRESS_CONFLICT,
        _ => return,
    };
    let mut status = claim.status.take().unwrap_or_default();
    let before = status.clone();
    set_condition(&mut status, "False", (reason, error.to_string()), claim.metadata.generation);
    if before == status {
        return;
    }
    let (namespace, name) = (claim.metadata.namespace.clone(), claim.metadata.name.clone());
    claim.status = Some(status);
    let path = format!("{}/status", path(&namespace.unwrap_or_default(), &name.unwrap_or_default()));
    let _ = wire.put(&path, &json!(claim));
}

/// Sets the condition; its time is that of its last change of status.
fn set_condition(
    status: &mut IPAMClaimStatus,
    value: &str,
    (reason, message): (&str, String),
    generation: Option<i64>,
) {
    let kind = conditions::IPS_ALLOCATED;
    let before = status.conditions.iter().find(|condition| condition.type_ == kind);
    let since =
        before.filter(|before| before.status == value).map(|before| before.last_transition_time.clone());
    let now = || Time(jiff::Timestamp::try_from(SystemTime::now()).unwrap_or(jiff::Timestamp::MAX));
    let condition = Condition {
        type_: kind.to_owned(),
        status: value.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: generation,
        last_transition_time: since.unwrap_or_else(now),
    };
    status.conditions.retain(|condition| condition.type_ != kind);
    status.conditions.push(condition);
}
