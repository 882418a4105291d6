//! One attachment that is wanted: which container, which namespace, which interface.
//!
//! It owns the rules for these words. They end up in the environment of plugins, so nothing unchecked gets through.

use std::path::PathBuf;

use api::multus::{NetworkSelection, is_interface_name};
use api::names::annotations::IPAM_CLAIM_REFERENCE;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    Capabilities,
    name::{NameError, check_identifier},
};

/// An attachment that is wanted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachmentRequest {
    /// The container, or sandbox.
    pub container_id: String,
    /// Path of its network namespace.
    pub namespace: PathBuf,
    /// Name of the interface in it.
    pub interface: String,
    /// `CNI_ARGS`.
    #[serde(default)]
    pub args: Vec<(String, String)>,
    /// What becomes `runtimeConfig`.
    #[serde(default)]
    pub capabilities: Capabilities,
    /// What becomes `args.cni` in every plugin's configuration.
    #[serde(default)]
    pub cni_args: Map<String, Value>,
}

/// A request that cannot be made to any plugin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Not a container ID.
    #[error("container ID")]
    ContainerId {
        /// The rule.
        #[source]
        source: NameError,
    },
    /// Not a name for an interface.
    #[error("interface {name:?} must be 1 to 15 characters without spaces, '/' or ':', and not '.' or '..'")]
    Interface {
        /// What was given.
        name: String,
    },
    /// Not an absolute path in UTF-8.
    #[error("network namespace {path:?} must be an absolute path")]
    Namespace {
        /// What was given.
        path: PathBuf,
    },
    /// It would read as something else among the others.
    #[error(
        "CNI_ARGS {key:?}={value:?} must not contain ';', '=' or control characters, and its key not be empty"
    )]
    Args {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
}

impl AttachmentRequest {
    /// This interface of this container, nothing special.
    pub fn new(container_id: &str, namespace: impl Into<PathBuf>, interface: &str) -> Self {
        Self {
            container_id: container_id.to_owned(),
            namespace: namespace.into(),
            interface: interface.to_owned(),
            args: Vec::new(),
            capabilities: Capabilities::new(),
            cni_args: Map::new(),
        }
    }

    /// With what an element of the networks annotation asks for; its interface name too, if it has one.
    #[must_use]
    pub fn with_selection(mut self, selection: &NetworkSelection) -> Self {
        if let Some(interface) = &selection.interface {
            self.interface.clone_from(interface);
        }
        self.capabilities = Capabilities::of_selection(selection);
        self.cni_args.clone_from(&selection.cni_args);
        if let Some(claim) = &selection.ipam_claim_reference {
            // Multus drops it; plugins that give addresses need it, and no capability is made for it.
            self.cni_args.insert(IPAM_CLAIM_REFERENCE.to_owned(), claim.clone().into());
        }
        self
    }

    /// With one more pair in `CNI_ARGS`.
    #[must_use]
    pub fn with_arg(mut self, key: &str, value: &str) -> Self {
        self.args.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Whether plugins can be given this.
    pub fn validate(&self) -> Result<(), RequestError> {
        check_identifier(&self.container_id).map_err(|source| RequestError::ContainerId { source })?;
        if !is_interface_name(&self.interface) {
            return Err(RequestError::Interface { name: self.interface.clone() });
        }
        let namespace = self.namespace.to_str();
        if !self.namespace.is_absolute() || namespace.is_none_or(|path| path.contains(char::is_control)) {
            return Err(RequestError::Namespace { path: self.namespace.clone() });
        }
        let ambiguous = |text: &str| text.contains(|c: char| matches!(c, ';' | '=') || c.is_control());
        match self.args.iter().find(|(key, value)| key.is_empty() || ambiguous(key) || ambiguous(value)) {
            Some((key, value)) => Err(RequestError::Args { key: key.clone(), value: value.clone() }),
            None => Ok(()),
        }
    }

    /// As `CNI_ARGS` is written.
    pub(crate) fn args_text(&self) -> String {
        let pairs: Vec<String> = self.args.iter().map(|(key, value)| format!("{key}={value}")).collect();
        pairs.join(";")
    }
}
