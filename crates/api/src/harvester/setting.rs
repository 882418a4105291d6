//! `Setting`: a name and a value; and the value of `vm-migration-network`.
//!
//! A setting's value is text. It must never be compared as text: two spellings of one configuration are one
//! configuration.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::HarvesterCondition;

/// The body of a setting: its fields stand beside `metadata`, not under `spec`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "harvesterhci.io",
    version = "v1beta1",
    kind = "Setting",
    plural = "settings",
    singular = "setting",
    no_spec,
    status = "SettingStatus",
    derive = "PartialEq",
    doc = "A setting of the cluster.",
    printcolumn(name = "VALUE", type_ = "string", json_path = ".value"),
    printcolumn(
        name = "CONFIGURED",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='configured')].reason"
    )
)]
pub struct SettingBody {
    /// What was set; empty: the default.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// What holds when nothing is set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub default: String,
    /// Somebody changed it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub customized: bool,
    /// Where the value comes from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
}

impl SettingBody {
    /// The value that holds.
    pub fn effective_value(&self) -> &str {
        if self.value.is_empty() { &self.default } else { &self.value }
    }
}

/// Whether the setting was put into effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingStatus {
    /// Lasting facts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<HarvesterCondition>,
}

/// The value of `vm-migration-network`: where the migration network is and which addresses it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MigrationNetworkValue {
    /// Cluster network that carries it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster_network: String,
    /// VLAN, 2 to 4094; 0 and 1: untagged. Wider than a VLAN is, so that admission can say what is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<i64>,
    /// Addresses, of either family.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub range: String,
    /// Parts of the range that are not given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// More addresses, IPv6: then everybody gets one of each.
    #[serde(rename = "rangeV6", default, skip_serializing_if = "Option::is_none")]
    pub range_v6: Option<String>,
    /// First IPv6 address that is given.
    #[serde(rename = "rangeV6Start", default, skip_serializing_if = "Option::is_none")]
    pub range_v6_start: Option<String>,
    /// Last IPv6 address that is given.
    #[serde(rename = "rangeV6End", default, skip_serializing_if = "Option::is_none")]
    pub range_v6_end: Option<String>,
    /// A knob of Harvester's storage network, accepted and without meaning here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive_vlan: Option<bool>,
}

/// The value of `vm-migration-network` is not what it should be.
#[derive(Debug, thiserror::Error)]
#[error(
    "the value is not a migration network: expected {{\"clusterNetwork\", \"vlan\", \"range\", \"exclude\"}} in JSON"
)]
pub struct MigrationNetworkValueError {
    /// Where and why.
    #[from]
    source: serde_json::Error,
}

impl MigrationNetworkValue {
    /// Reads the value of the setting; none: the network is switched off. A misspelt field is an error: to ignore
    /// `excludes` would be to give out the addresses that it was to keep.
    pub fn parse(value: &str) -> Result<Option<Self>, MigrationNetworkValueError> {
        if value.trim().is_empty() {
            return Ok(None);
        }
        // A struct is read from a list as well; a network without the names of its fields is a mistake.
        serde_json::from_str::<serde_json::Map<_, _>>(value)?;
        Ok(Some(serde_json::from_str(value)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_and_its_absence() {
        let text =
            r#"{"vlan": 200, "clusterNetwork":"mig", "range":"10.20.0.0/24","exclude":["10.20.0.1/32"]}"#;
        let value = MigrationNetworkValue::parse(text).unwrap().unwrap();
        assert_eq!((value.cluster_network.as_str(), value.vlan), ("mig", Some(200)));
        assert_eq!(value.exclude, ["10.20.0.1/32"]);
        assert_eq!(MigrationNetworkValue::parse(" ").unwrap(), None);
    }

    #[test]
    fn what_is_refused_says_why() {
        for (text, why) in [
            (r#"{"excludes":[]}"#, "unknown field `excludes`"),
            (r#"{"vlan":"200"}"#, "invalid type: string \"200\""),
            (r#"{"vlan":1,"vlan":2}"#, "duplicate field `vlan`"),
            ("\"10.0.0.0/24\"", "expected a map"),
            (r#"["mig",200,"10.0.0.0/24"]"#, "expected a map"),
        ] {
            let error = MigrationNetworkValue::parse(text).unwrap_err();
            let cause = std::error::Error::source(&error).unwrap().to_string();
            assert!(cause.contains(why), "{text}: {cause}");
        }
    }
}
