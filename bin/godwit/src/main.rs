//! `godwit`: every part of the system but the launcher, as subcommands. This file parses and dispatches, no more.

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

mod apiserver;
mod console;
mod controller;
mod evacuate_cancel;
mod handler;
mod lab;
mod machine;
mod migrate;
mod table;

/// Live-migration networking for virtual machines on Kubernetes.
///
/// Godwit moves running VMs between nodes over a network chosen for it, and between clusters, keeping their addresses
/// and their connections.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, propagate_version = true)]
struct Cli {
    /// What to log on standard error: error, warn, info, debug, trace, or a filter such as `apiserver=debug`
    #[arg(
        long,
        global = true,
        default_value = "info,kube_client=off",
        env = "GODWIT_LOG",
        value_name = "FILTER"
    )]
    log: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Apiserver(apiserver::Arguments),
    Lab(lab::Arguments),
    Migrate(migrate::Arguments),
    EvacuateCancel(evacuate_cancel::Arguments),
    Console(console::Arguments),
    #[command(name = "virt-controller")]
    Controller(controller::Arguments),
    #[command(name = "virt-handler")]
    Handler(handler::Arguments),
    /// Print a completion script for your shell
    ///
    /// For bash, in the running shell: source <(godwit completion bash)
    Completion {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(error) = start_logging(&cli.log) {
        eprintln!("godwit: --log: {error:#}");
        return ExitCode::from(USAGE);
    }
    let result = match cli.command {
        Command::Apiserver(arguments) => apiserver::run(arguments).map(|()| ExitCode::SUCCESS),
        Command::Lab(arguments) => lab::run(arguments),
        Command::Migrate(arguments) => migrate::run(arguments),
        Command::EvacuateCancel(arguments) => evacuate_cancel::run(arguments),
        Command::Console(arguments) => console::run(&arguments),
        Command::Controller(arguments) => controller::run(arguments).map(|()| ExitCode::SUCCESS),
        Command::Handler(arguments) => handler::run(arguments).map(|()| ExitCode::SUCCESS),
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "godwit", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("godwit: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The exit code of a command line that cannot be understood, as clap's own.
const USAGE: u8 = 2;

fn start_logging(filter: &str) -> anyhow::Result<()> {
    use std::io::IsTerminal as _;
    let filter = tracing_subscriber::EnvFilter::try_new(filter)?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
