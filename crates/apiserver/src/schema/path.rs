//! Where in an object a check stands, written out only when there is something to report.
//!
//! A path is a chain of borrowed steps on the stack: walking a valid object allocates nothing.

use std::fmt;

#[derive(Debug, Clone, Copy)]
pub enum Path<'a> {
    Root,
    /// Text that is already written out: where the walk began.
    Base(&'a str),
    /// `.name`
    Child(&'a Path<'a>, &'a str),
    /// `[name]`: the key of a map, in the checks that tell maps from structs.
    Key(&'a Path<'a>, &'a str),
    /// `[0]`
    Index(&'a Path<'a>, usize),
}

impl Path<'_> {
    pub fn is_root(&self) -> bool {
        matches!(self, Self::Root | Self::Base(""))
    }

    /// As the `field` of an error; the real server calls the whole object `<nil>`.
    pub fn field(&self) -> String {
        or_nil(self.to_string())
    }
}

/// The field of an error about the whole object.
pub const NIL: &str = "<nil>";

pub fn or_nil(text: String) -> String {
    if text.is_empty() { NIL.to_owned() } else { text }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Base(text) => f.write_str(text),
            Self::Child(parent, name) if parent.is_root() => f.write_str(name),
            Self::Child(parent, name) => write!(f, "{parent}.{name}"),
            Self::Key(parent, name) => write!(f, "{parent}[{name}]"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}
