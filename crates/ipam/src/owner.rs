//! Who has an address: the interface of a pod, or a claim.
//!
//! Two owners are the same if they are the same interface of the same pod (by UID), or the same claim (by UID): a pod whose
//! sandbox was restarted keeps its addresses. Names are for people, UIDs decide.

use std::cmp::Ordering;
use std::fmt;

use api::godwit::AddressOwner;

/// Who has an address.
#[derive(Clone, Debug, Default)]
pub struct Owner(pub AddressOwner);

impl Owner {
    /// What tells owners apart.
    fn identity(&self) -> (u8, &str, &str) {
        match (&self.0.pod, &self.0.claim) {
            (_, Some(claim)) => (0, &claim.uid, ""),
            (Some(pod), None) => (1, &pod.uid, &pod.interface),
            (None, None) => (2, "", ""),
        }
    }

    /// UID of the pod or the claim.
    pub fn uid(&self) -> &str {
        self.identity().1
    }

    /// A text that is the same for the same owner, and no other's.
    pub(crate) fn key(&self) -> String {
        let (kind, uid, interface) = self.identity();
        format!("{kind}/{uid}/{interface}")
    }

    /// Namespace of the pod or the claim.
    pub(crate) fn namespace(&self) -> &str {
        match (&self.0.pod, &self.0.claim) {
            (_, Some(claim)) => &claim.namespace,
            (Some(pod), None) => &pod.namespace,
            (None, None) => "",
        }
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Owner {}

impl PartialOrd for Owner {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Owner {
    fn cmp(&self, other: &Self) -> Ordering {
        self.identity().cmp(&other.identity())
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0.pod, &self.0.claim) {
            (_, Some(claim)) => write!(f, "claim {}/{}", claim.namespace, claim.name),
            (Some(pod), None) => {
                let api::godwit::PodInterface { namespace, name, interface, node_name, .. } = pod;
                write!(f, "pod {namespace}/{name} (interface {interface}, node {node_name})")
            }
            (None, None) => f.write_str("nobody that is named"),
        }
    }
}
