//! Names that become file names or words of the protocol.
//!
//! A plugin is found by its name in directories that the administrator chose. A name that could lead anywhere else is
//! refused here, before anybody looks for it.

use std::fmt;

/// The longest name that a file can have.
const FILE_NAME_MAX: usize = 255;

/// A name that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It could be a path, or no file can have it.
    #[error(
        "plugin {name:?} must be the name of a file: 1 to 255 characters, not beginning with '.', without '/', '\\' and control characters"
    )]
    Plugin {
        /// What was given.
        name: String,
    },
    /// Against the rule of the protocol for names of networks and containers.
    #[error(
        "{name:?} must begin with a letter or digit and go on with letters, digits, '_', '.' and '-', 255 at most"
    )]
    Identifier {
        /// What was given.
        name: String,
    },
}

/// The name of a plugin: of a file in a plugin directory, never a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PluginName(String);

impl PluginName {
    /// The name, if it is no path.
    pub fn new(name: &str) -> Result<Self, NameError> {
        let allowed = |character: char| !matches!(character, '/' | '\\') && !character.is_control();
        let usable =
            (1..=FILE_NAME_MAX).contains(&name.len()) && !name.starts_with('.') && name.chars().all(allowed);
        if usable { Ok(Self(name.to_owned())) } else { Err(NameError::Plugin { name: name.to_owned() }) }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PluginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The rule of the protocol for names of networks and containers.
pub(crate) fn check_identifier(name: &str) -> Result<(), NameError> {
    let mut bytes = name.bytes();
    let usable = name.len() <= FILE_NAME_MAX
        && bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'));
    if usable { Ok(()) } else { Err(NameError::Identifier { name: name.to_owned() }) }
}
