//! The versions of the protocol that are spoken here.
//!
//! It owns their order and their spelling. A version that is not listed is never guessed at.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A version of the CNI specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Results with interfaces; chains of plugins.
    V0_3_0,
    /// The same, with a correction of the text.
    V0_3_1,
    /// CHECK; DEL is given the result of ADD.
    V0_4_0,
    /// Addresses no longer name their family.
    V1_0_0,
    /// GC, STATUS; more about interfaces and routes.
    V1_1_0,
}

/// Not one of the versions that are spoken here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("CNI version {text:?} is not spoken here; 0.3.0, 0.3.1, 0.4.0, 1.0.0 and 1.1.0 are")]
pub struct UnknownVersion {
    /// What was given.
    pub text: String,
}

impl Version {
    /// All of them, the oldest first.
    pub const ALL: [Self; 5] = [Self::V0_3_0, Self::V0_3_1, Self::V0_4_0, Self::V1_0_0, Self::V1_1_0];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// Whether plugins can be asked if an attachment is still whole.
    pub fn has_check(self) -> bool {
        self >= Self::V0_4_0
    }

    /// Whether plugins can be asked to collect garbage, and if they are ready.
    pub fn has_gc_and_status(self) -> bool {
        self >= Self::V1_1_0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Version {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|version| version.as_str() == text);
        known.ok_or_else(|| UnknownVersion { text: text.to_owned() })
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
