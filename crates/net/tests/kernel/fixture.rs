//! Namespaces for one test, and the other tool in them. Everything is removed when the fixture is dropped, by a panic too.

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use net::{Address, DuplicateDetection, Handle, IpNet, MacAddress, Namespace, Namespaces, NewLink, Peer};
use serde_json::Value;

pub struct Fixture {
    pub namespaces: Namespaces,
    directory: tempfile::TempDir,
}

impl Fixture {
    pub fn new() -> Self {
        assert!(nix::unistd::geteuid().is_root(), "these tests make network namespaces: run them as root");
        for tool in ["ip", "tc", "bridge", "nsenter", "unshare"] {
            let found = Command::new(tool).arg("-V").output();
            assert!(found.is_ok(), "there is no {tool} here: run tools/setup");
        }
        let directory = tempfile::tempdir().unwrap();
        Self { namespaces: Namespaces::at(directory.path().join("netns")), directory }
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn namespace(&self, name: &str) -> Namespace {
        self.namespaces.create(name).unwrap()
    }

    pub fn handle(&self, name: &str) -> Handle {
        Handle::open(&self.namespace(name)).unwrap()
    }

    /// Two namespaces, `a` and `b`, joined by `eth0` in each, with 192.0.2.1 and .2, 2001:db8::1 and ::2.
    pub async fn pair(&self) -> (Handle, Handle) {
        let (a, b) = (self.handle("a"), self.handle("b"));
        a.create_link(&NewLink::veth("eth0", Peer::new("eth0").namespace(b.namespace()).up()).up())
            .await
            .unwrap();
        for (handle, number) in [(&a, 1), (&b, 2)] {
            for address in [format!("192.0.2.{number}/24"), format!("2001:db8::{number}/64")] {
                let address = Address::new(network(&address)).detection(DuplicateDetection::Skip);
                handle.add_address("eth0", address).await.unwrap();
            }
        }
        (a, b)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let deleted = self.namespaces.delete_all();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let left = mounts.lines().find(|line| line.contains(&self.directory().display().to_string()));
        if !std::thread::panicking() {
            deleted.unwrap();
            assert_eq!(left, None, "a mount is left");
        }
    }
}

pub fn network(text: &str) -> IpNet {
    text.parse().unwrap()
}

pub fn mac(text: &str) -> MacAddress {
    text.parse().unwrap()
}

/// Runs another tool inside the namespace, which that tool enters by itself.
pub fn run(namespace: &Namespace, command: &str) -> String {
    let path = format!("--net={}", namespace.path().display());
    let output = Command::new("nsenter").arg(path).args(command.split_whitespace()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command} in {}: {error}", namespace.name());
    String::from_utf8(output.stdout).unwrap()
}

/// The answer of `ip -j`, `tc -j` or `bridge -j`, which may be nothing at all.
pub fn ask(namespace: &Namespace, command: &str) -> Value {
    let text = run(namespace, command);
    if text.trim().is_empty() { Value::Array(Vec::new()) } else { serde_json::from_str(&text).unwrap() }
}

/// What `ip` says of one link.
pub fn link(namespace: &Namespace, name: &str) -> Value {
    ask(namespace, &format!("ip -j -d -s link show dev {name}"))[0].clone()
}

/// Waits until `look` finds something.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited 10 s in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a datagram of some bytes from one namespace to an address in another, and sees it arrive.
pub fn datagram(from: &Namespace, to: &Namespace, address: &str, bytes: usize) {
    let receiver = to.run(|| UdpSocket::bind((address, 0)).unwrap()).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let there = receiver.local_addr().unwrap();
    let any = if there.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let sender = from.run(|| UdpSocket::bind(any).unwrap()).unwrap();
    sender.send_to(&vec![0; bytes], there).unwrap();
    let mut buffer = vec![0; bytes];
    let received = loop {
        match receiver.recv(&mut buffer) {
            // A wait with a limit is not taken up again by the kernel.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            done => break done.unwrap(),
        }
    };
    assert_eq!(received, bytes);
}

/// Notes that something could not be tried on this kernel.
pub fn not_run_here(what: &str, error: &net::Error) {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    testkit::not_run(&format!("{what}: {error}{cause}"));
}
