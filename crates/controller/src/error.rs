//! Why something could not be done: the operation, the object, and the cause.

use std::error::Error as _;
use std::time::Duration;

use kube::runtime::reflector::Lookup;

/// Why the controller could not do something.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{operation} {object} failed")]
    Api {
        /// What was tried: "making", "deleting".
        operation: &'static str,
        /// Kind, namespace and name.
        object: String,
        #[source]
        source: kube::Error,
    },
    #[error(
        "the pod {object} exists and belongs to another instance; it must be gone before this one can start"
    )]
    PodTaken {
        /// Namespace and name.
        object: String,
    },
    #[error("a certificate cannot be made")]
    Identity(#[from] identity::Error),
    #[error("a certificate would name nobody")]
    Member(#[from] identity::MemberError),
    #[error("the DaemonSet of virt-handler that this program carries cannot be read")]
    Manifest(#[source] serde_saphyr::Error),
    #[error("the secret {secret} does not hold an authority; remove it to have a new one made")]
    Authority {
        /// Namespace and name.
        secret: String,
    },
    #[error("the webhooks' TLS set-up is not valid")]
    Tls(#[from] tokio_rustls::rustls::Error),
    #[error("the webhooks' certificate cannot be read back")]
    Certificate(#[from] tokio_rustls::rustls::pki_types::pem::Error),
    #[error("the controller is ending")]
    Ending,
    #[error("the socket for the webhooks cannot be used")]
    Socket(#[source] std::io::Error),
}

impl Error {
    /// Turns what the API server said into an error that names what was tried.
    pub(crate) fn api(
        operation: &'static str,
        object: impl Into<String>,
    ) -> impl FnOnce(kube::Error) -> Self {
        let object = object.into();
        move |source| Self::Api { operation, object, source }
    }

    /// The object changed since it was looked at: looking again is all that is needed.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Api { source: kube::Error::Api(status), .. } if status.is_conflict())
    }

    /// When to try again.
    pub(crate) fn retry_after(&self) -> Duration {
        if self.is_conflict() { Duration::from_millis(50) } else { Duration::from_secs(5) }
    }

    /// The whole story in one line: this error and everything below it.
    pub fn explain(&self) -> String {
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        text
    }
}

/// `Kind namespace/name`, for people.
pub(crate) fn describe<K: Lookup<DynamicType = ()>>(object: &K) -> String {
    named::<K>(object.namespace().as_deref(), object.name().as_deref().unwrap_or_default())
}

/// The same for an object that is not at hand.
pub(crate) fn named<K: Lookup<DynamicType = ()>>(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{} {namespace}/{name}", K::kind(&())),
        None => format!("{} {name}", K::kind(&())),
    }
}
