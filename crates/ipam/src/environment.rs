//! What a runtime says in the environment: which operation, on which interface of which container of which pod.
//!
//! Pure: the environment comes in as a function. Nothing here may panic, and nothing unchecked gets through: the words end up
//! in objects and file names.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cni::{AttachmentRequest, Operation, RequestError};

/// One call of the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What is to be done.
    pub operation: Operation,
    /// The container, or sandbox; empty for operations that are about none.
    pub container: String,
    /// The interface in it; empty for operations that are about none.
    pub interface: String,
    /// The network namespace that it is in, if the runtime says.
    pub namespace: Option<PathBuf>,
    args: BTreeMap<String, String>,
}

/// Why a call cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    /// A word is missing.
    #[error("{name} is not set: this program is a CNI plugin and is run by a container runtime")]
    Missing {
        /// Which.
        name: &'static str,
    },
    /// Not an operation of the protocol.
    #[error("CNI_COMMAND is {given:?}; ADD, DEL, CHECK, GC, STATUS and VERSION are known")]
    Command {
        /// What was given.
        given: String,
    },
    /// A word breaks the rules of the protocol.
    #[error("the environment breaks a rule of CNI")]
    Word {
        /// Which rule.
        #[source]
        source: RequestError,
    },
    /// The pod is not named.
    #[error("CNI_ARGS does not say which pod this is for: {key} is missing")]
    Pod {
        /// What is missing.
        key: &'static str,
    },
}

impl Call {
    /// Reads the environment.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, EnvironmentError> {
        let get = |name: &'static str| {
            variable(name).filter(|value| !value.is_empty()).ok_or(EnvironmentError::Missing { name })
        };
        let operation = match get("CNI_COMMAND")?.as_str() {
            "ADD" => Operation::Add,
            "DEL" => Operation::Del,
            "CHECK" => Operation::Check,
            "STATUS" => Operation::Status,
            "GC" => Operation::Gc,
            "VERSION" => Operation::Version,
            given => return Err(EnvironmentError::Command { given: given.to_owned() }),
        };
        let args = variable("CNI_ARGS").unwrap_or_default();
        let mut call = Self {
            operation,
            container: String::new(),
            interface: String::new(),
            namespace: variable("CNI_NETNS").filter(|path| path.starts_with('/')).map(PathBuf::from),
            args: pairs(&args),
        };
        if matches!(operation, Operation::Add | Operation::Del | Operation::Check) {
            call.container = get("CNI_CONTAINERID")?;
            call.interface = get("CNI_IFNAME")?;
            // The namespace is the business of the plugin that makes the interface.
            let words = AttachmentRequest::new(&call.container, "/", &call.interface);
            words.validate().map_err(|source| EnvironmentError::Word { source })?;
        }
        Ok(call)
    }

    /// A value of `CNI_ARGS`.
    pub fn arg(&self, key: &str) -> Option<&str> {
        self.args.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Namespace and name of the pod.
    pub fn pod(&self) -> Result<(&str, &str), EnvironmentError> {
        let of = |key| self.arg(key).ok_or(EnvironmentError::Pod { key });
        Ok((of("K8S_POD_NAMESPACE")?, of("K8S_POD_NAME")?))
    }

    /// UID of the pod, if the runtime knows it.
    pub fn pod_uid(&self) -> Option<&str> {
        self.arg("K8S_POD_UID")
    }
}

/// `key=value;key=value`. What has no `=` says nothing, as other plugins read it.
fn pairs(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split(';').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says what it expects")]
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Call, EnvironmentError> {
        Call::read(|key| pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn a_call_names_a_pod_and_its_interface() {
        let call = read(&[
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "c1"),
            ("CNI_IFNAME", "net1"),
            ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=a;K8S_POD_UID=u;junk"),
        ]);
        let call = call.unwrap();
        assert_eq!(call.pod(), Ok(("default", "a")));
        assert_eq!((call.pod_uid(), call.arg("IP"), call.arg("junk")), (Some("u"), None, None));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let text = |pairs: &[(&str, &str)]| read(pairs).unwrap_err().to_string();
        assert!(text(&[]).contains("CNI_COMMAND"));
        assert!(text(&[("CNI_COMMAND", "add")]).contains("\"add\""));
        assert!(text(&[("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", "c")]).contains("CNI_IFNAME"));
        let slash = read(&[("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", "../c"), ("CNI_IFNAME", "eth0")]);
        assert!(matches!(slash, Err(EnvironmentError::Word { .. })));
        let call = read(&[("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "c"), ("CNI_IFNAME", "eth0")]).unwrap();
        assert_eq!(call.pod(), Err(EnvironmentError::Pod { key: "K8S_POD_NAMESPACE" }));
    }

    #[test]
    fn operations_about_no_container_need_none() {
        for command in ["GC", "STATUS", "VERSION"] {
            assert!(read(&[("CNI_COMMAND", command)]).is_ok(), "{command}");
        }
    }
}
