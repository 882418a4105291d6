//! One attachment as the journal keeps it: enough to check it, to give its result again, and to undo it, with nothing else
//! at hand.

use std::{fmt, fs, io, os::unix::fs::MetadataExt as _, path::Path};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{Attachment, AttachmentId, AttachmentRequest, Network, error::chain, parse};

/// The form of the file. A file of another form is set aside, not guessed at.
const FORM: u32 = 1;

/// Which attachment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The container.
    pub container_id: String,
    /// Name of the interface in it.
    pub interface: String,
    /// Name of the network.
    pub network: String,
}

impl Key {
    pub(crate) fn of(network: &Network, request: &AttachmentRequest) -> Self {
        Self {
            container_id: request.container_id.clone(),
            interface: request.interface.clone(),
            network: network.name().to_owned(),
        }
    }

    /// A file name: the parts themselves may be longer than one can be.
    pub(super) fn digest(&self) -> String {
        // No part can contain the separator.
        let text = format!("{}\0{}\0{}", self.container_id, self.network, self.interface);
        let digest = Sha256::digest(text);
        digest.iter().take(16).fold(String::new(), |name, byte| format!("{name}{byte:02x}"))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "interface {} of container {} to network {}",
            self.interface, self.container_id, self.network
        )
    }
}

/// Which namespace is meant, whatever its path says later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceId {
    device: u64,
    inode: u64,
}

impl NamespaceId {
    /// Of the namespace at this path.
    pub fn of(path: &Path) -> io::Result<Self> {
        let file = fs::metadata(path)?;
        Ok(Self { device: file.dev(), inode: file.ino() })
    }
}

/// How far an attachment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Plugins may have made something: it is to be undone.
    Adding,
    /// All plugins are done.
    Attached,
    /// Plugins may have undone something: it is to be undone whole.
    Detaching,
}

/// An attachment.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The network as it was then.
    pub network: Network,
    /// What was asked for.
    pub request: AttachmentRequest,
    /// The namespace that was attached.
    pub namespace: NamespaceId,
    /// How far it is.
    pub stage: Stage,
    /// What the last plugin answered, word for word, and what that means.
    result: Option<(Value, Attachment)>,
    /// Its number among those that began in this life of the process; 0: in an earlier one.
    pub(crate) sequence: u64,
}

/// As it is written.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    form: u32,
    network: Value,
    request: AttachmentRequest,
    namespace: NamespaceId,
    stage: Stage,
    result: Option<Value>,
}

impl Entry {
    pub(crate) fn adding(network: Network, request: AttachmentRequest, namespace: NamespaceId) -> Self {
        Self { network, request, namespace, stage: Stage::Adding, result: None, sequence: 0 }
    }

    pub(crate) fn attached(&self, result: Value, attachment: Attachment) -> Self {
        Self { stage: Stage::Attached, result: Some((result, attachment)), ..self.clone() }
    }

    pub(crate) fn detaching(&self) -> Self {
        Self { stage: Stage::Detaching, ..self.clone() }
    }

    /// Which attachment it is.
    pub fn key(&self) -> Key {
        Key::of(&self.network, &self.request)
    }

    /// What plugins call it.
    pub fn id(&self) -> AttachmentId {
        AttachmentId::new(&self.request.container_id, &self.request.interface)
    }

    /// What was made; none: it was not done, or is being undone.
    pub fn attachment(&self) -> Option<&Attachment> {
        self.result.as_ref().filter(|_| self.stage == Stage::Attached).map(|(_, attachment)| attachment)
    }

    pub(crate) fn result(&self) -> Option<&Value> {
        self.result.as_ref().map(|(result, _)| result)
    }

    /// Whether the namespace is gone: nothing at its path, or another namespace.
    pub fn namespace_is_gone(&self) -> bool {
        !NamespaceId::of(&self.request.namespace).is_ok_and(|now| now == self.namespace)
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec_pretty(&Written {
            form: FORM,
            network: self.network.to_value(),
            request: self.request.clone(),
            namespace: self.namespace,
            stage: self.stage,
            result: self.result().cloned(),
        })
    }

    /// Reads an entry; the error is for a person.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let written: Written = serde_json::from_slice(bytes).map_err(|cause| cause.to_string())?;
        if written.form != FORM {
            return Err(format!("it is of form {}, and only form {FORM} is known", written.form));
        }
        written.request.validate().map_err(|cause| chain(&cause))?;
        let network = parse(written.network.to_string().as_bytes()).map_err(|cause| chain(&cause))?;
        let result = match written.result {
            None if written.stage == Stage::Attached => {
                return Err("it is attached and has no result".to_owned());
            }
            None => None,
            Some(result) => {
                let attachment = Attachment::from_value(&result).map_err(|cause| chain(&cause))?;
                Some((result, attachment))
            }
        };
        Ok(Self {
            network,
            request: written.request,
            namespace: written.namespace,
            stage: written.stage,
            result,
            sequence: 0,
        })
    }
}
