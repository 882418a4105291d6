//! Network configurations: what an administrator or a definition says a network is.
//!
//! Both forms, of one plugin and of a list, become a [`Network`] whose every plugin can be looked for, or an error that
//! names the field and the rule. What plugins alone understand is kept as it is. Nothing here may panic: the text comes
//! from users. Plugins in a folder beside the file (`loadOnlyInlinedPlugins`) are younger than 1.1.0 and not read.

mod derive;
mod load;

pub(crate) use derive::Extras;
pub use load::{Load, LoadError, default_network, named_network, network_of_definition};

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{
    Capabilities, Version,
    name::{NameError, PluginName, check_identifier},
};

/// The largest configuration that is read. An object in Kubernetes is not larger either.
const SIZE_MAX: usize = 1024 * 1024;

/// A network: its name, and the plugins that attach to it, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    name: String,
    version: Version,
    disable_check: bool,
    disable_gc: bool,
    plugins: Vec<Plugin>,
}

/// One plugin of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Plugin {
    name: PluginName,
    capabilities: BTreeSet<String>,
    config: Map<String, Value>,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Larger than anything that makes sense.
    #[error("the CNI configuration has {size} bytes; {SIZE_MAX} are allowed")]
    TooLarge {
        /// Its size.
        size: usize,
    },
    /// Not JSON.
    #[error("the CNI configuration is not JSON")]
    Json {
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// A field that must be there.
    #[error("{field} is missing in the CNI configuration")]
    Missing {
        /// Where.
        field: String,
    },
    /// A field of the wrong type.
    #[error("{field} in the CNI configuration must be {expected}")]
    Type {
        /// Where.
        field: String,
        /// What it must be.
        expected: &'static str,
    },
    /// A name against the rules.
    #[error("{field} in the CNI configuration")]
    Name {
        /// Where.
        field: String,
        /// The rule.
        #[source]
        source: NameError,
    },
    /// No version in common.
    #[error(
        "the CNI configuration is of version {given}; 0.3.0, 0.3.1, 0.4.0, 1.0.0 and 1.1.0 are spoken here"
    )]
    Version {
        /// What it names.
        given: String,
    },
    /// An empty list of plugins.
    #[error("plugins in the CNI configuration is empty")]
    NoPlugins,
}

/// Reads a configuration in either form, from any bytes.
pub fn parse(bytes: &[u8]) -> Result<Network, ConfigError> {
    Network::from_object(&object(bytes)?)
}

/// The bytes as a JSON object, nothing in it believed.
fn object(bytes: &[u8]) -> Result<Map<String, Value>, ConfigError> {
    if bytes.len() > SIZE_MAX {
        return Err(ConfigError::TooLarge { size: bytes.len() });
    }
    match serde_json::from_slice(bytes).map_err(|source| ConfigError::Json { source })? {
        Value::Object(object) => Ok(object),
        _ => Err(ConfigError::Type { field: "the whole".to_owned(), expected: "an object" }),
    }
}

impl Network {
    fn from_object(object: &Map<String, Value>) -> Result<Self, ConfigError> {
        let name = text(object, "", "name")?.ok_or_else(|| missing("", "name"))?;
        check_identifier(name).map_err(|source| ConfigError::Name { field: "name".to_owned(), source })?;
        let plugins = match object.get("plugins") {
            Some(Value::Array(plugins)) if plugins.is_empty() => return Err(ConfigError::NoPlugins),
            Some(Value::Array(plugins)) => {
                let numbered = plugins.iter().enumerate();
                numbered
                    .map(|(n, plugin)| Plugin::parse(plugin, &format!("plugins[{n}].")))
                    .collect::<Result<_, _>>()?
            }
            Some(_) => return Err(wrong("", "plugins", "a list of objects")),
            None => vec![Plugin::from_object(object.clone(), "")?],
        };
        Ok(Self {
            name: name.to_owned(),
            version: version(object)?,
            disable_check: flag(object, "disableCheck")?,
            disable_gc: flag(object, "disableGC")?,
            plugins,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version that its plugins are spoken to in: the highest that both it and we know.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Its plugins, in the order of ADD.
    pub fn plugins(&self) -> &[Plugin] {
        &self.plugins
    }

    /// Whether its attachments may be checked.
    pub fn can_check(&self) -> bool {
        self.version.has_check() && !self.disable_check
    }

    /// Whether its plugins may be asked to collect garbage.
    pub fn can_gc(&self) -> bool {
        self.version.has_gc_and_status() && !self.disable_gc
    }

    /// The requests that no plugin of this network has declared: they would be ignored.
    pub fn undeclared<'a>(&self, requests: &'a Capabilities) -> Vec<&'a str> {
        let declared = |name: &str| self.plugins.iter().any(|plugin| plugin.capabilities.contains(name));
        requests.iter().map(|(name, _)| name).filter(|name| !declared(name)).collect()
    }

    /// As a configuration list that [`parse`] reads as this network.
    pub fn to_value(&self) -> Value {
        let plugins: Vec<&Map<String, Value>> = self.plugins.iter().map(|plugin| &plugin.config).collect();
        json!({
            "cniVersion": self.version,
            "name": self.name,
            "disableCheck": self.disable_check,
            "disableGC": self.disable_gc,
            "plugins": plugins,
        })
    }
}

impl Plugin {
    fn parse(value: &Value, at: &str) -> Result<Self, ConfigError> {
        match value {
            Value::Object(object) => Self::from_object(object.clone(), at),
            _ => Err(ConfigError::Type { field: at.trim_end_matches('.').to_owned(), expected: "an object" }),
        }
    }

    fn from_object(config: Map<String, Value>, at: &str) -> Result<Self, ConfigError> {
        let name = text(&config, at, "type")?.ok_or_else(|| missing(at, "type"))?;
        let name = plugin_name(name, format!("{at}type"))?;
        // The plugin looks for this one itself; it is ours to see that it does so by name.
        if let Some(Value::Object(ipam)) = config.get("ipam") {
            let at = format!("{at}ipam.");
            if let Some(name) = text(ipam, &at, "type")?.filter(|name| !name.is_empty()) {
                plugin_name(name, format!("{at}type"))?;
            }
        }
        let declared = match config.get("capabilities") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(declared)) => declared.clone(),
            Some(_) => return Err(wrong(at, "capabilities", "an object of booleans")),
        };
        let mut capabilities = BTreeSet::new();
        for (capability, declared) in declared {
            match declared {
                Value::Bool(true) => _ = capabilities.insert(capability),
                Value::Bool(false) => {}
                _ => return Err(wrong(at, &format!("capabilities.{capability}"), "a boolean")),
            }
        }
        Ok(Self { name, capabilities, config })
    }

    /// Its name: that of its file.
    pub fn name(&self) -> &PluginName {
        &self.name
    }

    /// Its configuration, as it was written.
    pub fn config(&self) -> &Map<String, Value> {
        &self.config
    }
}

fn plugin_name(name: &str, field: String) -> Result<PluginName, ConfigError> {
    PluginName::new(name).map_err(|source| ConfigError::Name { field, source })
}

/// The highest version of `cniVersion` and `cniVersions` that is spoken here.
fn version(object: &Map<String, Value>) -> Result<Version, ConfigError> {
    let mut given: Vec<&str> = text(object, "", "cniVersion")?.into_iter().collect();
    match object.get("cniVersions") {
        None | Some(Value::Null) => {}
        Some(Value::Array(versions)) => {
            for (n, version) in versions.iter().enumerate() {
                let version = version.as_str();
                given.push(version.ok_or_else(|| wrong("", &format!("cniVersions[{n}]"), "a string"))?);
            }
        }
        Some(_) => return Err(wrong("", "cniVersions", "a list of strings")),
    }
    if given.is_empty() {
        return Err(missing("", "cniVersion"));
    }
    let spoken = given.iter().filter_map(|version| version.parse().ok()).max();
    spoken.ok_or_else(|| ConfigError::Version { given: given.join(", ") })
}

fn text<'a>(object: &'a Map<String, Value>, at: &str, field: &str) -> Result<Option<&'a str>, ConfigError> {
    match object.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(wrong(at, field, "a string")),
    }
}

/// A boolean, which others' reader also takes as a string.
fn flag(object: &Map<String, Value>, field: &str) -> Result<bool, ConfigError> {
    match object.get(field) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(_) => Err(wrong("", field, "a boolean")),
    }
}

fn missing(at: &str, field: &str) -> ConfigError {
    ConfigError::Missing { field: format!("{at}{field}") }
}

fn wrong(at: &str, field: &str, expected: &'static str) -> ConfigError {
    ConfigError::Type { field: format!("{at}{field}"), expected }
}
