//! A configuration as it is written: the shape of the JSON, and no rule.
//!
//! `null` and a missing key are the same. What whereabouts once knew or knows and we have no use for is listed, so that only
//! what nobody knows is told.

use std::collections::BTreeMap;
use std::path::PathBuf;

use addressing::{PoolSettings, RangeSettings};
use api::multus::NetworkDns;
use cni::AttachmentId;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// What a runtime writes.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Written {
    #[serde(rename = "cniVersion")]
    pub(super) cni_version: Option<String>,
    pub(super) name: Option<String>,
    pub(super) ipam: Option<Ipam>,
    #[serde(default, rename = "runtimeConfig", deserialize_with = "or_default")]
    pub(super) runtime: RuntimeConfig,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) args: Args,
    #[serde(rename = "prevResult")]
    pub(super) previous: Option<Value>,
    #[serde(rename = "cni.dev/valid-attachments")]
    pub(super) valid: Option<Vec<AttachmentId>>,
    /// The name in the first print of 1.1.0, which some runtimes write.
    #[serde(rename = "cni.dev/attachments")]
    pub(super) valid_misnamed: Option<Vec<AttachmentId>>,
    /// Said by definitions whose addresses claims may own.
    #[serde(default, rename = "allowPersistentIPs", deserialize_with = "or_default")]
    pub(super) allow_persistent_ips: bool,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct RuntimeConfig {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) ips: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Args {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) cni: CniArgs,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct CniArgs {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) ips: Vec<String>,
    /// [`api::names::annotations::IPAM_CLAIM_REFERENCE`]
    #[serde(rename = "ipam-claim-reference")]
    pub(super) claim: Option<String>,
}

/// The `ipam` of a configuration, or a file for all networks.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Ipam {
    range: Option<String>,
    range_start: Option<String>,
    range_end: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    exclude: Vec<String>,
    #[serde(default, rename = "ipRanges", deserialize_with = "or_default")]
    ip_ranges: Vec<Range>,
    gateway: Option<String>,
    pub(super) network_name: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) routes: Vec<Route>,
    pub(super) dns: Option<NetworkDns>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) addresses: Vec<Fixed>,
    pub(super) configuration_path: Option<PathBuf>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) kubernetes: Kubernetes,
    pub(super) log_file: Option<PathBuf>,
    pub(super) log_level: Option<String>,

    // Ours.
    pub(super) rest_seconds: Option<u32>,
    pub(super) data_dir: Option<PathBuf>,
    pub(super) node_name: Option<String>,

    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[expect(clippy::struct_field_names, reason = "the keys are whereabouts'")]
pub(super) struct Range {
    #[serde(default)]
    range: String,
    range_start: Option<String>,
    range_end: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    exclude: Vec<String>,
    /// Ours: dual stack has two gateways.
    gateway: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Route {
    pub(super) dst: String,
    pub(super) gw: Option<String>,
    pub(super) mtu: Option<u32>,
    pub(super) advmss: Option<u32>,
    pub(super) priority: Option<i64>,
    pub(super) table: Option<i64>,
    pub(super) scope: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Fixed {
    pub(super) address: String,
    pub(super) gateway: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Kubernetes {
    pub(super) kubeconfig: Option<PathBuf>,
}

/// Keys of whereabouts that mean nothing here: there is no lease to win, no slice to keep, and nobody else's store.
const NEEDLESS: [&str; 19] = [
    "type",
    "name",
    "datastore",
    "leader_lease_duration",
    "leader_renew_deadline",
    "leader_retry_period",
    "sleep_for_race",
    "reconciler_cron_expression",
    "enable_overlapping_ranges",
    "overlapping_ranges",
    "etcd_host",
    "etcd_username",
    "etcd_password",
    "etcd_key_file",
    "etcd_cert_file",
    "etcd_ca_cert_file",
    "mode",
    "optimistic_ipam",
    "omit_range",
];

impl Ipam {
    /// Keys that nobody knows.
    pub(super) fn unknown(&self) -> impl Iterator<Item = &str> {
        self.rest.keys().map(String::as_str).filter(|key| !NEEDLESS.contains(key))
    }

    /// What is not said here is taken from the file for all networks.
    pub(super) fn complete(&mut self, file: Self) {
        let keep = |own: &mut Option<PathBuf>, other: Option<PathBuf>| *own = own.take().or(other);
        keep(&mut self.kubernetes.kubeconfig, file.kubernetes.kubeconfig);
        keep(&mut self.log_file, file.log_file);
        keep(&mut self.data_dir, file.data_dir);
        self.log_level = self.log_level.take().or(file.log_level);
        self.node_name = self.node_name.take().or(file.node_name);
        self.rest_seconds = self.rest_seconds.or(file.rest_seconds);
        self.network_name = self.network_name.take().or(file.network_name);
        self.gateway = self.gateway.take().or(file.gateway);
        self.dns = self.dns.take().or(file.dns);
        if self.routes.is_empty() {
            self.routes = file.routes;
        }
        if self.range.is_none() && self.ip_ranges.is_empty() {
            self.range = file.range;
            self.range_start = file.range_start;
            self.range_end = file.range_end;
            self.exclude = file.exclude;
            self.ip_ranges = file.ip_ranges;
        }
    }

    pub(super) fn pool_settings(&self) -> PoolSettings {
        let range = |range: &Range| RangeSettings {
            range: range.range.clone(),
            range_start: range.range_start.clone(),
            range_end: range.range_end.clone(),
            exclude: range.exclude.clone(),
            gateway: range.gateway.clone(),
        };
        PoolSettings {
            range: self.range.clone(),
            range_start: self.range_start.clone(),
            range_end: self.range_end.clone(),
            exclude: self.exclude.clone(),
            ip_ranges: self.ip_ranges.iter().map(range).collect(),
            gateway: self.gateway.clone(),
            network_name: self.network_name.clone(),
        }
    }
}

fn or_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
