//! A node and a pod: two network namespaces, and the launcher's image as the root of a process that is first in its own.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use net::Namespace;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Becomes the pod: mounts of its own, the image as root, only the rights that a launcher pod has.
const ENTER: &str = r#"
set -e
directory=$1 rootfs=$2 launcher=$3 kernel=$4 initrd=$5
root=$directory/root
mount -t tmpfs tmpfs "$root"
mkdir "$root/upper" "$root/work" "$root/new"
mount -t overlay -o "lowerdir=$rootfs,upperdir=$root/upper,workdir=$root/work" overlay "$root/new"
cd "$root/new"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs dev
mkdir dev/net dev/pts dev/shm run/kubevirt run/kubevirt-kernel-boot old
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
for device in null zero full random urandom net/tun; do
  : >"dev/$device"
  mount --bind "/dev/$device" "dev/$device"
done
mount --bind "$directory/private" run/kubevirt
cp "$kernel" run/kubevirt-kernel-boot/vmlinuz
cp "$initrd" run/kubevirt-kernel-boot/initrd
cp "$launcher" usr/bin/virt-launcher
hostname pod # which a kubelet also writes there
echo 127.0.0.1 pod >>etc/hosts
pivot_root . old
umount -l /old
ip link set lo up
exec setpriv --bounding-set "$6" --inh-caps=-all -- env -i PATH=/usr/sbin:/usr/bin GODWIT_LOG=debug,launcher=trace virt-launcher
"#;

/// What a launcher pod may do, as capabilities(7) names it.
const RIGHTS: &str =
    "-all,+net_admin,+net_bind_service,+net_raw,+chown,+dac_override,+fowner,+setuid,+setgid,+setpcap,+kill";

/// A process that ends with the test.
pub struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().expect("the tools of util-linux are there"))
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The kernel ends it with the thread that started it, also when that is killed.
fn leashed(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program]);
    command
}

/// A network namespace, held by a process.
pub struct Network {
    holder: Process,
    pub namespace: Namespace,
}

impl Network {
    fn new() -> Self {
        let script = "ip link set lo up && echo ready && exec cat";
        let mut command = leashed("unshare");
        command.args(["--net", "sh", "-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = Process::start(&mut command);
        let mut line = String::new();
        BufReader::new(holder.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "a network namespace can be made: these tests need root");
        let namespace = Namespace::of_process(holder.id()).unwrap();
        Self { holder, namespace }
    }
}

/// A node's network, a pod's network, and the launcher in the pod.
pub struct Pod {
    launcher: Process,
    pub node: Network,
    pub network: Network,
    directory: tempfile::TempDir,
}

impl Pod {
    /// Makes the directories and networks, and starts the launcher.
    pub fn start() -> Self {
        let image = environment("GODWIT_LAUNCHER_IMAGE");
        let (kernel, initrd) = (environment("GODWIT_GUEST_KERNEL"), environment("GODWIT_GUEST_INITRD"));
        let directory = tempfile::tempdir().unwrap();
        for name in ["root", "private"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        let (node, network) = (Network::new(), Network::new());
        let mut command = leashed("nsenter");
        command
            .arg(format!("--net=/proc/{}/ns/net", network.holder.id()))
            .args(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--ipc", "--uts"])
            .args(["sh", "-c", ENTER, "enter"])
            .args([directory.path(), &image.join("rootfs"), Path::new(env!("CARGO_BIN_EXE_virt-launcher"))])
            .args([&kernel, &initrd])
            .arg(RIGHTS)
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(directory.path().join("console")).unwrap())
            .stderr(std::fs::File::create(directory.path().join("log")).unwrap());
        let launcher = Process::start(&mut command);
        Self { launcher, node, network, directory }
    }

    /// The directory that launcher and handler share.
    pub fn private(&self) -> PathBuf {
        self.directory.path().join("private")
    }

    /// What the guest wrote to its serial console, as the launcher passed it on.
    pub fn console(&self) -> String {
        let bytes = std::fs::read(self.directory.path().join("console")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The launcher's own log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Process numbers of a program in the pod, as the machine sees them.
    pub fn processes(&self, program: &str) -> Vec<u32> {
        let space = |link: String| std::fs::read_link(link).ok();
        let pod = space(format!("/proc/{}/ns/pid_for_children", self.launcher.id()));
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        all.filter(|pid| pod.is_some() && space(format!("/proc/{pid}/ns/pid")) == pod)
            .filter(|pid| {
                let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                name.trim_end().starts_with(program)
            })
            .collect()
    }

    /// Kills the one process of that name.
    pub fn kill(&self, program: &str) {
        let [pid] = self.processes(program)[..] else {
            panic!("there is one {program}, not {:?}:\n{}", self.processes(program), self.log())
        };
        kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL).unwrap();
    }

    /// Asks the pod's first process to end, as a kubelet does.
    pub fn terminate(&self) {
        for pid in self.processes("virt-launcher") {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
            if numbers.split_whitespace().last() == Some("1") {
                kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGTERM).unwrap();
            }
        }
    }

    /// The end of the launcher.
    pub async fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            if let Some(status) = self.launcher.0.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the launcher does not end:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// What `tools/setup vm` made.
fn environment(name: &str) -> PathBuf {
    let path = std::env::var(name).ok().or_else(|| {
        let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/setup");
        let said = Command::new(setup).arg("--print-env").output().expect("tools/setup runs");
        let said = String::from_utf8(said.stdout).unwrap();
        said.lines().find_map(|line| line.strip_prefix(&format!("export {name}=")).map(str::to_owned))
    });
    let path =
        PathBuf::from(path.unwrap_or_else(|| panic!("${name} is not set, and tools/setup does not know it")));
    assert!(path.exists(), "{} is not there: run `tools/setup vm` first", path.display());
    path
}
