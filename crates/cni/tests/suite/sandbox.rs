//! A node and its pods as network namespaces of unique names, gone with the test, also when it panics.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use cni::{AttachmentRequest, Journal, Network, Processes, Runtime, SearchPath};
use serde_json::{Value, json};

/// Where Debian puts the plugins.
pub const DEBIAN: &str = "/usr/lib/cni";

/// A network namespace.
pub struct Namespace {
    pub name: String,
}

impl Namespace {
    pub fn new(role: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("gwcni-{}-{count}-{role}", std::process::id());
        let namespace = Self { name };
        ip(&["netns", "add", &namespace.name]);
        namespace
    }

    pub fn path(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.name)
    }

    /// `ip -j` in it.
    pub fn ip(&self, arguments: &[&str]) -> Value {
        let text = ip(&[&["-n", &self.name, "-j", "-d"], arguments].concat());
        if text.trim().is_empty() {
            json!([])
        } else {
            serde_json::from_str(&text).expect("ip -j writes JSON")
        }
    }

    /// The interface of this name, as `ip addr` shows it.
    pub fn link(&self, name: &str) -> Option<Value> {
        let links = self.ip(&["addr", "show"]);
        links.as_array().unwrap().iter().find(|link| link["ifname"] == name).cloned()
    }

    /// The global IPv4 addresses of an interface.
    pub fn addresses(&self, name: &str) -> Vec<String> {
        let link = self.link(name).unwrap_or_default();
        let addresses = link["addr_info"].as_array().cloned().unwrap_or_default().into_iter();
        let global = addresses.filter(|address| address["family"] == "inet" && address["scope"] == "global");
        global.map(|address| address["local"].as_str().unwrap().to_owned()).collect()
    }

    /// Names of all interfaces but `lo`.
    pub fn links(&self) -> Vec<String> {
        let links = self.ip(&["link", "show"]);
        let names = links.as_array().unwrap().iter().map(|link| link["ifname"].as_str().unwrap().to_owned());
        names.filter(|name| name != "lo").collect()
    }

    pub fn delete(&self) {
        drop(Command::new("ip").args(["netns", "del", &self.name]).output());
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.delete();
    }
}

/// Runs `ip`, which must succeed.
pub fn ip(arguments: &[&str]) -> String {
    let output = Command::new("ip").args(arguments).output().expect("ip is there: tools/setup");
    assert!(
        output.status.success(),
        "ip {}: {} (these tests need root)",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A node with plugins, a journal and directories of its own.
pub struct Node {
    pub namespace: Namespace,
    pub directory: tempfile::TempDir,
}

impl Node {
    pub fn new() -> Self {
        assert!(
            Path::new(DEBIAN).join("bridge").exists(),
            "there are no CNI plugins in {DEBIAN}: tools/setup"
        );
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("bin")).unwrap();
        Self { namespace: Namespace::new("node"), directory }
    }

    /// Opens its journal: one runtime at a time.
    pub fn runtime(&self) -> Runtime {
        self.runtime_with_timeout(Duration::from_secs(30))
    }

    pub fn runtime_with_timeout(&self, timeout: Duration) -> Runtime {
        let opened = Journal::open(&self.journal()).unwrap();
        assert!(opened.set_aside.is_empty(), "{:?}", opened.set_aside);
        let path = SearchPath::new([self.directory.path().join("bin"), DEBIAN.into()]).unwrap();
        let exec = Processes::in_namespace(&self.namespace.path());
        Runtime::with_timeout(exec, path, opened.journal, timeout)
    }

    pub fn journal(&self) -> PathBuf {
        self.directory.path().join("journal")
    }

    pub fn journal_files(&self) -> usize {
        let files = std::fs::read_dir(self.journal()).unwrap().flatten();
        files.filter(|file| file.path().extension().is_some_and(|ending| ending == "json")).count()
    }

    /// Adds a plugin that is a shell script. It finds the node's directory as `$dir`.
    pub fn script(&self, name: &str, body: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.directory.path().join("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\ndir={}\n{body}\n", self.directory.path().display()))
            .unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// What a script wrote into the node's directory.
    pub fn written(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory.path().join(name)).unwrap_or_default()
    }

    /// IPAM from this subnet, its state in the node's directory.
    pub fn host_local(&self, subnet: &str) -> Value {
        json!({ "type": "host-local", "subnet": subnet, "dataDir": self.directory.path().join("ipam"),
            "routes": [{ "dst": "0.0.0.0/0" }] })
    }

    /// The addresses that host-local has given out on a network.
    pub fn leases(&self, network: &str) -> Vec<String> {
        let Ok(files) = std::fs::read_dir(self.directory.path().join("ipam").join(network)) else {
            return Vec::new();
        };
        let names = files.flatten().map(|file| file.file_name().into_string().unwrap());
        names.filter(|name| name.parse::<std::net::IpAddr>().is_ok()).collect()
    }

    /// A network of the plugin `bridge` with addresses from this subnet, and these plugins after it.
    pub fn bridged(&self, name: &str, subnet: &str, more: &[Value]) -> Network {
        let bridge = json!({ "type": "bridge", "bridge": "br0", "isGateway": true,
            "capabilities": { "mac": true, "ips": true }, "ipam": self.host_local(subnet) });
        network(name, "1.0.0", &[&[bridge], more].concat())
    }
}

/// A network of these plugins.
pub fn network(name: &str, version: &str, plugins: &[Value]) -> Network {
    let config = json!({ "cniVersion": version, "name": name, "plugins": plugins });
    cni::parse(config.to_string().as_bytes()).unwrap()
}

/// An attachment of a pod, named as its namespace.
pub fn request(pod: &Namespace, interface: &str) -> AttachmentRequest {
    AttachmentRequest::new(&pod.name, pod.path(), interface)
}

/// An error and its causes.
pub fn whole(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[test]
fn a_namespace_is_gone_after_a_panic() {
    let name = std::sync::Mutex::new(String::new());
    let panicked = std::panic::catch_unwind(|| {
        let namespace = Namespace::new("panics");
        assert!(namespace.path().exists());
        name.lock().unwrap().clone_from(&namespace.name);
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(panicked.is_err());
    assert!(
        !Path::new("/run/netns")
            .join(&*name.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
            .exists()
    );
}
