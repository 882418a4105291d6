//! What is let into the cluster: pure judgements on machines, instances and their moves, each with the field and what to do about it.
//!
//! [`review`] is the whole of it: a request in, an answer out. Objects are judged as JSON, not as types: a field that the types do
//! not know is refused by its path, because running a machine without something that its manifest asks for is worse than
//! not running it. An update that leaves the spec as it is is never refused: rules may become stricter, and an object that is
//! there must still be able to go.

pub mod addresses;
pub mod defaults;
mod disks;
pub mod eviction;
mod hardware;
mod instance;
mod machine;
pub mod migration;
mod networks;
mod policy;
mod review;
pub mod setting;
mod unknown;

use std::collections::BTreeMap;

use api::kubevirt::{BindingPlugin, KubeVirt};

use defaults::ClusterDefaults;
pub use instance::{refuse_change, validate};
pub use machine::validate as validate_machine;
pub use policy::validate as validate_policy;
pub use review::{Answer, review};

/// What the `KubeVirt` object says that admission looks at.
#[derive(Clone, Debug)]
pub struct Rules {
    pub defaults: ClusterDefaults,
    /// Binding plugins by name.
    pub bindings: BTreeMap<String, BindingPlugin>,
    /// Whether a vNIC may be bridged to the pod network.
    pub permit_bridge_on_pod_network: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            defaults: ClusterDefaults::default(),
            bindings: BTreeMap::new(),
            permit_bridge_on_pod_network: true,
        }
    }
}

impl Rules {
    /// The rules of an installation.
    pub fn of(installation: &KubeVirt) -> Self {
        let configuration = installation.spec.configuration.as_ref();
        let network =
            configuration.and_then(|configuration| configuration.network.clone()).unwrap_or_default();
        Self {
            defaults: ClusterDefaults::of(installation),
            bindings: network.binding,
            permit_bridge_on_pod_network: network.permit_bridge_interface_on_pod_network.unwrap_or(true),
        }
    }
}

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// One word for programs: Kubernetes' own.
    pub reason: &'static str,
    /// Path of the field.
    pub field: String,
    /// A sentence for people.
    pub message: String,
}

/// What is wrong with an object, as it is found.
#[derive(Debug, Default)]
pub(crate) struct Causes(Vec<Cause>);

impl Causes {
    fn push(&mut self, reason: &'static str, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Cause { reason, field: field.into(), message: message.into() });
    }

    /// The value cannot be.
    fn invalid(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.push("FieldValueInvalid", field, message);
    }

    /// A value must be there.
    fn required(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.push("FieldValueRequired", field, message);
    }

    /// The value is there already.
    fn duplicate(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.push("FieldValueDuplicate", field, message);
    }

    /// We do not have it.
    fn unsupported(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.push("FieldValueNotSupported", field, message);
    }
}

/// Whether it is a DNS label, as namespaces and hosts are.
fn is_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Whether it is a DNS subdomain, as most objects are named.
pub(crate) fn is_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests;
