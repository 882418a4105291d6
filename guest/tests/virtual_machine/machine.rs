//! A virtual machine with the test guest in it, in namespaces of its own: QEMU and dnsmasq from the launcher's root file system, a
//! bridge between them.
//!
//! Nothing of it outlives the test, however that ends. The network and the mounts are those of the test's own thread, the files are in
//! memory, and the processes are in a PID namespace whose first process the kernel kills when that thread is gone.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};

/// First process of the PID namespace, in a directory that the test sees too. Arguments: the root file system, kernel, initrd.
const SCRIPT: &str = r#"
set -eu
rootfs=$1 kernel=$2 initrd=$3
mkdir upper work root shared
mount -t overlay -o "lowerdir=$rootfs,upperdir=upper,workdir=work" overlay root
root=$PWD/root
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount --bind shared "$root/mnt"
touch "$root/kernel" "$root/initrd"
mount --bind "$kernel" "$root/kernel"
mount --bind "$initrd" "$root/initrd"

ip link set lo up
ip link add br0 type bridge
ip address add 10.77.0.1/24 dev br0
ip address add fd77::1/64 dev br0 nodad
ip link set br0 up
for tap in tap0 tap1; do
  ip tuntap add "$tap" mode tap
  ip link set "$tap" master br0 up
done

chroot "$root" dnsmasq --keep-in-foreground --log-facility=- --log-dhcp --conf-file=/dev/null --user=root --leasefile-ro --port=0 \
  --interface=br0 --bind-interfaces --enable-ra --dhcp-authoritative \
  --dhcp-range=10.77.0.0,static,2m --dhcp-range=fd77::,static,64,2m \
  --dhcp-host=52:54:00:77:00:05,10.77.0.5 --dhcp-host=52:54:00:77:00:06,10.77.0.6 \
  --dhcp-host=id:00:03:00:01:52:54:00:77:00:05,[fd77::5] \
  --dhcp-option=option:mtu,1400 --dhcp-option=option:dns-server,10.77.0.53 --dhcp-option=option6:dns-server,[fd77::53] \
  --dhcp-option=option:classless-static-route,0.0.0.0/0,10.77.0.1,10.78.0.0/16,10.77.0.2 >&2 &

exec chroot "$root" qemu-system-x86_64 -machine q35 -accel tcg -cpu qemu64 -m 512 -nodefaults -display none \
  -kernel /kernel -initrd /initrd -append 'console=ttyS0 quiet no_timer_check cryptomgr.notests' -serial stdio -qmp unix:/mnt/qmp,server=on,wait=off \
  -device pcie-root-port,id=port1,slot=1 \
  -netdev tap,id=net0,ifname=tap0,script=no,downscript=no -device virtio-net-pci,netdev=net0,mac=52:54:00:77:00:05
"#;

const LOG: &str = "log";

pub struct Machine {
    process: Child,
    serial: Receiver<String>,
    qmp: BufReader<UnixStream>,
}

impl Machine {
    /// Starts a machine. The calling thread is in the machine's network, and among its files, from now on.
    pub fn start() -> Self {
        let environment = environment();
        separate().expect("namespaces of its own: run as root");
        let mut process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child"])
            .args(["--ipc", "--uts", "bash", "-c", SCRIPT, "machine"])
            .arg(environment.launcher.join("rootfs"))
            .args([&environment.kernel, &environment.initrd])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(LOG).unwrap())
            .spawn()
            .expect("setpriv starts");
        let (lines, serial) = channel();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                eprintln!("serial: {line}");
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
        let qmp = connect_qmp(&mut process);
        let mut machine = Self { process, serial, qmp };
        machine.qmp("qmp_capabilities", &json!({}));
        machine
    }

    /// The next line on the serial console that is the event and holds what is wanted.
    pub fn event(&self, event: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.serial.recv_timeout(left) else {
                panic!("the guest never said {event:?} as expected; its surroundings said:\n{}", log());
            };
            let said: Value = serde_json::from_str(line.trim()).unwrap_or_default();
            let said = &said["godwit-guest"];
            assert_ne!(said["event"], "error", "{said}");
            if said["event"] == event && wanted(said) {
                return said.clone();
            }
        }
    }

    /// Asks QEMU to do something, and gives what it returns.
    pub fn qmp(&mut self, command: &str, arguments: &Value) -> Value {
        let request = json!({ "execute": command, "arguments": arguments });
        self.qmp.get_mut().write_all(format!("{request}\n").as_bytes()).unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(self.qmp.read_line(&mut line).unwrap(), 0, "QEMU is gone:\n{}", log());
            let answer: Value = serde_json::from_str(&line).unwrap();
            assert!(answer["error"].is_null(), "{command}: {answer}");
            if let Some(value) = answer.get("return") {
                return value.clone();
            }
        }
    }

    pub fn control(address: &str) -> impl FnMut(Value) -> Value + use<> {
        let mut lines = BufReader::new(connect(address));
        move |request| {
            lines.get_mut().write_all(format!("{request}\n").as_bytes()).unwrap();
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            let answer: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(answer["ok"], true, "{request}: {answer}");
            answer
        }
    }

    /// Waits for QEMU to end.
    pub fn ended(mut self) -> ExitStatus {
        // Its end closes the serial line.
        while self.serial.recv_timeout(Duration::from_secs(20)).is_ok() {}
        self.process.wait().unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Gives the calling thread a network and mounts of its own, and a working directory in memory: what it starts from now on is there too.
fn separate() -> std::io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
    let directory = env!("CARGO_TARGET_TMPDIR");
    mount(Some("tmpfs"), directory, Some("tmpfs"), MsFlags::empty(), None::<&str>)?;
    // With mounts of its own, a thread has a working directory of its own too.
    std::env::set_current_dir(directory)
}

/// What QEMU, dnsmasq and the script said.
fn log() -> String {
    std::fs::read_to_string(LOG).unwrap_or_default()
}

pub fn connect(address: &str) -> TcpStream {
    let address: SocketAddr = address.parse().unwrap();
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))
        .unwrap_or_else(|cause| panic!("{address}: {cause}"));
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// QEMU makes the socket when it starts; until then there is nothing to wait on but the file.
fn connect_qmp(process: &mut Child) -> BufReader<UnixStream> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Ok(stream) = UnixStream::connect("shared/qmp") {
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            return BufReader::new(stream);
        }
        let ended = process.try_wait().unwrap();
        let waiting = ended.is_none() && Instant::now() < deadline;
        assert!(waiting, "QEMU does not start ({ended:?}):\n{}", log());
        std::thread::sleep(Duration::from_millis(10));
    }
}

struct Environment {
    launcher: PathBuf,
    kernel: PathBuf,
    initrd: PathBuf,
}

/// What `tools/setup vm` made. It is run again, so that the guest is the one of this source; that takes no time otherwise.
fn environment() -> Environment {
    let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/setup");
    let said = Command::new(&setup).arg("--print-env").output().expect("tools/setup runs");
    let said = String::from_utf8(said.stdout).unwrap();
    let path = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(&format!("export {name}=")));
        let path = PathBuf::from(line.unwrap_or_else(|| panic!("tools/setup does not say {name}")));
        assert!(path.exists(), "{} is not there: run `tools/setup vm` first", path.display());
        path
    };
    let environment = Environment {
        launcher: path("GODWIT_LAUNCHER_IMAGE"),
        kernel: path("GODWIT_GUEST_KERNEL"),
        initrd: path("GODWIT_GUEST_INITRD"),
    };
    assert!(Command::new(&setup).arg("vm").status().unwrap().success(), "tools/setup vm failed");
    environment
}
