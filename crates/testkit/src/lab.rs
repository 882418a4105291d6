//! A lab that ends with the test, however the test ends.
//!
//! A shell holds it and reads a pipe of which only we have the other end: when that closes, also because this process was
//! killed, the shell removes the lab and its directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

use crate::server::{binary, workspace};

const HOLDER: &str = r#"
trap : INT TERM HUP
read -r _
"$1" lab down --all >/dev/null
rm -rf -- "$GODWIT_LABS"
"#;

/// The name that every test's lab has: they are told apart by their directories.
const NAME: &str = "test";

/// A running lab.
pub struct TestLab {
    directory: PathBuf,
    program: PathBuf,
    /// How long it took until every node was ready.
    pub took: Duration,
    holder: Option<Child>,
}

impl TestLab {
    /// A lab of a `lab.yaml`; an empty one is the default.
    pub fn up(config: &str) -> Self {
        let mut lab = Self::none();
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), config).expect("the configuration is written");
        let begin = Instant::now();
        let up = lab.godwit(&["lab", "up", "--config", file.path().to_str().expect("UTF-8")]);
        lab.took = begin.elapsed();
        assert!(up.status.success(), "lab up: {}", String::from_utf8_lossy(&up.stderr));
        lab
    }

    /// A place for a lab that is yet to be made.
    pub fn none() -> Self {
        let directory =
            tempfile::Builder::new().prefix("godwit-labs-").tempdir().expect("a directory").keep();
        let program = binary();
        let holder = Command::new("/bin/sh")
            .args(["-c", HOLDER, "holder"])
            .arg(&program)
            .env("GODWIT_LABS", &directory)
            .stdin(Stdio::piped())
            .spawn()
            .expect("/bin/sh starts");
        Self { directory, program, took: Duration::ZERO, holder: Some(holder) }
    }

    /// The directory of this lab.
    pub fn directory(&self) -> PathBuf {
        self.directory.join(NAME)
    }

    /// Starts again what was killed, and waits until all is ready.
    pub fn up_again(&self) {
        let up = self.godwit(&["lab", "up"]);
        assert!(up.status.success(), "lab up: {}", String::from_utf8_lossy(&up.stderr));
    }

    /// Removes the lab; the test fails if that fails.
    pub fn down(&self) {
        let down = self.godwit(&["lab", "down"]);
        assert!(down.status.success(), "lab down: {}", String::from_utf8_lossy(&down.stderr));
    }

    /// The program on this lab.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env("GODWIT_LABS", &self.directory)
            .env("GODWIT_LAB", NAME)
            .stdin(Stdio::null());
        command
    }

    pub fn godwit(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("godwit runs")
    }

    pub fn status(&self) -> Value {
        let status = self.godwit(&["lab", "status", "--json"]);
        assert!(status.status.success(), "lab status: {}", String::from_utf8_lossy(&status.stderr));
        serde_json::from_slice(&status.stdout).expect("the status is JSON")
    }

    /// What a command says inside a node, a pod or the fabric; it must succeed.
    pub fn shell(&self, place: &str, command: &str) -> String {
        let output = self.try_shell(place, command);
        assert!(
            output.status.success(),
            "{command:?} on {place}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    pub fn try_shell(&self, place: &str, command: &str) -> Output {
        self.godwit(&["lab", "shell", place, "--", "/bin/sh", "-c", command])
    }

    pub fn kubeconfig(&self) -> PathBuf {
        let output = self.godwit(&["lab", "kubeconfig"]);
        PathBuf::from(String::from_utf8(output.stdout).expect("UTF-8").trim())
    }

    /// Stock kubectl, as `tools/setup` provides it.
    pub fn kubectl(&self, arguments: &[&str]) -> Output {
        self.kubectl_command(arguments).output().expect("kubectl runs")
    }

    /// The same, for those who have input for it or end it themselves.
    pub fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(kubectl());
        command.args(arguments).env("KUBECONFIG", self.kubeconfig()).stdin(Stdio::null());
        command
    }

    /// What kubectl says; it must succeed.
    pub fn kubectl_ok(&self, arguments: &[&str]) -> String {
        let output = self.kubectl(arguments);
        assert!(
            output.status.success(),
            "kubectl {}: {}{}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// `kubectl apply` of a manifest.
    pub fn apply(&self, manifest: &str) {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), manifest).expect("the manifest is written");
        self.kubectl_ok(&["apply", "-f", file.path().to_str().expect("UTF-8")]);
    }

    pub async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig()).expect("a kubeconfig");
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        Client::try_from(config.expect("a configuration")).expect("a client")
    }

    /// The processes of one role, as the machine sees them: `agent`, `node init`, `shim`…
    pub fn processes(&self, role: &str) -> Vec<i32> {
        let status = self.status();
        let processes = status["processes"].as_array().expect("processes");
        let found = processes
            .iter()
            .filter(|process| process["role"].as_str().is_some_and(|is| is.starts_with(role)));
        found.filter_map(|process| i32::try_from(process["pid"].as_i64()?).ok()).collect()
    }
}

impl Drop for TestLab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let logs = self.godwit(&["lab", "logs"]);
            let text = String::from_utf8_lossy(&logs.stdout);
            let lines: Vec<_> = text.lines().collect();
            eprintln!(
                "--- the end of the lab's logs\n{}",
                lines[lines.len().saturating_sub(60)..].join("\n")
            );
        }
        if let Some(mut holder) = self.holder.take() {
            drop(holder.stdin.take());
            let _ = holder.wait();
        }
    }
}

/// Where stock kubectl is, as `tools/setup` provides it.
pub fn kubectl() -> PathBuf {
    if let Some(path) = std::env::var_os("GODWIT_KUBECTL") {
        return path.into();
    }
    let setup = workspace().join("tools/setup");
    let said = Command::new(setup).arg("--print-env").output().expect("tools/setup runs");
    let said = String::from_utf8(said.stdout).expect("UTF-8");
    let path = said.lines().find_map(|line| line.strip_prefix("export GODWIT_KUBECTL="));
    PathBuf::from(path.expect("tools/setup says where kubectl is"))
}

/// What a lab could leave in the machine's own namespaces: mounts, links, named network namespaces.
#[derive(Debug)]
pub struct Traces(BTreeSet<String>);

impl Traces {
    pub fn now() -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts can be read");
        let mut found: BTreeSet<_> = mounts.lines().map(|mount| format!("mount {mount}")).collect();
        for (what, directory) in [("link", "/sys/class/net"), ("network namespace", "/run/netns")] {
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            found.extend(entries.map(|entry| format!("{what} {}", entry.file_name().to_string_lossy())));
        }
        Self(found)
    }

    /// What is there now and was not then, and the reverse.
    pub fn changes(&self) -> Vec<String> {
        self.0.symmetric_difference(&Self::now().0).cloned().collect()
    }

    /// What is still there of the lab that was in this directory and had this parent of cgroups: the directory, cgroups,
    /// processes that name the directory.
    pub fn of(directory: &Path, cgroup: &str) -> Vec<String> {
        let mut left = Vec::new();
        let hierarchies = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
        let cgroups = hierarchies.map(|hierarchy| hierarchy.path().join(cgroup.trim_start_matches('/')));
        left.extend(cgroups.filter(|cgroup| cgroup.exists()).map(|cgroup| cgroup.display().to_string()));
        let place = directory.display().to_string();
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            if String::from_utf8_lossy(&command).contains(&place) {
                left.push(process.path().display().to_string());
            }
        }
        left.extend(directory.exists().then_some(place));
        left
    }
}
