//! The edge to the operating system: looking for a plugin, running it, and ending what a former life left running.
//!
//! [`Exec`] is the one seam of this crate; [`Processes`] is what runs in production. Nothing above it knows of processes,
//! nothing below it knows of CNI beyond the variables by which a plugin is recognised.

mod orphan;
mod process;
mod search;

pub use process::Processes;
pub use search::{SearchPath, SearchPathError};

use std::{future::Future, io, path::PathBuf, time::Duration};

use crate::PluginName;

/// Runs plugins.
pub trait Exec: Send + Sync + 'static {
    /// Where the plugin is, by its name in these directories alone.
    fn find(&self, plugin: &PluginName, path: &SearchPath) -> Result<PathBuf, ExecError>;

    /// Runs it to its end. When this fails, nothing that it started in its process group is left running.
    fn run(&self, invocation: Invocation) -> impl Future<Output = Result<Output, ExecError>> + Send;

    /// Ends plugins that still work on this interface of this container for a runtime that is no more.
    fn end_orphans(
        &self,
        container_id: String,
        interface: String,
    ) -> impl Future<Output = Result<(), ExecError>> + Send;
}

/// One run of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The plugin's file.
    pub program: PathBuf,
    /// Its whole environment but `PATH`.
    pub environment: Vec<(&'static str, String)>,
    /// What it reads.
    pub input: Vec<u8>,
    /// How long it may take.
    pub timeout: Duration,
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Exit code; none: ended by a signal.
    pub code: Option<i32>,
    /// All that it wrote to standard output.
    pub stdout: Vec<u8>,
    /// The end of what it wrote to standard error.
    pub stderr: Vec<u8>,
}

/// Why there is no output.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// In none of the directories, or not executable.
    #[error("there is no executable file of that name in {path}")]
    Missing {
        /// Where it was looked for.
        path: String,
    },
    /// It could not be started.
    #[error("{} could not be started", program.display())]
    Spawn {
        /// Its file.
        program: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It took too long, and was killed.
    #[error("it did not end within {} s and was killed", after.as_secs_f32())]
    Timeout {
        /// How long it had.
        after: Duration,
    },
    /// It wrote too much, and was killed.
    #[error("it wrote more than {limit} bytes and was killed")]
    TooMuch {
        /// How much it may write.
        limit: usize,
    },
    /// Its output or its end could not be had.
    #[error("its output could not be read")]
    Read {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A plugin of a former life goes on.
    #[error("process {process} of an earlier runtime still works on the interface and does not end")]
    Orphan {
        /// Which.
        process: i32,
    },
}

impl ExecError {
    /// Whether the plugin surely did nothing.
    pub fn never_ran(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::Spawn { .. })
    }
}
