//! The two servers under test: how each is started, when it is ready, and that nothing of it stays behind.
//!
//! A server's lifetime is that of its [`Server`]. Should this program be killed, the kernel signals its children (their
//! parent-death signal), and [`Workplace`] has a child of its own that then removes the directory.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::client::{Api, field};
use crate::process;

const START_LIMIT: Duration = Duration::from_mins(2);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    Godwit,
    Kubernetes,
}

impl Side {
    pub fn name(self) -> &'static str {
        match self {
            Self::Godwit => "godwit",
            Self::Kubernetes => "kubernetes",
        }
    }
}

/// A running server that has answered an authenticated request.
pub struct Server {
    pub side: Side,
    pub api: Api,
    /// From the start of its first process to that answer.
    pub ready_after: Duration,
    /// The processes that serve: one of ours, etcd and kube-apiserver of the other.
    pub pids: Vec<u32>,
    child: Child,
}

impl Server {
    pub async fn start(side: Side, godwit: &Path, directory: &Path) -> Result<Self> {
        match side {
            Side::Godwit => Self::start_godwit(godwit, directory).await,
            Side::Kubernetes => Self::start_kubernetes(directory).await,
        }
        .with_context(|| format!("starting {}", side.name()))
    }

    async fn start_godwit(program: &Path, directory: &Path) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        let kubeconfig = directory.join("kubeconfig");
        let log = directory.join("log");
        let mut command = bound_to_us("KILL", program);
        command.args(["apiserver", "--port", "0", "--data"]).arg(directory.join("data"));
        command.arg("--kubeconfig-out").arg(&kubeconfig);
        let started = Instant::now();
        let child = spawn(command, &log)?;
        let pids = vec![child.id()];
        Self::once_ready(Side::Godwit, child, &kubeconfig, &log, || Ok((started.elapsed(), pids))).await
    }

    /// etcd with fsync, then kube-apiserver. Its certificates are made before the clock starts; ours makes its own after.
    async fn start_kubernetes(directory: &Path) -> Result<Self> {
        let log = directory.with_extension("log");
        let mut command = bound_to_us("TERM", &control_plane());
        command.args(["run", "--bare", "--fsync"]).arg(directory).args(["--", "sleep", "infinity"]);
        let child = spawn(command, &log)?;
        let pid = |name: &str| -> Result<u32> {
            let file = std::fs::read_to_string(directory.join(format!("{name}.pid")))?;
            Ok(file.split_whitespace().next().context("an empty pid file")?.parse()?)
        };
        let kubeconfig = directory.join("kubeconfig");
        Self::once_ready(Side::Kubernetes, child, &kubeconfig, &log, || {
            let pids = vec![pid("etcd")?, pid("kube-apiserver")?];
            Ok((process::age(pids[0])?, pids))
        })
        .await
    }

    /// Waits for the kubeconfig, which either server writes last, and for the answer to a first request with it.
    async fn once_ready(
        side: Side,
        child: Child,
        kubeconfig: &Path,
        log: &Path,
        age_and_pids: impl FnOnce() -> Result<(Duration, Vec<u32>)>,
    ) -> Result<Self> {
        let mut child = Guard(Some(child));
        let deadline = Instant::now() + START_LIMIT;
        let api = loop {
            if let Some(api) = answering(kubeconfig).await {
                break api;
            }
            if let Some(status) = child.ended()? {
                bail!("it ended with {status}: {}", tail(log));
            }
            ensure!(Instant::now() < deadline, "not ready after {START_LIMIT:?}: {}", tail(log));
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        let (ready_after, pids) = age_and_pids()?;
        let child = child.0.take().context("the process is gone")?;
        Ok(Self { side, api, ready_after, pids, child })
    }

    pub async fn version(&self) -> Result<String> {
        let answer = self.api.connect().await?.get("/version").await?;
        let text = String::from_utf8_lossy(&answer).replace(": ", ":");
        Ok(field(text.as_bytes(), "gitVersion")?.to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

/// Stops a server that does not become ready.
struct Guard(Option<Child>);

impl Guard {
    fn ended(&mut self) -> Result<Option<std::process::ExitStatus>> {
        Ok(self.0.as_mut().map(Child::try_wait).transpose()?.flatten())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.as_mut().map(stop);
    }
}

fn stop(child: &mut Child) {
    if let Ok(None) = child.try_wait() {
        let _ = kill_process(Pid::from_child(child), Signal::TERM);
    }
    let _ = child.wait();
}

async fn answering(kubeconfig: &Path) -> Option<Api> {
    if !kubeconfig.exists() {
        return None;
    }
    let api = Api::from_kubeconfig(kubeconfig).ok()?; // it may be half written
    api.connect().await.ok()?.get("/readyz").await.ok()?;
    Some(api)
}

/// The directory that holds everything the servers write; it goes with this value, or with this program.
pub struct Workplace {
    directory: tempfile::TempDir,
    janitor: Child,
}

impl Workplace {
    pub fn new(parent: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("bench-apiserver-")
            .tempdir_in(parent)
            .with_context(|| format!("making a directory in {}", parent.display()))?;
        // Its input ends when we do, however we end. Its own session keeps a terminal's Ctrl-C from it.
        let janitor = Command::new("setsid")
            .args([
                "sh",
                "-c",
                r#"cat; for i in 1 2 3 4 5 6 7 8 9; do rm -rf -- "$0" && exit; sleep 1; done 2>/dev/null"#,
            ])
            .arg(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("starting setsid")?;
        Ok(Self { directory, janitor })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
    }
}

/// Whether kube-apiserver and etcd have been built here.
pub fn kubernetes_is_built() -> bool {
    let script = r#"eval "$("$0" --print-env)" && [ -x "$GODWIT_ETCD" ] && [ -x "$GODWIT_KUBERNETES_BIN/kube-apiserver" ]"#;
    let status = Command::new("bash").args(["-c", script]).arg(tools().join("setup")).status();
    status.is_ok_and(|status| status.success())
}

/// The version of etcd that this process runs.
pub fn etcd_version(pid: u32) -> Option<String> {
    let output = Command::new(format!("/proc/{pid}/exe")).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.lines().next()?.rsplit(' ').next()?.to_owned())
}

fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools")
}

fn control_plane() -> PathBuf {
    tools().join("kubernetes/control-plane")
}

/// A command that the kernel signals when we end. It is tied to the thread that spawns it, which must be the main one.
fn bound_to_us(signal: &str, program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", signal]).arg(program);
    command
}

fn spawn(mut command: Command, log: &Path) -> Result<Child> {
    let file = std::fs::File::create(log)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    command.spawn().context("starting setpriv")
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}
