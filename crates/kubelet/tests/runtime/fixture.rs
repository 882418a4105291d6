//! A node for one test: namespaces that end with it, a runtime in them, and a look at what is left.

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use kubelet::runtime::{Container, ContainerId, Exit, Options, Resources, Runtime, Security, State};

const INSIDE: &str = "GODWIT_TEST_INSIDE";
const CGROUPS: &str = "/sys/fs/cgroup";
const PREFIX: &str = "godwit-kubelet-test-";
/// Far more than any test takes on a busy machine.
pub const LONG: Duration = Duration::from_mins(1);

/// Runs the body of the test of this name in namespaces of its own. The body begins with a runtime on which nothing
/// runs, and must leave it like that.
pub fn isolated<F: Future<Output = ()>>(test: &str, body: impl FnOnce(Node) -> F) {
    let Some(cgroup) = std::env::var_os(INSIDE) else { return outside(test) };
    let state = Path::new("/run/node");
    let mount = ["-t", "tmpfs", "-o", "mode=755", "none", "/run"];
    assert!(Command::new("mount").args(mount).status().unwrap().success(), "a tmpfs can be mounted");
    fs::create_dir_all(state.join("images")).unwrap();
    let node = Node { state: state.to_owned(), cgroup: cgroup.into_string().unwrap() };
    let look = node.clone();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        tokio::time::timeout(LONG * 3, body(node)).await.expect("the test came to its end");
    });
    look.assert_nothing_left();
}

fn outside(test: &str) {
    sweep();
    let cgroup = format!("/{PREFIX}{}-{}", std::process::id(), test.replace("::", "-"));
    let _cgroup = Cgroup(cgroup.clone());
    // The thread that waits here is the parent whose end ends all.
    let output = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--net", "--fork", "--kill-child"])
        .arg("--mount-proc")
        // As on a node, the first process takes note of the end of those who lost their parent.
        .args(["sh", "-c", "\"$@\"; exit $?", "init"])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, cgroup)
        .output()
        .expect("setpriv and unshare are installed");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "in its namespaces:\n{}", String::from_utf8_lossy(&said));
    assert!(String::from_utf8_lossy(&said).contains("1 passed"), "{test} is the name of the test");
}

/// The cgroups of one test.
struct Cgroup(String);

impl Drop for Cgroup {
    fn drop(&mut self) {
        for hierarchy in fs::read_dir(CGROUPS).unwrap() {
            remove_cgroup(&hierarchy.unwrap().path().join(self.0.trim_start_matches('/')));
        }
    }
}

/// What a killed test could not remove.
fn sweep() {
    for hierarchy in fs::read_dir(CGROUPS).unwrap() {
        let Ok(groups) = fs::read_dir(hierarchy.unwrap().path()) else { continue };
        for group in groups.flatten() {
            let name = group.file_name().into_string().unwrap_or_default();
            let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
            if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                remove_cgroup(&group.path());
            }
        }
    }
}

/// Another test may be at it, and a process that was killed may still be in it: the next sweep takes it.
fn remove_cgroup(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove_cgroup(&entry.path());
        }
    }
    let _ = fs::remove_dir(path);
}

/// Where the runtime of a test keeps its things.
#[derive(Clone)]
pub struct Node {
    pub state: PathBuf,
    pub cgroup: String,
}

impl Node {
    pub fn options(&self) -> Options {
        let this = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
        let shim = [this.as_str(), "become_the_shim", "--exact", "--ignored", "--nocapture"];
        Options {
            state: self.state.join("state"),
            run: self.state.join("run"),
            images: self.state.join("images"),
            runtime: "runc".into(),
            shim: shim.map(str::to_owned).to_vec(),
            cgroup_parent: self.cgroup.clone(),
        }
    }

    /// An agent that starts, or starts again.
    pub fn open(&self) -> Runtime {
        Runtime::open(self.options()).unwrap()
    }

    pub fn container_directory(&self, id: &ContainerId) -> PathBuf {
        let name = format!("{}_{}_{}", id.pod, id.container, id.attempt);
        self.state.join("state/containers").join(name)
    }

    /// No files but logs, mounts, cgroups or processes of any container.
    pub fn assert_nothing_left(&self) {
        for place in ["state/containers", "state/trash", "run"] {
            let left: Vec<_> = fs::read_dir(self.state.join(place))
                .into_iter()
                .flatten()
                .map(|e| e.unwrap().path())
                .collect();
            assert!(left.is_empty(), "files are left: {left:?}");
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let left: Vec<_> = mounts.lines().filter(|line| line.contains("/run/node")).collect();
        assert!(left.is_empty(), "mounts are left: {left:?}");
        for hierarchy in fs::read_dir(CGROUPS).unwrap() {
            let group = hierarchy.unwrap().path().join(self.cgroup.trim_start_matches('/'));
            let inside = fs::read_dir(&group).into_iter().flatten().flatten();
            let left: Vec<_> = inside.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
            assert!(left.is_empty(), "cgroups are left: {left:?}");
        }
        // A shim that was told nothing before its agent was killed ends by itself.
        let deadline = Instant::now() + LONG;
        while !processes().is_empty() {
            assert!(Instant::now() < deadline, "processes are left: {:?}", processes());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The command lines of all living processes but our own and the first one.
pub fn processes() -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        // A zombie has no command line.
        if pid != 1 && pid != std::process::id() && !command.is_empty() {
            found.push(format!("{pid} {}", String::from_utf8_lossy(&command).replace('\0', " ")));
        }
    }
    found
}

pub fn id(container: &str) -> ContainerId {
    ContainerId {
        pod: "0f4b3c1e-0000-4000-8000-000000000001".into(),
        container: container.into(),
        attempt: 0,
    }
}

/// A container of the node's own root file system that runs a shell script.
pub fn script(container: &str, text: &str) -> Container {
    Container {
        id: id(container),
        image: "host".into(),
        command: ["/bin/sh", "-c", text].map(str::to_owned).to_vec(),
        environment: Vec::new(),
        working_directory: None,
        hostname: "pod-name".into(),
        mounts: Vec::new(),
        network: None,
        host_pid: false,
        host_ipc: false,
        security: Security::default(),
        resources: Resources::default(),
        labels: BTreeMap::new(),
    }
}

/// Runs until it is killed, and dies of SIGTERM.
pub fn sleeper(container: &str) -> Container {
    script(container, "trap 'exit 7' TERM; echo ready; while :; do sleep 1000 & wait; done")
}

/// Runs it to its end and removes it; how it ended, and what it wrote.
pub async fn run(runtime: &Runtime, container: &Container) -> (Exit, String) {
    runtime.start(container).await.unwrap();
    let exit = runtime.wait(&container.id).await.unwrap();
    runtime.remove(&container.id).await.unwrap();
    let written = written(runtime, &container.id);
    runtime.remove_logs(&container.id.pod).await.unwrap();
    (exit, written)
}

/// The text of its log, without times and marks.
pub fn written(runtime: &Runtime, id: &ContainerId) -> String {
    let log = fs::read_to_string(runtime.log(id)).unwrap_or_default();
    log.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap_or_default().to_owned() + "\n").collect()
}

/// Waits until it has written this text to its log.
pub async fn wrote(runtime: &Runtime, id: &ContainerId, text: &str) {
    eventually(&format!("{id} writes {text:?}"), || written(runtime, id).contains(text)).await;
}

/// Waits for something that nobody announces.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, waiting).await.unwrap_or_else(|_| panic!("did not come to pass: {what}"));
}

pub async fn pid(runtime: &Runtime, id: &ContainerId) -> u32 {
    match runtime.state(id).await.unwrap() {
        Some(State::Running { pid, .. }) => pid,
        other => panic!("{id} runs: {other:?}"),
    }
}
