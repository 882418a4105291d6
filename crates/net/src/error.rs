//! What can go wrong, and how errors of a teardown are collected.
//!
//! Every variant says what was being done, to what, in which namespace. The cause stays in `source`, and its text is not
//! repeated. "Already there" and "not there" are variants of their own, because callers act on them.

use std::fmt;
use std::path::PathBuf;

use nix::errno::Errno;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{operation} {object} in namespace {namespace}: it is already there")]
    AlreadyExists {
        operation: &'static str,
        object: String,
        namespace: String,
        #[source]
        source: Refusal,
    },
    #[error("{operation} {object} in namespace {namespace}: it is not there")]
    NotFound {
        operation: &'static str,
        object: String,
        namespace: String,
        #[source]
        source: Refusal,
    },
    #[error("{operation} {object} in namespace {namespace}: this kernel cannot do that")]
    Unsupported {
        operation: &'static str,
        object: String,
        namespace: String,
        #[source]
        source: Refusal,
    },
    #[error("{operation} {object} in namespace {namespace} failed")]
    Refused {
        operation: &'static str,
        object: String,
        namespace: String,
        #[source]
        source: Refusal,
    },
    /// Something of that name is there, and it is not what was asked for.
    #[error(
        "{object} in namespace {namespace} is there, but it is {found} and not {wanted}; delete it or choose another name"
    )]
    Different { object: String, namespace: String, wanted: String, found: String },
    /// The caller asked for something that cannot be; nothing was done.
    #[error("{object} is not possible: {rule}")]
    Invalid { object: String, rule: &'static str },
    #[error("the netlink connection to namespace {namespace} ended while {operation} {object} was under way")]
    Disconnected { operation: &'static str, object: String, namespace: String },
    #[error("opening a netlink connection to namespace {namespace} failed")]
    Connect {
        namespace: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{operation} {path} failed", path = path.display())]
    File {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("starting a thread in namespace {namespace} failed")]
    Enter {
        namespace: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{} steps of {operation} failed: {}", errors.len(), Listed(errors))]
    Several { operation: &'static str, errors: Vec<Error> },
}

impl Error {
    /// What was to be made is there already.
    pub fn is_already_exists(&self) -> bool {
        match self {
            Self::AlreadyExists { .. } => true,
            Self::File { source, .. } => source.kind() == std::io::ErrorKind::AlreadyExists,
            _ => false,
        }
    }

    /// What was to be read, changed or deleted is not there.
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::NotFound { .. } => true,
            Self::File { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
            _ => false,
        }
    }

    /// The kernel was built without it.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Unsupported { .. })
    }

    /// Sorts the kernel's answer to `operation` on `object`.
    pub(crate) fn refused(
        operation: &'static str,
        object: String,
        namespace: String,
        source: Refusal,
    ) -> Self {
        match source.errno {
            Errno::EEXIST => Self::AlreadyExists { operation, object, namespace, source },
            Errno::ENODEV | Errno::ENOENT | Errno::ESRCH | Errno::EADDRNOTAVAIL | Errno::ENXIO => {
                Self::NotFound { operation, object, namespace, source }
            }
            Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT => {
                Self::Unsupported { operation, object, namespace, source }
            }
            _ => Self::Refused { operation, object, namespace, source },
        }
    }
}

/// The kernel's answer: an error number and, where the kernel has more to say, its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub(crate) errno: Errno,
    pub(crate) words: Option<String>,
}

impl Refusal {
    pub fn errno(&self) -> i32 {
        self.errno as i32
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self { errno, words: None }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.words {
            Some(words) => write!(out, "{words} ({})", self.errno),
            None => self.errno.fmt(out),
        }
    }
}

impl std::error::Error for Refusal {}

/// Errors with their causes, one after the other.
struct Listed<'a>(&'a [Error]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, error) in self.0.iter().enumerate() {
            out.write_str(if place == 0 { "" } else { "; " })?;
            error.fmt(out)?;
            let mut cause = std::error::Error::source(error);
            while let Some(error) = cause {
                write!(out, ": {error}")?;
                cause = error.source();
            }
        }
        Ok(())
    }
}

/// A teardown goes on past errors and reports them all: it tries every step and remembers what failed.
#[derive(Debug)]
#[must_use = "the errors are in it: call finish"]
pub struct Teardown {
    operation: &'static str,
    errors: Vec<Error>,
}

impl Teardown {
    /// `operation` names the whole, for the error: "deleting node1".
    pub fn new(operation: &'static str) -> Self {
        Self { operation, errors: Vec::new() }
    }

    /// Takes the outcome of one step. What was not there any more is no error.
    pub fn step<T>(&mut self, outcome: Result<T, Error>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(error) if error.is_not_found() => None,
            Err(error) => {
                self.errors.push(error);
                None
            }
        }
    }

    /// All errors as one, or none.
    pub fn finish(mut self) -> Result<(), Error> {
        match self.errors.len() {
            0 => Ok(()),
            1 => Err(self.errors.remove(0)),
            _ => Err(Error::Several { operation: self.operation, errors: self.errors }),
        }
    }
}

/// Makes "is there" out of "was already there", for calls that only need it to be there.
pub(crate) fn created(outcome: Result<(), Error>) -> Result<bool, Error> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.is_already_exists() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes "is gone" out of "was not there", for calls that only need it to be gone.
pub(crate) fn deleted(outcome: Result<(), Error>) -> Result<bool, Error> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(errno: Errno) -> Error {
        Error::refused("deleting link", "a".to_owned(), "n".to_owned(), errno.into())
    }

    #[test]
    fn a_teardown_reports_every_error_with_its_cause_and_forgives_what_is_gone() {
        let mut teardown = Teardown::new("deleting all");
        assert_eq!(teardown.step(Ok(7)), Some(7));
        teardown.step::<()>(Err(refused(Errno::EBUSY)));
        teardown.step::<()>(Err(refused(Errno::ENODEV)));
        teardown.step::<()>(Err(refused(Errno::EPERM)));
        let text = teardown.finish().unwrap_err().to_string();
        assert!(
            text.starts_with("2 steps of deleting all failed: deleting link a in namespace n failed: EBUSY"),
            "{text}"
        );
        assert!(text.contains("; deleting link a in namespace n failed: EPERM"), "{text}");
        assert!(Teardown::new("nothing").finish().is_ok());
    }

    #[test]
    fn the_kernels_words_come_first() {
        let refusal = Refusal { errno: Errno::EOPNOTSUPP, words: Some("Unknown device type".to_owned()) };
        assert!(refusal.to_string().starts_with("Unknown device type (EOPNOTSUPP"));
    }
}
