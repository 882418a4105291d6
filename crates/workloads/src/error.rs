//! What can go wrong. Every request names what it wanted of which object; the server's answer is the source.

/// Why a controller could not do what it decided.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request to the API server failed. Every pass starts from the state as it is then, so it is tried again.
    #[error("could not {verb} {kind} {name}; trying again")]
    Request {
        /// What was tried: create, update, delete.
        verb: &'static str,
        /// The kind of the object.
        kind: String,
        /// Its name, with its namespace.
        name: String,
        /// What the server said.
        #[source]
        source: Box<kube::Error>,
    },
    /// A controller ended, which none does on its own: nobody does its work from here on.
    #[error("a controller ended; start the controllers again")]
    Ended {
        /// How it ended.
        #[source]
        source: tokio::task::JoinError,
    },
}

impl Error {
    /// The HTTP status of the server's answer, if there was one.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Request { source, .. } => match &**source {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            Self::Ended { .. } => None,
        }
    }

    /// Someone else changed the object first, or removed it: what was decided is out of date, and nothing is wrong.
    pub(crate) fn is_out_of_date(&self) -> bool {
        matches!(self.code(), Some(404 | 409))
    }
}
