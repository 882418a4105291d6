//! `k8s.cni.cncf.io/v1`: networks that pods can be attached to, and the annotations that attach them.
//!
//! It owns the definition and both annotation formats of the Network Plumbing Working Group. A CNI configuration is a
//! string here and stays one: whoever runs it parses it, and nobody rewrites it.

mod selection;
mod status;

pub use selection::*;
pub use status::*;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The body of a definition. `spec` may be missing: then the CNI configuration on the node with the name of the
/// definition is meant.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "k8s.cni.cncf.io",
    version = "v1",
    kind = "NetworkAttachmentDefinition",
    plural = "network-attachment-definitions",
    singular = "network-attachment-definition",
    shortname = "net-attach-def",
    namespaced,
    no_spec,
    derive = "PartialEq",
    doc = "A network that pods can be attached to."
)]
pub struct NetworkAttachmentDefinitionBody {
    /// The network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<NetworkAttachmentDefinitionSpec>,
}

/// The network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkAttachmentDefinitionSpec {
    /// CNI configuration, of one plugin or a list of them, in JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}

impl NetworkAttachmentDefinition {
    /// A definition with this CNI configuration.
    pub fn with_config(name: &str, config: String) -> Self {
        let spec = NetworkAttachmentDefinitionSpec { config: Some(config) };
        Self::new(name, NetworkAttachmentDefinitionBody { spec: Some(spec) })
    }

    /// The CNI configuration, byte for byte; none: look for one on the node.
    pub fn config(&self) -> Option<&str> {
        let config = self.spec.spec.as_ref()?.config.as_deref()?;
        (!config.trim().is_empty()).then_some(config)
    }
}
