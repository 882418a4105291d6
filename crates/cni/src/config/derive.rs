//! What a plugin is given on its standard input, made from the network's configuration.
//!
//! Pure. Everything that the protocol does not name passes through as it was written.

use serde_json::{Map, Value, json};

use super::{Network, Plugin};
use crate::{AttachmentId, AttachmentRequest};

/// What an operation adds to a plugin's configuration.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extras<'a> {
    /// The attachment that it is about.
    pub(crate) request: Option<&'a AttachmentRequest>,
    /// The result that the plugin builds on.
    pub(crate) previous: Option<&'a Value>,
    /// What is not garbage.
    pub(crate) valid: Option<&'a [AttachmentId]>,
}

impl Network {
    /// What this plugin is to read.
    pub(crate) fn derive(&self, plugin: &Plugin, extras: Extras<'_>) -> Value {
        let mut config = plugin.config.clone();
        config.retain(|key, _| !key.starts_with("cni.dev/") && key != "capabilities" && key != "prevResult");
        config.insert("cniVersion".to_owned(), json!(self.version));
        config.insert("name".to_owned(), json!(self.name));
        if let Some(request) = extras.request {
            let declared =
                request.capabilities.iter().filter(|(name, _)| plugin.capabilities.contains(*name));
            let granted: Map<String, Value> =
                declared.map(|(name, value)| (name.to_owned(), value.clone())).collect();
            if !granted.is_empty() {
                config.insert("runtimeConfig".to_owned(), Value::Object(granted));
            }
            insert_cni_args(&mut config, &request.cni_args);
        }
        if let Some(previous) = extras.previous {
            config.insert("prevResult".to_owned(), previous.clone());
        }
        if let Some(valid) = extras.valid {
            config.insert("cni.dev/valid-attachments".to_owned(), json!(valid));
            // The name in the first print of 1.1.0, which some plugins read.
            config.insert("cni.dev/attachments".to_owned(), json!(valid));
        }
        Value::Object(config)
    }
}

/// Adds to `args.cni`; what the request says wins over what was there.
fn insert_cni_args(config: &mut Map<String, Value>, cni_args: &Map<String, Value>) {
    if cni_args.is_empty() {
        return;
    }
    let mut inner =
        config.get("args").and_then(|args| args.get("cni")?.as_object()).cloned().unwrap_or_default();
    inner.extend(cni_args.clone());
    let mut args = config.get("args").and_then(Value::as_object).cloned().unwrap_or_default();
    args.insert("cni".to_owned(), Value::Object(inner));
    config.insert("args".to_owned(), Value::Object(args));
}
