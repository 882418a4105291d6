//! `godwit console`: a person at a VM's serial console, through the API server: `virt-launcher console` in the VM's pod.
//!
//! Invariant: the terminal is given back as it was, whatever ends the conversation.

use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use api::names::{exit_codes, objects};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{AttachParams, AttachedProcess};
use kube::{Api, Client};
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::signal::unix::{SignalKind, signal};

use find::Problem;
use terminal::Terminal;

mod find;
mod terminal;

/// Open a VM's serial console: Ctrl-] leaves
///
/// Input and output may be files or pipes, too. When such input ends the console stays open, until the guest ends or Ctrl-C is
/// pressed; a byte 0x1d (Ctrl-]) in it leaves.
///
/// Exit codes: 0 it was left, or the guest ended; 3 there is no such VM; 4 it does not run, or has no console; 5 its console is in use by
/// another; 1 anything else, such as a connection that broke off.
#[derive(clap::Args)]
pub struct Arguments {
    /// Name of the VM, or of an instance without one
    vm: String,
    /// Its namespace; that of the kubeconfig's context unless told
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
}

/// Ctrl-].
const LEAVE: u8 = 0x1d;
/// How long the pod may take to let go of the console.
const FAREWELL: Duration = Duration::from_secs(3);
/// How much is kept of what the pod says against it.
const LONGEST: u64 = 4096;

const NO_SUCH: u8 = 3;
const NOT_RUNNING: u8 = 4;
const IN_USE: u8 = 5;

/// How the conversation ended.
enum End {
    Left,
    Signal(u8),
    /// By the other side, which may say how.
    Remote,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the runtime")?;
    let code = runtime.block_on(open(arguments));
    // A read of standard input may still wait for a key that nobody will press.
    runtime.shutdown_background();
    code
}

async fn open(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let client = Client::try_default().await.context("finding the API server")?;
    let namespace = arguments.namespace.as_deref().unwrap_or(client.default_namespace()).to_owned();
    let pod = match find::launcher(&client, &namespace, &arguments.vm).await {
        Ok(pod) => pod,
        Err(problem) => {
            let code = match &problem {
                Problem::NoSuch { .. } => NO_SUCH,
                Problem::NotRunning { .. } | Problem::NoPod { .. } => NOT_RUNNING,
                Problem::Api(_) => return Err(problem.into()),
            };
            eprintln!("godwit: {problem}");
            return Ok(ExitCode::from(code));
        }
    };
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    let streams =
        AttachParams::default().container(objects::LAUNCHER_CONTAINER).stdin(true).stdout(true).stderr(true);
    let process = pods
        .exec(&pod, ["virt-launcher", "console"], &streams)
        .await
        .with_context(|| format!("opening the console of {} in its pod {pod}", arguments.vm))?;
    talk(process, &arguments.vm).await
}

/// Joins the terminal with the process in the pod.
async fn talk(mut process: AttachedProcess, vm: &str) -> anyhow::Result<ExitCode> {
    let missing = "the API server gave no streams";
    let mut input = process.stdin().context(missing)?;
    let output = process.stdout().context(missing)?;
    let mut problems = process.stderr().context(missing)?.take(LONGEST);
    let status = std::pin::pin!(process.take_status().context(missing)?);
    let mut said = String::new();
    let end = {
        let terminal = Terminal::raw().context("setting up the terminal")?;
        if terminal.is_some() {
            eprint!("The console of {vm}; Ctrl-] leaves.\r\n");
        }
        let listening = async {
            let (shown, said) = tokio::join!(show(output), problems.read_to_string(&mut said));
            shown.and(said.map(|_| ()))
        };
        tokio::select! {
            typed = type_into(&mut input) => typed.map(|()| End::Left),
            shown = listening => shown.map(|()| End::Remote),
            signal = stop() => signal.map(End::Signal),
        }
    };
    match end.context("the console's bytes cannot be moved")? {
        End::Remote => verdict(status.await.as_ref(), said.trim(), vm),
        left => {
            // In good order: whoever comes next finds the console free. If not, the end of the connection does the same.
            let _ = input.shutdown().await;
            let _ = tokio::time::timeout(FAREWELL, status).await;
            Ok(match left {
                End::Signal(number) => ExitCode::from(128 + number),
                End::Left | End::Remote => ExitCode::SUCCESS,
            })
        }
    }
}

/// What comes of how the process in the pod ended.
fn verdict(status: Option<&Status>, said: &str, vm: &str) -> anyhow::Result<ExitCode> {
    let status = status.with_context(|| format!("the connection to the console of {vm} broke off"))?;
    if status.status.as_deref() == Some("Success") {
        eprintln!("The console of {vm} has ended: the guest is off.");
        return Ok(ExitCode::SUCCESS);
    }
    let causes = status.details.iter().flat_map(|details| details.causes.iter().flatten());
    let code = causes
        .filter(|cause| cause.reason.as_deref() == Some("ExitCode"))
        .find_map(|cause| cause.message.as_ref());
    let code: Option<u8> = code.and_then(|code| code.parse().ok());
    let why = if said.is_empty() { status.message.as_deref().unwrap_or_default() } else { said };
    let code = match code {
        Some(exit_codes::CONSOLE_IN_USE) => IN_USE,
        Some(exit_codes::CONSOLE_MISSING) => NOT_RUNNING,
        _ => anyhow::bail!("the console of {vm} cannot be opened: {why}"),
    };
    eprintln!("godwit: the console of {vm} cannot be opened: {why}");
    Ok(ExitCode::from(code))
}

/// Sends what is typed until the key that leaves. Input that ends is not that key: there may be more to see.
async fn type_into(to: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
    let (mut stdin, mut buffer) = (file(std::io::stdin())?, vec![0; 4096]);
    loop {
        let count = stdin.read(&mut buffer).await?;
        if count == 0 {
            return std::future::pending().await;
        }
        let typed = &buffer[..count];
        let before = typed.iter().position(|byte| *byte == LEAVE);
        to.write_all(&typed[..before.unwrap_or(count)]).await?;
        if before.is_some() {
            return Ok(());
        }
    }
}

/// Standard input or output as it is, without a buffer that waits for the end of a line.
fn file(stream: impl AsFd) -> std::io::Result<File> {
    Ok(File::from_std(stream.as_fd().try_clone_to_owned()?.into()))
}

async fn show(mut from: impl AsyncRead + Unpin) -> std::io::Result<()> {
    let (mut stdout, mut buffer) = (file(std::io::stdout())?, vec![0; 4096]);
    loop {
        match from.read(&mut buffer).await? {
            0 => return Ok(()),
            count => stdout.write_all(&buffer[..count]).await?,
        }
        stdout.flush().await?;
    }
}

/// The number of the signal that tells us to end.
async fn stop() -> std::io::Result<u8> {
    let [mut interrupt, mut terminate, mut hang_up] =
        [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?];
    Ok(tokio::select! {
        _ = interrupt.recv() => 2,
        _ = terminate.recv() => 15,
        _ = hang_up.recv() => 1,
    })
}
