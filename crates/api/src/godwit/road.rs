//! What a node's handler says of the network that guest memory takes: JSON in an annotation of its node.
//!
//! It is a report, not a request: nobody but the handler of that node writes it, and readers look at its age.

use std::{collections::BTreeMap, net::IpAddr};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use serde::{Deserialize, Serialize};

/// One node's end of the road.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoadReport {
    /// `namespace/name` of the definition that the address is on; none: the pod network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Where the node's handler listens; none: nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The interface that has the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Why guest memory cannot come or go, or why it takes another network than it should.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Nodes whose handlers answered from there.
    #[serde(default)]
    pub reached: Vec<String>,
    /// Nodes whose handlers did not, and why.
    #[serde(default)]
    pub unreached: BTreeMap<String, String>,
    /// When this was so.
    pub at: Time,
}

impl RoadReport {
    /// Reads the annotation. One that cannot be read says nothing.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The same at another time.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let timeless = |report: &Self| Self { at: Time(Timestamp::UNIX_EPOCH), ..report.clone() };
        timeless(self) == timeless(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_its_annotation_and_nonsense_says_nothing() {
        let report = RoadReport {
            network: Some("kubevirt/fast".into()),
            address: Some([192, 0, 2, 7].into()),
            interface: Some("migration0".into()),
            problem: None,
            reached: vec!["node-2".into()],
            unreached: [("node-3".to_owned(), "no answer".to_owned())].into(),
            at: Time(Timestamp::from_second(7).unwrap()),
        };
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(RoadReport::parse(&text), Some(report.clone()));
        assert!(report.says_the_same(&RoadReport { at: Time(Timestamp::UNIX_EPOCH), ..report.clone() }));
        assert!(!report.says_the_same(&RoadReport { reached: Vec::new(), ..report.clone() }));
        assert_eq!(RoadReport::parse("{"), None);
    }
}
