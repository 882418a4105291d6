//! Where it is measured: a directory on a disk, an API server in it, and nodes on which the plugin has installed itself: under its name,
//! with a service account of its own, and with a keeper that it asks.
//!
//! The nodes' journals are in memory. They are never flushed, so a disk would not be waited for either; but fifty nodes on one ext4 would
//! search for inodes among those that the others gave up in the last minutes, which costs each of them as much as all else.
//!
//! All of it goes with [`Place`]; should this program be killed, the kernel ends the server, and a shell removes the directories.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use api::godwit::AddressAllocation;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// As many as call at once, at most.
const NODES: usize = 50;
/// A file system in memory, which every Linux has.
const MEMORY: &str = "/dev/shm";
const START_LIMIT: Duration = Duration::from_secs(30);

pub struct Place {
    directory: tempfile::TempDir,
    nodes: tempfile::TempDir,
    server: Child,
    keepers: Vec<Child>,
    janitor: Child,
    pub plugin: PathBuf,
    /// The plugin to compare with.
    pub theirs: Option<PathBuf>,
}

impl Place {
    pub fn new(parent: &Path, godwit: &Path, plugin: &Path, theirs: Option<&Path>) -> Result<Self> {
        let make = |parent: &Path| tempfile::Builder::new().prefix("bench-ipam-").tempdir_in(parent);
        let (directory, nodes) = (make(parent)?, make(Path::new(MEMORY))?);
        let janitor = Command::new("setsid")
            .args(["sh", "-c", r#"cat; sleep 1; rm -rf -- "$0" "$1" 2>/dev/null"#])
            .args([directory.path(), nodes.path()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("starting setsid")?;
        let log = File::create(directory.path().join("log"))?;
        let server = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(godwit)
            .args(["apiserver", "--port", "0", "--data"])
            .arg(directory.path().join("data"))
            .arg("--kubeconfig-out")
            .arg(directory.path().join("kubeconfig"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting setpriv")?;
        let theirs = theirs.map(Path::to_owned);
        let path = directory.path().join("plugins/godwit-ipam");
        let keepers = Vec::new();
        let mut place = Self { directory, nodes, server, keepers, janitor, plugin: path, theirs };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(place.prepare(plugin)).context("preparing the API server")?;
        Ok(place)
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// What a node keeps of a network.
    pub fn journal(&self, network: &str, node: usize) -> PathBuf {
        self.nodes.path().join(format!("{network}-node-{node}"))
    }

    /// The administrator's.
    fn kubeconfig(&self) -> PathBuf {
        self.path().join("kubeconfig")
    }

    /// The file of settings without which whereabouts does nothing.
    pub fn their_configuration(&self) -> PathBuf {
        self.path().join("whereabouts.conf")
    }

    /// Waits for the server, and has it serve addresses.
    async fn prepare(&mut self, plugin: &Path) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        let client = loop {
            if let Ok(kubeconfig) = Kubeconfig::read_from(self.kubeconfig())
                && let Ok(config) =
                    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await
            {
                let client = Client::try_from(config)?;
                if client.apiserver_version().await.is_ok() {
                    break client;
                }
            }
            ensure!(Instant::now() < deadline, "it is not ready after {START_LIMIT:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        self.install(plugin, client.clone(), deadline).await.context("installing the plugin")?;
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in api::crds() {
            if definition.metadata.name.as_deref() == Some("addressallocations.godwit.dev") {
                definitions.create(&PostParams::default(), &definition).await?;
            }
        }
        if self.theirs.is_some() {
            let settings = json!({ "kubernetes": { "kubeconfig": self.node_kubeconfig(0) } });
            std::fs::write(self.their_configuration(), settings.to_string())?;
            for kind in ["IPPool", "OverlappingRangeIPReservation"] {
                definitions.create(&PostParams::default(), &definition_of(kind)?).await?;
            }
        }
        let addresses: Api<AddressAllocation> = Api::all(client);
        while addresses.list(&ListParams::default()).await.is_err() {
            ensure!(Instant::now() < deadline, "addresses are not served after {START_LIMIT:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

impl Place {
    /// Does what the plugin's pod does on a node.
    async fn install(&mut self, plugin: &Path, client: Client, deadline: Instant) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(client, "default");
        let account: ServiceAccount =
            serde_json::from_value(json!({ "metadata": { "name": "godwit-cni" } }))?;
        accounts.create(&PostParams::default(), &account).await?;
        let request = TokenRequest::default();
        let token = accounts.create_token_request("godwit-cni", &PostParams::default(), &request).await?;
        let token = token.status.and_then(|status| status.token).context("a token")?;
        let administrator = Kubeconfig::read_from(self.kubeconfig())?;
        let cluster =
            administrator.clusters.into_iter().find_map(|named| named.cluster).context("a cluster")?;
        let authority = cluster.certificate_authority_data.context("the server's authority")?;
        let base = self.path().to_owned();
        let path = |name: &str| base.join(name);
        std::fs::create_dir(path("account"))?;
        std::fs::write(path("account/token"), token)?;
        std::fs::write(path("account/ca.crt"), STANDARD.decode(authority)?)?;
        let server = cluster.server.context("the server's URL")?;
        let server = server.trim_start_matches("https://");
        let (host, port) = server.rsplit_once(':').context("the server's port")?;
        for node in 0..NODES {
            let settings = self.settings(node);
            let keeper = Command::new("setpriv")
                .args(["--pdeathsig", "KILL"])
                .arg(plugin)
                .arg("install")
                .args([&path("plugins"), &settings])
                .arg("godwit-ipam")
                .env("KUBERNETES_SERVICE_HOST", host)
                .env("KUBERNETES_SERVICE_PORT", port)
                .env("GODWIT_SERVICE_ACCOUNT", path("account"))
                .stdin(Stdio::null())
                .spawn()
                .context("starting setpriv")?;
            self.keepers.push(keeper);
            // One after the other: they all install one file, which on true nodes are many.
            while !answers(&settings.join("keeper.sock")) || !self.plugin.exists() {
                ensure!(Instant::now() < deadline, "node {node} is not ready after {START_LIMIT:?}");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        Ok(())
    }

    fn settings(&self, node: usize) -> PathBuf {
        self.nodes.path().join(format!("settings-{node}"))
    }

    /// The plugin's own on a node.
    pub fn node_kubeconfig(&self, node: usize) -> PathBuf {
        self.settings(node).join("godwit.kubeconfig")
    }
}

/// Whether a node's keeper has reached the API server, as it has long before the first pod comes.
fn answers(keeper: &Path) -> bool {
    let asked = || -> std::io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(keeper)?;
        stream.write_all(b"GET /version HTTP/1.1\r\nhost: keeper\r\nconnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    };
    asked().is_ok_and(|answer| answer.starts_with(b"HTTP/1.1 200"))
}

/// What whereabouts keeps its addresses in: of its fields it takes care itself.
fn definition_of(kind: &str) -> Result<CustomResourceDefinition> {
    let (group, singular) = ("whereabouts.cni.cncf.io", kind.to_lowercase());
    let plural = format!("{singular}s");
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    Ok(serde_json::from_value(json!({
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced", "names": { "kind": kind, "plural": plural, "singular": singular },
            "versions": [{ "name": "v1alpha1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }],
        },
    }))?)
}

impl Drop for Place {
    fn drop(&mut self) {
        for keeper in &mut self.keepers {
            // One that has ended is what was wanted.
            let _ = keeper.kill();
            let _ = keeper.wait();
        }
        if let Ok(None) = self.server.try_wait() {
            let _ = kill_process(Pid::from_child(&self.server), Signal::TERM);
        }
        let _ = self.server.wait();
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
    }
}
