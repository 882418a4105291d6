//! `godwit.dev/v1alpha1`: addresses as objects.
//!
//! One address is one small object named after its network and itself, so the API server keeps two owners from having
//! it: to allocate is to create the object, or to take over one at rest with a write that is conditional on its
//! resource version. To free is to put it at rest for a while; only then may another have it. How long is said by the
//! object itself, since whoever frees it need not know the configuration that it was given by.
//! There is no object of an address that is free as new: ranges may be IPv6.

mod road;

pub use road::RoadReport;

use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One address, and who has it. There is no status: an allocation is one write.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "godwit.dev",
    version = "v1alpha1",
    kind = "AddressAllocation",
    plural = "addressallocations",
    singular = "addressallocation",
    shortname = "addr",
    derive = "PartialEq",
    doc = "One address of a network, and who has it.",
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.address"),
    printcolumn(name = "Network", type_ = "string", json_path = ".spec.network"),
    printcolumn(name = "Pod", type_ = "string", json_path = ".spec.owner.pod.name"),
    printcolumn(name = "Claim", type_ = "string", json_path = ".spec.owner.claim.name"),
    printcolumn(name = "Released", type_ = "date", json_path = ".spec.releasedAt")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.network == oldSelf.network && self.address == oldSelf.address",
        "message": "network and address are the name of the object and cannot be changed",
    },
    {
        "rule": "has(self.owner) != has(self.releasedAt)",
        "message": "an address has an owner or is at rest, and not both",
    },
]))]
pub struct AddressAllocationSpec {
    /// The network that the address is of: `network_name` in the `ipam` of the CNI configuration, or `shared` if there is none.
    #[schemars(length(min = 1, max = 180))]
    pub network: String,
    /// The address.
    #[schemars(length(min = 2, max = 39))]
    pub address: String,
    /// Length of the prefix of its range.
    #[schemars(range(max = 128))]
    pub prefix_length: u8,
    /// Who has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<AddressOwner>,
    /// Since when it rests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub released_at: Option<MicroTime>,
    /// Seconds that it rests once it is released, before another may have it. Default: 60.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest_seconds: Option<u32>,
}

impl AddressAllocationSpec {
    /// Longer than neighbours keep an address that does not answer any more.
    pub const DEFAULT_REST_SECONDS: u32 = 60;

    /// How long it rests once it is released.
    pub fn rest_period(&self) -> Duration {
        Duration::from_secs(self.rest_seconds.unwrap_or(Self::DEFAULT_REST_SECONDS).into())
    }
}

/// Who has an address: the interface of a pod, for as long as the pod; or a claim, for as long as the claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.pod) != has(self.claim)",
    "message": "the owner is a pod or a claim, and not both",
}]))]
pub struct AddressOwner {
    /// The interface of a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodInterface>,
    /// An IPAMClaim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimReference>,
}

/// The interface of a pod. The UID tells a pod from a later one of its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodInterface {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// UID of the pod.
    pub uid: String,
    /// Sandbox of the pod, as CNI names it: a restarted sandbox is another.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// Name of the interface.
    pub interface: String,
    /// Node of the pod: whose plugin gave the address, and frees it. Its loss frees nothing; that of the pod does.
    pub node_name: String,
}

/// An IPAMClaim. The UID tells a claim from a later one of its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimReference {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
    /// UID of the claim.
    pub uid: String,
}

/// Why no object can be named after a network and an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the network name {network:?} is too long: with its address it must fit into {NAME_MAX} characters")]
pub struct AllocationNameError {
    /// The network.
    pub network: String,
}

/// A short text for a network of any name, to select its addresses by: as long as a label can be, and never longer.
pub fn network_key(network: &str) -> String {
    // FNV-1a: two networks that share a key are told apart by what the objects say.
    let hash = network.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// The longest name of an object.
const NAME_MAX: usize = 253;
/// Begins an escape in a name: rare in network names, and allowed at either end.
const ESCAPE: u8 = b'z';

/// The name of the object of an address. Different addresses and networks have different names, and each name says
/// which it is: `10-1-2-3.<network>`, `fd00-0000-…-0001.<network>`; in the network `z` and whatever an object's name cannot
/// hold is written as `z` and two hexadecimal digits.
pub fn allocation_name(network: &str, address: IpAddr) -> Result<String, AllocationNameError> {
    let mut name = match address {
        IpAddr::V4(address) => address.octets().map(|octet| octet.to_string()).join("-"),
        IpAddr::V6(address) => address.segments().map(|segment| format!("{segment:04x}")).join("-"),
    };
    name.push('.');
    let last = network.len().saturating_sub(1);
    for (index, byte) in network.bytes().enumerate() {
        let inner_dash = byte == b'-' && index != 0 && index != last;
        if inner_dash || (byte != ESCAPE && (byte.is_ascii_lowercase() || byte.is_ascii_digit())) {
            name.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(name, "{}{byte:02x}", char::from(ESCAPE));
        }
    }
    if network.is_empty() || name.len() > NAME_MAX {
        return Err(AllocationNameError { network: network.to_owned() });
    }
    Ok(name)
}

/// The network and the address that an object is named after; none: it is not a name of [`allocation_name`].
pub fn parse_allocation_name(name: &str) -> Option<(String, IpAddr)> {
    let (address, network) = name.split_once('.')?;
    let parts: Vec<&str> = address.split('-').collect();
    let address = if parts.len() == 4 {
        let octets: Vec<u8> = parts.iter().map(|part| part.parse().ok()).collect::<Option<_>>()?;
        IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?))
    } else {
        let segments: Vec<u16> =
            parts.iter().map(|part| u16::from_str_radix(part, 16).ok()).collect::<Option<_>>()?;
        IpAddr::V6(Ipv6Addr::from(<[u16; 8]>::try_from(segments).ok()?))
    };

    let mut bytes = Vec::with_capacity(network.len());
    let mut rest = network.bytes();
    while let Some(byte) = rest.next() {
        if byte == ESCAPE {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    let network = String::from_utf8(bytes).ok()?;
    // Only the one spelling that we write counts, or two names could stand for one address.
    (allocation_name(&network, address).as_deref() == Ok(name)).then_some((network, address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_readable() {
        let v4 = "10.1.2.3".parse().unwrap();
        assert_eq!(allocation_name("migration", v4).unwrap(), "10-1-2-3.migration");
        assert_eq!(allocation_name("blue_Net.1-", v4).unwrap(), "10-1-2-3.bluez5fz4eetz2e1z2d");
        let v6 = "fd00::1".parse().unwrap();
        assert_eq!(allocation_name("az", v6).unwrap(), "fd00-0000-0000-0000-0000-0000-0000-0001.az7a");
    }

    #[test]
    fn other_names_are_nobodys() {
        for name in
            ["", "10-1-2-3", "10-1-2-03.net", "10-1-2-3.", "10-1-2-3.z61", "10-1-2-3.zz", "fd00-1.net"]
        {
            assert_eq!(parse_allocation_name(name), None, "{name}");
        }
        assert!(allocation_name(&"n".repeat(250), "10.1.2.3".parse().unwrap()).is_err());
    }

    proptest! {
        #[test]
        fn a_name_says_what_it_is(network in "[a-zA-Z0-9][a-zA-Z0-9_.-]{0,60}", address: IpAddr) {
            let name = allocation_name(&network, address).unwrap();
            prop_assert_eq!(parse_allocation_name(&name), Some((network, address)));
            let label = |label: &str| {
                let ends = label.starts_with('-') || label.ends_with('-') || label.is_empty();
                !ends && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            };
            prop_assert!(name.split('.').all(label), "{} is not a DNS subdomain", name);
        }

        #[test]
        fn reading_never_panics(name in "\\PC{0,80}") {
            let _ = parse_allocation_name(&name);
        }
    }
}
