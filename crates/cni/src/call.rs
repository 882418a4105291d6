//! One operation asked of one plugin: its environment, its input, and what its answer means.
//!
//! The environment is set here whole; the answer is a result, a refusal in the plugin's own words, or neither.

use std::{fmt, time::Duration};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Attachment, AttachmentRequest, Exec, ExecError, Invocation, Network, Output, Plugin, PluginName,
    ResultError, SearchPath, config::Extras,
};

/// What a plugin is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Attach.
    Add,
    /// Undo it.
    Del,
    /// Is it still whole?
    Check,
    /// Could you attach?
    Status,
    /// Undo all but these.
    Gc,
    /// Which versions do you speak?
    Version,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Status => "STATUS",
            Self::Gc => "GC",
            Self::Version => "VERSION",
        })
    }
}

/// A plugin that did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("CNI plugin {plugin} failed on {operation}")]
pub struct CallError {
    /// Which.
    pub plugin: PluginName,
    /// What it was asked.
    pub operation: Operation,
    /// Why.
    #[source]
    pub failure: Box<CallFailure>,
}

/// Why a plugin did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CallFailure {
    /// It did not run, or not to its end.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// It says why.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It failed and does not say why in the protocol's form.
    #[error("{}: {text}", code.map_or("it was ended by a signal".to_owned(), |code| format!("it ended with code {code}")))]
    Exit {
        /// Exit code.
        code: Option<i32>,
        /// What it wrote instead.
        text: String,
    },
    /// Its answer to ADD is no result.
    #[error(transparent)]
    Result(#[from] ResultError),
    /// Its answer to VERSION is none.
    #[error("its answer is not a list of versions")]
    Versions {
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// It does not speak the network's version.
    #[error("it speaks {spoken}, and the network is of version {wanted}")]
    Unspoken {
        /// What it speaks.
        spoken: String,
        /// What the network wants.
        wanted: crate::Version,
    },
}

/// A plugin's own error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Deserialize)]
#[error("{msg} (code {code}){}", if details.is_empty() { String::new() } else { format!(": {details}") })]
pub struct Refusal {
    /// Below 100 as the specification says.
    pub code: u32,
    /// In short.
    pub msg: String,
    /// At length.
    #[serde(default)]
    pub details: String,
}

impl Refusal {
    /// The container is unknown: there is nothing to undo.
    pub const UNKNOWN_CONTAINER: u32 = 3;
    /// Try again later.
    pub const TRY_AGAIN: u32 = 11;
    /// The plugin cannot attach now.
    pub const NOT_AVAILABLE: u32 = 50;
    /// The same, and what is attached may be cut off.
    pub const LIMITED_CONNECTIVITY: u32 = 51;
}

impl CallError {
    /// The plugin's own error, if it gave one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match &*self.failure {
            CallFailure::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Whether the plugin surely did nothing.
    pub(crate) fn never_ran(&self) -> bool {
        matches!(&*self.failure, CallFailure::Exec(error) if error.never_ran())
    }

    /// Whether it is the plugin's last word: it ran, it answered, and does not ask to be tried again.
    pub(crate) fn is_final(&self) -> bool {
        self.refusal().is_some_and(|refusal| refusal.code != Refusal::TRY_AGAIN)
    }
}

/// The attachment that an operation is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) request: &'a AttachmentRequest,
    /// The namespace as plugins are told it: empty once it is gone.
    pub(crate) namespace: &'a str,
}

/// Asks plugins.
#[derive(Debug)]
pub(crate) struct Caller<E> {
    pub(crate) exec: E,
    pub(crate) path: SearchPath,
    pub(crate) timeout: Duration,
}

impl<E: Exec> Caller<E> {
    /// Whether every plugin of the network is there; the first that is not is the error of the operation.
    pub(crate) fn find_all(&self, network: &Network, operation: Operation) -> Result<(), CallError> {
        network.plugins().iter().try_for_each(|plugin| {
            let found = self.exec.find(plugin.name(), &self.path).map(drop);
            found.map_err(|error| failed(plugin.name(), operation)(error.into()))
        })
    }

    /// Asks one plugin to do something to an attachment, and gives back what it wrote.
    pub(crate) async fn attachment(
        &self,
        operation: Operation,
        (network, plugin): (&Network, &Plugin),
        subject: Subject<'_>,
        previous: Option<&Value>,
    ) -> Result<Vec<u8>, CallError> {
        let extras = Extras { request: Some(subject.request), previous, valid: None };
        let environment = vec![
            ("CNI_CONTAINERID", subject.request.container_id.clone()),
            ("CNI_NETNS", subject.namespace.to_owned()),
            ("CNI_IFNAME", subject.request.interface.clone()),
            ("CNI_ARGS", subject.request.args_text()),
        ];
        self.ask(operation, plugin.name(), environment, &network.derive(plugin, extras)).await
    }

    /// Asks one plugin of a network something that is about no attachment.
    pub(crate) async fn network(
        &self,
        operation: Operation,
        (network, plugin): (&Network, &Plugin),
        extras: Extras<'_>,
    ) -> Result<(), CallError> {
        self.ask(operation, plugin.name(), Vec::new(), &network.derive(plugin, extras)).await.map(drop)
    }

    /// The versions that the plugin speaks, as it writes them.
    pub(crate) async fn versions(
        &self,
        network: &Network,
        plugin: &Plugin,
    ) -> Result<Vec<String>, CallError> {
        #[derive(Deserialize)]
        struct Versions {
            #[serde(rename = "supportedVersions")]
            supported: Vec<String>,
        }
        let input = json!({ "cniVersion": network.version() });
        let answer = self.ask(Operation::Version, plugin.name(), Vec::new(), &input).await?;
        let versions: Result<Versions, _> = serde_json::from_slice(&answer);
        let failed = failed(plugin.name(), Operation::Version);
        Ok(versions.map_err(|source| failed(CallFailure::Versions { source }))?.supported)
    }

    async fn ask(
        &self,
        operation: Operation,
        plugin: &PluginName,
        mut environment: Vec<(&'static str, String)>,
        input: &Value,
    ) -> Result<Vec<u8>, CallError> {
        let failed = failed(plugin, operation);
        let program = self.exec.find(plugin, &self.path).map_err(|error| failed(error.into()))?;
        environment.insert(0, ("CNI_COMMAND", operation.to_string()));
        environment.push(("CNI_PATH", self.path.to_string()));
        let input = input.to_string().into_bytes();
        let invocation = Invocation { program, environment, input, timeout: self.timeout };
        let output = self.exec.run(invocation).await.map_err(|error| failed(error.into()))?;
        answer(output).map_err(failed)
    }
}

/// Reads a plugin's answer to ADD: as it is, for the next plugin, in the version that all of them are spoken to in.
pub(crate) fn result(
    network: &Network,
    plugin: &Plugin,
    answer: &[u8],
) -> Result<(Value, Attachment), CallError> {
    let read = || -> Result<(Value, Attachment), ResultError> {
        let mut value: Value =
            serde_json::from_slice(answer).map_err(|source| ResultError::Json { source })?;
        let attachment = Attachment::from_value(&value)?;
        let version = json!(network.version());
        match value.as_object_mut() {
            Some(object)
                if object.get("cniVersion").is_none_or(|given| *given == version || *given == "") =>
            {
                object.insert("cniVersion".to_owned(), version);
            }
            _ => value = attachment.render(network.version()),
        }
        Ok((value, attachment))
    };
    read().map_err(|error| failed(plugin.name(), Operation::Add)(error.into()))
}

pub(crate) fn failed(plugin: &PluginName, operation: Operation) -> impl Fn(CallFailure) -> CallError {
    move |failure| CallError { plugin: plugin.clone(), operation, failure: Box::new(failure) }
}

fn answer(output: Output) -> Result<Vec<u8>, CallFailure> {
    if output.code == Some(0) {
        return Ok(output.stdout);
    }
    // Plugins write their error to standard output; the specification has been read otherwise.
    let said =
        [&output.stdout, &output.stderr].into_iter().find_map(|text| serde_json::from_slice(text).ok());
    if let Some(refusal) = said {
        return Err(CallFailure::Refused(refusal));
    }
    let told = if output.stderr.trim_ascii().is_empty() { &output.stdout } else { &output.stderr };
    let told = String::from_utf8_lossy(told.get(..1024).unwrap_or(told)).trim().to_owned();
    let text = if told.is_empty() { "without a word".to_owned() } else { told };
    Err(CallFailure::Exit { code: output.code, text })
}
