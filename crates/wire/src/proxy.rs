//! The CNI proxy: a launcher asks the handler of its node to attach and detach its vNICs.
//!
//! The handler knows from the socket which pod asks, and from the VM's spec what its vNICs are. A request names a vNIC and
//! nothing else, and whatever else it carries makes it invalid.

use serde::{Deserialize, Serialize};

use crate::{Vnic, VnicName};

/// What a launcher asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase", deny_unknown_fields)]
pub enum ProxyRequest {
    /// Attach the vNIC; one that is attached stays as it is, and the answer is the same.
    Add {
        /// Which.
        vnic: VnicName,
    },
    /// Say whether the attachment is as it was made.
    Check {
        /// Which.
        vnic: VnicName,
    },
    /// Detach the vNIC; one that is not attached is well detached.
    Del {
        /// Which.
        vnic: VnicName,
    },
    /// Say what is attached.
    List {},
}

/// What the handler answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "lowercase")]
pub enum ProxyResponse {
    /// To add: it is attached.
    Added {
        /// What the network gave.
        vnic: Box<Vnic>,
    },
    /// To check: it is as it was made.
    Checked {
        /// Which.
        vnic: VnicName,
    },
    /// To del: it is not attached.
    Deleted {
        /// Which.
        vnic: VnicName,
    },
    /// To list.
    Listed {
        /// What is attached, in the order in which it was.
        vnics: Vec<Vnic>,
    },
    /// To anything: it could not be done.
    Failed {
        /// Why, for people.
        error: String,
    },
}
