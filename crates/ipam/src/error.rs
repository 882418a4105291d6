//! Why an operation failed, as a person and as a runtime hear it.
//!
//! Each error has a code of the protocol, or one of ours from 100 on. The text names the object and what happened; what can
//! be done about it is in the details, after the causes.

use std::error::Error as _;
use std::path::PathBuf;

use addressing::decision::Refusal;
use serde_json::{Value, json};

use crate::standby::StandbyError;
use crate::wire::WireError;
use crate::{ConfigError, EnvironmentError, Owner};

/// Codes of errors: below 100 the protocol's, from there on ours.
pub mod codes {
    /// The version is not spoken.
    pub const VERSION: u32 = 1;
    /// The environment is wrong.
    pub const ENVIRONMENT: u32 = 4;
    /// A file cannot be read or written.
    pub const INPUT_OUTPUT: u32 = 5;
    /// The configuration is not JSON.
    pub const DECODE: u32 = 6;
    /// The configuration is wrong.
    pub const CONFIGURATION: u32 = 7;
    /// It may work later.
    pub const TRY_AGAIN: u32 = 11;
    /// The plugin cannot give addresses now; the answer to STATUS.
    pub const NOT_AVAILABLE: u32 = 50;
    /// The pool has no free address.
    pub const EXHAUSTED: u32 = 100;
    /// The address that was asked for cannot be had.
    pub const REFUSED: u32 = 101;
    /// The API server says no.
    pub const DENIED: u32 = 102;
    /// CHECK: an address is not the interface's any more.
    pub const NOT_HELD: u32 = 103;
}

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{} cannot be read", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the settings in {}", path.display())]
    Settings {
        path: PathBuf,
        #[source]
        source: Box<ConfigError>,
    },
    #[error(
        "there is no kubeconfig: set ipam.kubernetes.kubeconfig, or put one where it is looked for ({looked})"
    )]
    NoKubeconfig { looked: String },
    #[error("the journal {} cannot be used", path.display())]
    Journal {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the API server refuses {what} ({status}): {message}")]
    Api { what: String, status: u16, message: String },
    #[error("the API server's answer to {what} is not what it should be")]
    Answer {
        what: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("the network name {network:?} is too long to name objects after")]
    Name { network: String },
    #[error("pod {namespace}/{name} is not there any more, or not yet")]
    NoPod { namespace: String, name: String },
    #[error("{claim}, which the pod refers to, {why}")]
    Claim { claim: String, why: String },
    #[error("{0}")]
    Refused(#[source] Box<Refusal<Owner>>),
    #[error("{summary}")]
    Exhausted { summary: String, holders: String },
    #[error("the pod's interface cannot be made mute until its addresses are the guest's")]
    Standby(#[from] StandbyError),
    #[error("others were faster {attempts} times in a row")]
    Contended { attempts: u32 },
    #[error("{} of the attachments that the runtime does not list could not be freed", failures.len())]
    Garbage { failures: Vec<Self> },
    #[error("{address} of network {network} is {held}, not of {owner}")]
    NotHeld { address: std::net::IpAddr, network: String, held: String, owner: String },
}

impl Error {
    /// The code that a runtime hears.
    pub fn code(&self) -> u32 {
        match self {
            Self::Environment(_) => codes::ENVIRONMENT,
            Self::Config(ConfigError::Json { .. }) => codes::DECODE,
            Self::Config(ConfigError::Version { .. }) => codes::VERSION,
            Self::Config(_)
            | Self::Settings { .. }
            | Self::NoKubeconfig { .. }
            | Self::Name { .. }
            | Self::Wire(WireError::Access { .. }) => codes::CONFIGURATION,
            Self::File { .. } | Self::Journal { .. } => codes::INPUT_OUTPUT,
            Self::Api { status, .. } if *status < 500 && *status != 429 => codes::DENIED,
            Self::Refused(refusal) if !matches!(**refusal, Refusal::Resting { .. }) => codes::REFUSED,
            Self::Exhausted { .. } => codes::EXHAUSTED,
            Self::NotHeld { .. } => codes::NOT_HELD,
            Self::Garbage { failures } => failures.first().map_or(codes::TRY_AGAIN, Self::code),
            Self::Wire(_)
            | Self::Api { .. }
            | Self::Answer { .. }
            | Self::NoPod { .. }
            | Self::Claim { .. }
            | Self::Contended { .. }
            | Self::Standby(_)
            | Self::Refused(_) => codes::TRY_AGAIN,
        }
    }

    /// What can be done about it.
    fn advice(&self) -> &'static str {
        match self {
            Self::Exhausted { .. } => {
                "widen the range, or delete pods or claims that need no address; kubectl get addressallocations shows who has which"
            }
            Self::Refused(_) | Self::NotHeld { .. } => {
                "kubectl get addressallocations shows who has which address"
            }
            Self::Claim { .. } => {
                "it is tried again when the runtime asks again; kubectl get ipamclaims shows what there is"
            }
            Self::Api { status: 403, .. } => {
                "the plugin's user needs get, list, create, update and delete of addressallocations.godwit.dev; get of pods; get of ipamclaims and update of their status"
            }
            Self::Api { status: 404, .. } => {
                "are the definitions of godwit.dev and k8s.cni.cncf.io installed?"
            }
            _ => "",
        }
    }

    /// The causes and what to do.
    pub fn details(&self) -> String {
        // Transparent errors, and those whose text is their source's, must not say it twice.
        let source = match self {
            Self::Refused(_) => None,
            other => other.source(),
        };
        let mut parts = source.map(with_causes).unwrap_or_default();
        match self {
            Self::Exhausted { holders, .. } => parts.push(holders.clone()),
            Self::Garbage { failures } => {
                parts.extend(failures.iter().flat_map(|failure| [failure.to_string(), failure.details()]));
            }
            _ => {}
        }
        parts.push(self.advice().to_owned());
        parts.retain(|part| !part.is_empty());
        parts.join("; ")
    }

    /// As the protocol writes it.
    pub(crate) fn render(&self, version: &str, code: u32) -> Value {
        json!({ "cniVersion": version, "code": code, "msg": self.to_string(), "details": self.details() })
    }
}

/// What an error says, and each of its causes.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(Some(error), |&error| error.source()).map(ToString::to_string).collect()
}
