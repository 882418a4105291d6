//! Where it is measured: a directory on a disk, an API server in it, and the plugin under its name.
//!
//! The nodes' journals are in memory. They are never flushed, so a disk would not be waited for either; but fifty nodes on one ext4 would
//! search for inodes among those that the others gave up in the last minutes, which costs each of them as much as all else.
//!
//! All of it goes with [`Place`]; should this program be killed, the kernel ends the server, and a shell removes the directories.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use api::godwit::AddressAllocation;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// A file system in memory, which every Linux has.
const MEMORY: &str = "/dev/shm";
const START_LIMIT: Duration = Duration::from_secs(30);

pub struct Place {
    directory: tempfile::TempDir,
    nodes: tempfile::TempDir,
    server: Child,
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
        let path = directory.path().join("godwit-ipam");
        std::os::unix::fs::symlink(plugin, &path)?;
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
        let place = Self { directory, nodes, server, janitor, plugin: path, theirs };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(place.prepare()).context("preparing the API server")?;
        Ok(place)
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// What a node keeps of a network.
    pub fn journal(&self, network: &str, node: usize) -> PathBuf {
        self.nodes.path().join(format!("{network}-node-{node}"))
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.path().join("kubeconfig")
    }

    /// The file of settings without which whereabouts does nothing.
    pub fn their_configuration(&self) -> PathBuf {
        self.path().join("whereabouts.conf")
    }

    /// Waits for the server, and has it serve addresses.
    async fn prepare(&self) -> Result<()> {
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
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in api::crds() {
            if definition.metadata.name.as_deref() == Some("addressallocations.godwit.dev") {
                definitions.create(&PostParams::default(), &definition).await?;
            }
        }
        if self.theirs.is_some() {
            let settings = json!({ "kubernetes": { "kubeconfig": self.kubeconfig() } });
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
        if let Ok(None) = self.server.try_wait() {
            let _ = kill_process(Pid::from_child(&self.server), Signal::TERM);
        }
        let _ = self.server.wait();
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
    }
}
