//! The objects of a network's addresses: read, and written on condition.
//!
//! Every write says what it expects, and tells whether that was so; being outrun is an outcome and not an error. Nothing here
//! decides who gets an address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::SystemTime;

use addressing::ledger::{Holding, Rest};
use api::godwit::{AddressAllocation, AddressAllocationSpec, AddressOwner, allocation_name, network_key};
use api::names::labels::{ADDRESS_NETWORK, ADDRESS_OWNER};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, MicroTime, ObjectMeta};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::wire::{Reply, Wire};
use crate::{Error, Owner};

const PATH: &str = "/apis/godwit.dev/v1alpha1/addressallocations";
/// How many objects are asked for at once.
pub(crate) const PAGE: u32 = 500;
/// The longest value of a label.
const LABEL_MAX: usize = 63;

/// What became of a write.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It is as it was wanted.
    Done(Box<AddressAllocation>),
    /// Somebody else changed it first.
    Outrun,
}

/// What an object is to say of its address.
#[derive(Clone, Copy)]
enum Standing<'a> {
    Owned(&'a AddressOwner),
    Released(SystemTime),
}

/// The addresses of one network.
pub(crate) struct Allocations<'a> {
    pub(crate) wire: &'a mut Wire,
    network: &'a str,
}

impl<'a> Allocations<'a> {
    pub(crate) fn of(wire: &'a mut Wire, network: &'a str) -> Self {
        Self { wire, network }
    }

    pub(crate) fn get(&mut self, address: IpAddr) -> Result<Option<AddressAllocation>, Error> {
        let reply = self.wire.get(&self.path(address)?)?;
        if reply.status == 404 && !is_unknown_kind(&reply) {
            return Ok(None);
        }
        understood(&reply, || format!("to read {address}")).map(Some)
    }

    /// Takes an address of which there is no object.
    pub(crate) fn create(
        &mut self,
        (address, prefix_length): (IpAddr, u8),
        owner: &AddressOwner,
        rest_seconds: u32,
    ) -> Result<Outcome, Error> {
        let held = Held { address, prefix_length, uid: None, resource_version: None };
        let object = self.object(&held, Standing::Owned(owner), rest_seconds)?;
        let reply = self.wire.post(PATH, &json!(object))?;
        outcome(&reply, || format!("to give {address}"))
    }

    /// Takes an address whose object is as it was read.
    pub(crate) fn take(
        &mut self,
        read: &AddressAllocation,
        owner: &AddressOwner,
        rest_seconds: u32,
    ) -> Result<Outcome, Error> {
        let Some(held) = Held::of(read) else { return Ok(Outcome::Outrun) };
        let object = self.object(&held, Standing::Owned(owner), rest_seconds)?;
        self.put(&held, &object, "to give")
    }

    /// Puts an address at rest, if its object is as it was read or written.
    pub(crate) fn rest(&mut self, held: &Held, now: SystemTime, rest_seconds: u32) -> Result<Outcome, Error> {
        let object = self.object(held, Standing::Released(now), rest_seconds)?;
        self.put(held, &object, "to release")
    }

    /// Removes the object of an address that nobody has used, if it is as it was read or written.
    pub(crate) fn forget(&mut self, held: &Held) -> Result<bool, Error> {
        let path = self.path(held.address)?;
        let preconditions = json!({ "uid": held.uid, "resourceVersion": held.resource_version });
        let options = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions });
        let reply = self.wire.delete(&path, &options)?;
        if matches!(reply.status, 404 | 409) {
            return Ok(false);
        }
        understood::<Value>(&reply, || format!("to remove {}", held.address)).map(|_| true)
    }

    /// Every address of the network that is not free as new.
    pub(crate) fn list(&mut self) -> Result<Vec<AddressAllocation>, Error> {
        self.select(&self.all())
    }

    /// The same by a single request; none: there are more than it can answer.
    pub(crate) fn list_few(&mut self) -> Result<Option<Vec<AddressAllocation>>, Error> {
        let (found, next) = self.page(&self.all(), None)?;
        Ok(next.is_none().then_some(found))
    }

    /// The network's addresses of a pod or claim.
    pub(crate) fn owned_by(&mut self, owner: &Owner) -> Result<Vec<AddressAllocation>, Error> {
        if !is_label(owner.uid()) {
            return Ok(Vec::new());
        }
        let selector = format!("{ADDRESS_OWNER}={}", owner.uid());
        let mut found = self.select(&selector)?;
        found.retain(|object| object.spec.owner.as_ref().is_some_and(|by| Owner(by.clone()) == *owner));
        Ok(found)
    }

    /// Whether addresses can be read at all.
    pub(crate) fn answer(&mut self) -> Result<(), Error> {
        let reply = self.wire.get(&format!("{PATH}?limit=1"))?;
        understood::<Value>(&reply, || "to list addresses".to_owned()).map(drop)
    }

    /// Selects the objects of the network.
    fn all(&self) -> String {
        format!("{ADDRESS_NETWORK}={}", network_key(self.network))
    }

    fn select(&mut self, selector: &str) -> Result<Vec<AddressAllocation>, Error> {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let (page, next) = self.page(selector, after.as_deref())?;
            found.extend(page);
            match next {
                Some(token) => after = Some(token),
                None => return Ok(found),
            }
        }
    }

    /// One page of what is selected, and what the next is asked for with.
    fn page(
        &mut self,
        selector: &str,
        after: Option<&str>,
    ) -> Result<(Vec<AddressAllocation>, Option<String>), Error> {
        #[derive(Deserialize)]
        struct Page {
            metadata: ListMeta,
            items: Vec<AddressAllocation>,
        }
        let selector = selector.replace('/', "%2F").replace('=', "%3D");
        let after = after.map(|token| format!("&continue={}", escaped(token))).unwrap_or_default();
        let reply = self.wire.get(&format!("{PATH}?limit={PAGE}&labelSelector={selector}{after}"))?;
        let Page { metadata, mut items } =
            understood(&reply, || format!("to list the addresses of {}", self.network))?;
        items.retain(|object| object.spec.network == self.network);
        Ok((items, metadata.continue_.filter(|token| !token.is_empty())))
    }

    fn put(&mut self, held: &Held, object: &AddressAllocation, what: &str) -> Result<Outcome, Error> {
        let path = self.path(held.address)?;
        let reply = self.wire.put(&path, &json!(object))?;
        if reply.status == 404 {
            return Ok(Outcome::Outrun);
        }
        outcome(&reply, || format!("{what} {}", held.address))
    }

    fn object(
        &self,
        held: &Held,
        standing: Standing<'_>,
        rest_seconds: u32,
    ) -> Result<AddressAllocation, Error> {
        let (owner, released) = match standing {
            Standing::Owned(owner) => (Some(owner), None),
            Standing::Released(since) => (None, Some(since)),
        };
        let mut labels = BTreeMap::from([(ADDRESS_NETWORK.to_owned(), network_key(self.network))]);
        if let Some(uid) =
            owner.map(|owner| Owner(owner.clone()).uid().to_owned()).filter(|uid| is_label(uid))
        {
            labels.insert(ADDRESS_OWNER.to_owned(), uid);
        }
        let spec = AddressAllocationSpec {
            network: self.network.to_owned(),
            address: held.address.to_string(),
            prefix_length: held.prefix_length,
            owner: owner.cloned(),
            released_at: released.map(micro_time),
            rest_seconds: Some(rest_seconds),
        };
        let metadata = ObjectMeta {
            name: Some(self.name(held.address)?),
            uid: held.uid.clone(),
            resource_version: held.resource_version.clone(),
            labels: Some(labels),
            ..ObjectMeta::default()
        };
        Ok(AddressAllocation { metadata, spec })
    }

    fn name(&self, address: IpAddr) -> Result<String, Error> {
        allocation_name(self.network, address).map_err(|_| Error::Name { network: self.network.to_owned() })
    }

    fn path(&self, address: IpAddr) -> Result<String, Error> {
        Ok(format!("{PATH}/{}", self.name(address)?))
    }
}

/// An address that is or may be ours, and the state of its object that we know.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) address: IpAddr,
    pub(crate) prefix_length: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) uid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resource_version: Option<String>,
}

impl Held {
    /// None: the object does not say an address.
    pub(crate) fn of(object: &AddressAllocation) -> Option<Self> {
        Some(Self {
            address: object.spec.address.parse().ok()?,
            prefix_length: object.spec.prefix_length,
            uid: object.metadata.uid.clone(),
            resource_version: object.metadata.resource_version.clone(),
        })
    }
}

/// What an object says of its address. An owner that cannot be read is somebody all the same.
pub(crate) fn holding(object: &AddressAllocation) -> Holding<Owner> {
    match (&object.spec.owner, rest(object)) {
        (None, Some(rest)) => Holding::Released(rest),
        (owner, _) => Holding::Owned(Owner(owner.clone().unwrap_or_default())),
    }
}

/// Since when and for how long the address of an object rests; none: it was not released.
pub(crate) fn rest(object: &AddressAllocation) -> Option<Rest> {
    let MicroTime(released) = object.spec.released_at.as_ref()?;
    Some(Rest { since: SystemTime::from(*released), period: object.spec.rest_period() })
}

pub(crate) fn micro_time(time: SystemTime) -> MicroTime {
    // Only a clock that is thousands of years off cannot be said; its time is then the end of time.
    MicroTime(Timestamp::try_from(time).unwrap_or(Timestamp::MAX))
}

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.len() <= LABEL_MAX && text.bytes().all(inner) && end(text.bytes().next()) && end(text.bytes().last())
}

fn escaped(token: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    token.bytes().map(escape).collect()
}

fn outcome(reply: &Reply, what: impl Fn() -> String) -> Result<Outcome, Error> {
    if reply.status == 409 {
        return Ok(Outcome::Outrun);
    }
    understood(reply, what).map(|object| Outcome::Done(Box::new(object)))
}

/// A 404 of a server that does not know the kind has no details of an object.
fn is_unknown_kind(reply: &Reply) -> bool {
    !serde_json::from_slice::<Value>(&reply.body).is_ok_and(|status| status["details"]["name"].is_string())
}

/// What a good answer holds.
pub(crate) fn understood<T: serde::de::DeserializeOwned>(
    reply: &Reply,
    what: impl Fn() -> String,
) -> Result<T, Error> {
    if !reply.is_success() {
        return Err(Error::Api { what: what(), status: reply.status, message: reply.message() });
    }
    serde_json::from_slice(&reply.body).map_err(|source| Error::Answer { what: what(), source })
}
