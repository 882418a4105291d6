//! A running API server of either engine.
//!
//! `GODWIT_TEST_SERVER` chooses: `embedded` (the default) is the `godwit` binary next to the test's own in `target/`, or
//! `GODWIT_BIN`; `kubernetes` is the real control plane by `tools/kubernetes/control-plane`; anything else is the path of
//! a kubeconfig of a server that runs already, and is left running.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::leash::ended;
use crate::{Http, Leash, Signal};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Engine {
    Embedded,
    Kubernetes,
    /// A server that runs already.
    Given(PathBuf),
}

impl Engine {
    pub fn from_env() -> Self {
        match std::env::var("GODWIT_TEST_SERVER").as_deref() {
            Ok("embedded" | "") | Err(_) => Self::Embedded,
            Ok("kubernetes") => Self::Kubernetes,
            Ok(path) => Self::Given(path.into()),
        }
    }
}

/// How the embedded server is started; the real one has its own ways.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Keep state on disk, so that a restart finds it.
    pub durable: bool,
    /// How many events of watch history are kept per resource.
    pub history: Option<u32>,
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// The one in the kubeconfig.
    Admin,
    Anonymous,
    Token(String),
}

#[derive(Debug)]
pub struct Server {
    engine: Engine,
    options: Options,
    /// Deleted by the leash; empty for a given server.
    dir: PathBuf,
    leash: Option<Leash>,
    /// A real kube-apiserver that was started anew; the leash holds the rest of the control plane.
    renewed: Option<Leash>,
    port: u16,
}

impl Server {
    /// Starts the server that `GODWIT_TEST_SERVER` names, and waits until it answers.
    pub async fn start(options: Options) -> Self {
        Self::start_engine(Engine::from_env(), options).await
    }

    pub async fn start_engine(engine: Engine, options: Options) -> Self {
        let mut server = Self { dir: PathBuf::new(), engine, options, leash: None, renewed: None, port: 0 };
        if server.engine == Engine::Embedded {
            binary(); // before there is a directory that nobody would delete
        }
        if !matches!(server.engine, Engine::Given(_)) {
            let dir = tempfile::Builder::new().prefix("godwit-test-").tempdir();
            server.dir = dir.expect("a temporary directory").keep();
        }
        match server.engine {
            Engine::Embedded => server.launch_embedded().await,
            Engine::Kubernetes => server.launch_kubernetes().await,
            Engine::Given(_) => {}
        }
        server.port = server.address().await.port();
        server
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn is_embedded(&self) -> bool {
        self.engine == Engine::Embedded
    }

    /// Whether this server is ours to stop: one that was running before us is not.
    pub fn can_restart(&self) -> bool {
        !matches!(self.engine, Engine::Given(_))
    }

    pub fn kubeconfig(&self) -> PathBuf {
        match &self.engine {
            Engine::Embedded => self.dir.join("kubeconfig"),
            Engine::Kubernetes => self.control_plane().join("kubeconfig"),
            Engine::Given(path) => path.clone(),
        }
    }

    pub async fn config(&self) -> Config {
        let path = self.kubeconfig();
        let kubeconfig =
            Kubeconfig::read_from(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .expect("a kubeconfig that kube-rs understands");
        config.default_retry = false;
        config
    }

    pub async fn client(&self) -> Client {
        Client::try_from(self.config().await).expect("a client of the kubeconfig")
    }

    /// A client of its own for each call: a client belongs to the runtime that it was made in.
    pub async fn http(&self) -> Http {
        Http::new(self.client().await)
    }

    pub async fn http_as(&self, identity: Identity) -> Http {
        let mut config = self.config().await;
        match identity {
            Identity::Admin => {}
            Identity::Anonymous => config.auth_info = AuthInfo::default(),
            Identity::Token(token) => {
                config.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() }
            }
        }
        Http::new(Client::try_from(config).expect("a client of the identity"))
    }

    /// Where it listens.
    pub async fn address(&self) -> SocketAddr {
        let url = self.config().await.cluster_url;
        let host = url.host().expect("a server has a host").replace("localhost", "127.0.0.1");
        let port = url.port_u16().unwrap_or(443);
        SocketAddr::new(host.parse().expect("a server on an address"), port)
    }

    /// Ends it with SIGKILL and starts it again, on the same port and data.
    pub async fn kill(&mut self) {
        self.renew(Signal::Kill).await;
    }

    /// Ends it with SIGTERM and starts it again, on the same port and data.
    pub async fn restart(&mut self) {
        self.renew(Signal::Terminate).await;
    }

    async fn renew(&mut self, signal: Signal) {
        match self.engine {
            Engine::Embedded => {
                assert!(self.options.durable, "a server without a disk has nothing to come back with");
                self.leash.take().expect("it runs").stop(signal).await;
                self.launch_embedded().await;
            }
            Engine::Kubernetes => self.renew_kubernetes().await,
            Engine::Given(_) => panic!("a server that is not ours cannot be restarted"),
        }
    }

    async fn launch_embedded(&mut self) {
        let kubeconfig = self.kubeconfig();
        let _ = std::fs::remove_file(&kubeconfig);
        let mut command = vec![binary().display().to_string(), "apiserver".into()];
        command.extend(["--port".into(), self.port.to_string()]);
        if self.options.durable {
            command.extend(["--data".into(), self.dir.join("data").display().to_string()]);
        } else {
            command.push("--memory".into());
        }
        command.extend(["--kubeconfig-out".into(), kubeconfig.display().to_string()]);
        if let Some(events) = self.options.history {
            command.extend(["--history".into(), events.to_string()]);
        }
        let leash = Leash::start(&self.dir, &self.dir.join("log"), &command);
        self.ready(&leash, async || Kubeconfig::read_from(&kubeconfig).is_ok()).await;
        self.leash = Some(leash);
    }

    fn control_plane(&self) -> PathBuf {
        self.dir.join("control-plane")
    }

    async fn launch_kubernetes(&mut self) {
        let script = std::env::var_os("GODWIT_CONTROL_PLANE")
            .map_or_else(|| workspace().join("tools/kubernetes/control-plane"), PathBuf::from);
        let (script, plane) = (script.display().to_string(), self.control_plane().display().to_string());
        let up = self.dir.join("up");
        let hold = format!("touch '{}' && exec sleep infinity", up.display());
        let command = [&script, "run", &plane, "--", "setpriv", "--pdeathsig", "KILL", "sh", "-c", &hold]
            .map(str::to_owned);
        let leash = Leash::start(&self.dir, &self.dir.join("log"), &command);
        self.ready(&leash, async || up.exists()).await;
        self.leash = Some(leash);
    }

    /// The script knows no restart: its kube-apiserver is killed, and started anew with the same arguments. Never asked to end: it
    /// would wait a minute for its open watches, and its state is etcd's anyway.
    async fn renew_kubernetes(&mut self) {
        let pid = self.renewed.as_ref().map_or_else(|| self.kube_apiserver(), Leash::pid);
        let command = arguments(pid);
        if let Some(leash) = self.renewed.take() {
            leash.stop(Signal::Kill).await;
        } else {
            let killed = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
            assert!(killed.is_ok_and(|status| status.success()), "kube-apiserver could not be killed");
            eventually("the end of kube-apiserver", async || ended(pid).then_some(())).await;
        }
        let leash = Leash::start(Path::new(""), &self.dir.join("log"), &command);
        let http = self.http().await;
        self.ready(&leash, async || {
            let reply = http.try_send(http::Method::GET, "/readyz", &[], "").await;
            reply.is_ok_and(|reply| reply.status.is_success())
        })
        .await;
        self.renewed = Some(leash);
    }

    /// The process that the script started.
    fn kube_apiserver(&self) -> u32 {
        let file = self.control_plane().join("kube-apiserver.pid");
        let text = std::fs::read_to_string(file).expect("a pid file of kube-apiserver");
        let pid = text.split_whitespace().next().and_then(|pid| pid.parse().ok());
        pid.expect("the pid of kube-apiserver")
    }

    async fn ready(&self, leash: &Leash, is_ready: impl AsyncFn() -> bool) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(90);
        while !is_ready().await {
            if leash.ended() || tokio::time::Instant::now() > deadline {
                let log = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
                let start = log.len().saturating_sub(4000);
                panic!(
                    "the API server does not start:\n{}",
                    String::from_utf8_lossy(&log.as_bytes()[start..])
                );
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// The arguments of a process.
fn arguments(pid: u32) -> Vec<String> {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
        .unwrap_or_default()
        .split_terminator('\0')
        .map(str::to_owned)
        .collect()
}

/// Asks again until there is an answer; fails after thirty seconds.
pub async fn eventually<T>(what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(tokio::time::Instant::now() < deadline, "waited 30 s for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn workspace() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    crates.and_then(Path::parent).expect("crates/testkit has two parents").to_owned()
}

/// The `godwit` program: see [`program`].
pub(crate) fn binary() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| program("godwit", "GODWIT_BIN")).clone()
}

/// A program of ours, as the code is now: built here unless a variable names one. Cargo has nothing to do when it is fresh,
/// and knows better than any date of a file whether it is.
pub fn program(name: &str, variable: &str) -> PathBuf {
    if let Some(path) = std::env::var_os(variable) {
        return path.into();
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // With the features of the whole workspace: what tests and programs share is then built once.
    let build = cargo.args(["build", "--quiet", "--locked", "--workspace", "--bin", name]);
    let build = build.current_dir(workspace());
    // Of what cargo told this test about its own package, build scripts would think that it had changed, and build anew.
    for (variable, _) in std::env::vars_os() {
        let variable = variable.to_string_lossy().into_owned();
        if variable.starts_with("CARGO_PKG_") || variable.starts_with("CARGO_MANIFEST_") {
            build.env_remove(variable);
        }
    }
    let status = build.status().expect("cargo runs");
    assert!(status.success(), "cargo build --bin {name} failed");
    let test = std::env::current_exe().expect("a test has an executable");
    test.ancestors().nth(2).expect("target/debug/deps/TEST").join(name)
}
