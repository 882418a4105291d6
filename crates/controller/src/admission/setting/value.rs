//! The value of `vm-migration-network`, judged by itself: no cluster is asked.
//!
//! What is accepted becomes a [`MigrationNetwork`], and two spellings of one network become the same: VLAN 0 and 1 are both
//! untagged, exclusions are sets of addresses. [`MigrationNetwork::text`] writes it in the one normal spelling, which reads as the
//! same network again.

use std::fmt::Write as _;
use std::net::IpAddr;

use addressing::headroom::{Demand, HeadRoom, head_room};
use addressing::{AddressSet, Family, Network, Pool, PoolRange};
use api::harvester::MigrationNetworkValue;
use api::names::objects::MANAGEMENT_CLUSTER_NETWORK;
use sha2::{Digest as _, Sha256};

use super::ranges;
use crate::admission::{Cause, Causes};

/// The highest VLAN; 4095 is reserved.
const LAST_VLAN: i64 = 4094;
/// As many digits as Harvester's own hash has; a label has room for 63.
const HASH_DIGITS: usize = 40;

/// The network that a value asks for.
#[derive(Clone, Debug)]
pub struct MigrationNetwork {
    pub cluster_network: String,
    /// None: untagged.
    pub vlan: Option<u16>,
    pool: Pool,
    /// Where each range of the pool is written.
    fields: Vec<&'static str>,
}

/// One range in normal form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormalRange {
    pub network: Network,
    /// The first and the last address that are given, where that is less than all usable ones.
    pub ends: Option<(IpAddr, IpAddr)>,
    /// What is not given between them.
    pub exclude: AddressSet,
}

/// Reads a value. None: no migration network is wanted. `root` is where the value is written: `value` or `default`.
pub fn read(value: &str, root: &str) -> Result<Option<MigrationNetwork>, Vec<Cause>> {
    let mut causes = Causes::default();
    let written = match MigrationNetworkValue::parse(value) {
        Ok(None) => return Ok(None),
        Ok(Some(written)) => written,
        Err(error) => {
            let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            causes.invalid(
                root,
                format!(
                    "This is not a migration network: {why}. Write JSON such as \
                     {{\"clusterNetwork\":\"mig\",\"vlan\":200,\"range\":\"10.1.0.0/24\",\"exclude\":[\"10.1.0.1\"]}}."
                ),
            );
            return Err(causes.0);
        }
    };
    if written.cluster_network.is_empty() {
        causes.required(
            format!("{root}.clusterNetwork"),
            "Name the cluster network that is to carry migrations.",
        );
    }
    let vlan = vlan(&written, root, &mut causes);
    match ranges::pool(&written, root, &mut causes) {
        Some((pool, fields)) if causes.0.is_empty() => {
            Ok(Some(MigrationNetwork { cluster_network: written.cluster_network, vlan, pool, fields }))
        }
        _ => Err(causes.0),
    }
}

/// The tag; none: untagged.
fn vlan(written: &MigrationNetworkValue, root: &str, causes: &mut Causes) -> Option<u16> {
    let vlan = written.vlan.unwrap_or(0);
    let field = || format!("{root}.vlan");
    if !(0..=LAST_VLAN).contains(&vlan) {
        causes.invalid(
            field(),
            format!("VLAN {vlan} does not exist: choose 2 to {LAST_VLAN}, or 0 for untagged traffic."),
        );
    } else if vlan <= 1 && written.cluster_network == MANAGEMENT_CLUSTER_NETWORK {
        causes.invalid(
            field(),
            format!(
                "Untagged traffic of {MANAGEMENT_CLUSTER_NETWORK} is the nodes' own: choose a VLAN from 2 to \
                 {LAST_VLAN}, or another cluster network."
            ),
        );
    }
    u16::try_from(vlan).ok().filter(|vlan| *vlan > 1)
}

impl MigrationNetwork {
    /// The ranges, IPv4 first.
    pub fn ranges(&self) -> Vec<NormalRange> {
        let mut ranges: Vec<NormalRange> = self.pool.ranges().iter().map(NormalRange::of).collect();
        ranges.sort_by_key(|range| range.network);
        ranges
    }

    /// Every address of the ranges' networks, given or not.
    pub fn networks(&self) -> AddressSet {
        self.pool.ranges().iter().map(|range| range.network().interval()).collect()
    }

    /// Every address that is given to someone.
    pub fn allocatable(&self) -> AddressSet {
        self.pool.allocatable()
    }

    /// What each range has and those who ask need, with the field of the range.
    pub fn head_room(&self, demand: &Demand) -> impl Iterator<Item = (&'static str, HeadRoom)> {
        self.fields.iter().copied().zip(head_room(&self.pool, demand))
    }

    /// The field of the range that has an address of these.
    pub fn field_of(&self, addresses: &AddressSet) -> &'static str {
        let overlaps = |range: &PoolRange| addresses.overlaps(&range.network().into());
        let which = self.pool.ranges().iter().position(overlaps).unwrap_or_default();
        self.fields.get(which).copied().unwrap_or("range")
    }

    /// The layer-2 segment.
    pub fn segment(&self) -> String {
        segment(&self.cluster_network, self.vlan)
    }

    /// The value in its one normal spelling.
    pub fn text(&self) -> String {
        let ranges = self.ranges();
        let several = ranges.len() > 1;
        let mut value = MigrationNetworkValue {
            cluster_network: self.cluster_network.clone(),
            vlan: self.vlan.map(i64::from),
            exclude: ranges.iter().flat_map(|range| texts(&range.exclude)).collect(),
            ..MigrationNetworkValue::default()
        };
        for range in &ranges {
            // Only the second range can have ends.
            if range.network.family() == Family::V6 && (several || range.ends.is_some()) {
                value.range_v6 = Some(range.network.to_string());
                value.range_v6_start = range.ends.map(|(first, _)| first.to_string());
                value.range_v6_end = range.ends.map(|(_, last)| last.to_string());
            } else {
                value.range = range.network.to_string();
            }
        }
        // A struct of texts and numbers.
        serde_json::to_string(&value).unwrap_or_default()
    }

    /// The same for every spelling of the network.
    pub fn hash(&self) -> String {
        let mut digits = String::new();
        for byte in Sha256::digest(self.text()) {
            // Writing to a string does not fail.
            let _ = write!(digits, "{byte:02x}");
        }
        digits.truncate(HASH_DIGITS);
        digits
    }
}

impl NormalRange {
    fn of(range: &PoolRange) -> Self {
        let (network, bounds) = (range.network(), range.bounds());
        let ends = (network.usable() != Some(bounds)).then(|| (bounds.first(), bounds.last()));
        Self { network, ends, exclude: range.exclusions().intersection(&bounds.into()) }
    }
}

/// The intervals of a set as texts that read as the same set.
pub fn texts(set: &AddressSet) -> Vec<String> {
    set.intervals().iter().map(ToString::to_string).collect()
}

/// A layer-2 segment: a cluster network and a VLAN.
pub(super) fn segment(cluster_network: &str, vlan: Option<u16>) -> String {
    match vlan {
        Some(vlan) => format!("{cluster_network} VLAN {vlan}"),
        None => format!("{cluster_network} untagged"),
    }
}
