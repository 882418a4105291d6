//! `virt-launcher`: runs one VM in its pod. This file parses, starts the hypervisor's daemon and hands over to the crate `launcher`.

mod daemon;
mod init;
mod libvirt;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use api::names::exit_codes;
use clap::{Parser, Subcommand};
use launcher::console::{self, ConsoleError};
use launcher::run::{Settings, run};

/// Runs one virtual machine in its pod.
///
/// It waits at launcher.sock for the handler of its node to say which, asks at cni.sock for its networks, and ends when the guest
/// does. The guest's serial console goes to standard output, the launcher's own log to standard error.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The directory that is shared with the handler
    #[arg(long, default_value = api::names::paths::PRIVATE, value_name = "DIRECTORY")]
    private: PathBuf,
    /// The launcher's own directory
    #[arg(long, default_value = "/run/godwit", value_name = "DIRECTORY")]
    directory: PathBuf,
    /// What to log on standard error: error, warn, info, debug, trace, or a filter such as `launcher=debug`
    #[arg(long, default_value = "info", env = "GODWIT_LOG", value_name = "FILTER")]
    log: String,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Join standard input and output with the guest's serial console, beside the launcher that runs in this container
    ///
    /// It ends with either of them. Exit codes: 0 it was left, or the guest ended; 3 the console is in use; 4 there is none; 1 otherwise.
    Console,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Command::Console) = arguments.command {
        return open_console(&arguments);
    }
    let outcome = if init::is_needed() { init::run() } else { start(arguments).map(ExitCode::from) };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("virt-launcher: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn open_console(arguments: &Arguments) -> ExitCode {
    let Err(error) = console::join(&arguments.private, &arguments.directory) else {
        return ExitCode::SUCCESS;
    };
    let code = match &error {
        ConsoleError::InUse => exit_codes::CONSOLE_IN_USE.into(),
        ConsoleError::Missing { .. } => exit_codes::CONSOLE_MISSING.into(),
        ConsoleError::Lock { .. } | ConsoleError::Broken(_) => ExitCode::FAILURE,
    };
    eprintln!("virt-launcher: {:#}", anyhow::Error::from(error));
    code
}

fn start(arguments: Arguments) -> anyhow::Result<u8> {
    init::hear_signals()?;
    let filter = tracing_subscriber::EnvFilter::try_new(&arguments.log).context("--log")?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
    let hypervisor = Arc::new(libvirt::Libvirt::start(&arguments.directory, &arguments.private)?);
    let settings = Settings { private: arguments.private, directory: arguments.directory };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let code = runtime.block_on(run(hypervisor.clone(), settings, std::io::stdout()))?;
    // A call of the hypervisor that hangs must not hold up the end.
    runtime.shutdown_background();
    hypervisor.stop();
    Ok(code)
}
