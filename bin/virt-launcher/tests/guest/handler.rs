//! The handler that a launcher sees: a CNI proxy that makes a veth as a plugin would, and the other end of `launcher.sock`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use net::{Address, DuplicateDetection, Handle, NewLink, Peer, Route, Sysctl};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use wire::{Command, Event, Lines, ProxyRequest, ProxyResponse, Status, Vnic, VnicAddress, VnicRoute};

use crate::sandbox::Pod;

pub const GATEWAY: &str = "10.9.0.1";
pub const ADDRESS: &str = "10.9.0.5";
pub const GATEWAY_IPV6: &str = "fd09::1";
pub const ADDRESS_IPV6: &str = "fd09::5";
/// Addresses of the node beyond the gateway: whoever answers to them has a default route.
pub const BEYOND: [&str; 2] = ["192.0.2.9", "2001:db8::9"];
/// What the pod itself has, in tests that give it an interface.
pub const POD: [&str; 2] = ["10.9.0.7", "fd09::7"];
pub const MTU: u32 = 1400;

/// The test as the handler of the pod's node.
pub struct Handler {
    pub pod: Pod,
    commands: OwnedWriteHalf,
    status: watch::Receiver<Status>,
    refusals: mpsc::UnboundedReceiver<(String, String)>,
    /// What was asked for at the CNI socket.
    pub asked: Arc<Mutex<Vec<ProxyRequest>>>,
}

impl Handler {
    /// A node with a bridge that is the gateway, a pod, a launcher that says hello.
    pub async fn start() -> Self {
        Self::start_at(GATEWAY).await
    }

    /// The same with another address for the node.
    pub async fn start_at(address: &str) -> Self {
        let pod = Pod::start();
        let node = Handle::open(&pod.node.namespace).unwrap();
        // A bridge has the address of one of its ports, and another when that one goes: guests would not find it for a while.
        let last = address.rsplit('.').next().unwrap().parse().unwrap();
        let mac = net::MacAddress([2, 0, 0, 0, 9, last]);
        node.ensure_link(&NewLink::bridge("cni0").mac(mac).up()).await.unwrap();
        // A router answers to calls for routers.
        pod.node.namespace.set_sysctl(&Sysctl::ipv6_forwarding(), "1").unwrap();
        let [beyond, beyond_ipv6] = BEYOND;
        for (link, address) in [
            ("cni0", format!("{address}/24")),
            ("cni0", format!("{GATEWAY_IPV6}/64")),
            ("lo", format!("{beyond}/32")),
            ("lo", format!("{beyond_ipv6}/128")),
        ] {
            node.add_address(link, usable(&address)).await.unwrap();
        }
        let asked = Arc::default();
        serve(&pod, Arc::clone(&asked));
        let (commands, status, refusals) = connect(&pod).await;
        Self { pod, commands, status, refusals, asked }
    }

    /// Makes one segment of two nodes' bridges.
    pub async fn join(&self, other: &Self) {
        let node = Handle::open(&self.pod.node.namespace).unwrap();
        let far = &other.pod.node.namespace;
        node.create_link(
            &NewLink::veth("uplink", Peer::new("uplink").namespace(far).up()).master("cni0").up(),
        )
        .await
        .unwrap();
        Handle::open(far).unwrap().set_master("uplink", "cni0").await.unwrap();
    }

    /// Undoes it: the other node goes away.
    pub async fn part(&self) {
        Handle::open(&self.pod.node.namespace).unwrap().delete_link("uplink").await.unwrap();
    }

    pub async fn send(&mut self, command: &Command) {
        self.commands.write_all(&wire::encode(command).unwrap()).await.unwrap();
    }

    /// Waits for a status.
    pub async fn until(&self, what: &str, seconds: u64, holds: impl Fn(&Status) -> bool) -> Status {
        let deadline = Duration::from_secs(seconds);
        let mut status = self.status.clone();
        let held = tokio::time::timeout(deadline, status.wait_for(|status| holds(status))).await;
        if let Ok(Ok(status)) = held {
            return status.clone();
        }
        let (last, log, console) = (self.status.borrow().clone(), self.pod.log(), self.pod.console());
        panic!("not {what} within {seconds} s\nlast: {last:?}\nlog:\n{log}\nconsole:\n{console}")
    }

    pub async fn refused(&mut self) -> (String, String) {
        tokio::time::timeout(Duration::from_secs(5), self.refusals.recv()).await.unwrap().unwrap()
    }

    /// A connection from the node to the guest, tried until it is there.
    pub fn reach(&self, address: &str, port: u16, seconds: u64) -> TcpStream {
        let target = SocketAddr::new(address.parse::<IpAddr>().unwrap(), port);
        let deadline = Instant::now() + Duration::from_secs(seconds);
        let connect = || loop {
            match TcpStream::connect_timeout(&target, Duration::from_secs(1)) {
                Ok(stream) => return Ok(stream),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        };
        let reached = tokio::task::block_in_place(|| self.pod.node.namespace.run(connect)).unwrap();
        reached.unwrap_or_else(|error| {
            panic!(
                "{target} is not reached: {error}\nlog:\n{}\nconsole:\n{}",
                self.pod.log(),
                self.pod.console()
            )
        })
    }

    /// The guest says back what it is told.
    pub fn echo(&self, address: &str) {
        let mut stream = self.reach(address, 7, 30);
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(b"hello").unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"hello");
    }

    /// The guest opens a connection to the node, to an address that is not of its network; says from where it came.
    pub fn reached_by_guest(&self, control: &str, beyond: &str) -> IpAddr {
        let here = SocketAddr::new(beyond.parse().unwrap(), 0);
        let listener = self.pod.node.namespace.run(|| TcpListener::bind(here)).unwrap().unwrap();
        let to = listener.local_addr().unwrap().to_string();
        let accepted = std::thread::spawn(move || listener.accept().map(|(_, from)| from.ip()));
        let answer = self.control_at(control, &serde_json::json!({ "connect": { "to": to } }));
        assert_eq!(answer["ok"], true, "{to}: {answer}");
        accepted.join().unwrap().unwrap()
    }

    /// Gives the pod an interface of its own, as a plugin would before the launcher starts anything.
    pub async fn give_pod_an_interface(&self) {
        let inside = Handle::open(&self.pod.network.namespace).unwrap();
        let node = Handle::open(&self.pod.node.namespace).unwrap();
        let end = Peer::new("eth0").namespace(inside.namespace()).mtu(MTU).up();
        node.create_link(&NewLink::veth("vethpod", end).master("cni0").mtu(MTU).up()).await.unwrap();
        let [own, own_ipv6] = POD;
        for address in [format!("{own}/24"), format!("{own_ipv6}/64")] {
            inside.add_address("eth0", usable(&address)).await.unwrap();
        }
        for gateway in [GATEWAY, GATEWAY_IPV6] {
            inside.ensure_route(&Route::default_by(gateway.parse().unwrap())).await.unwrap();
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.look("ip -6 address show dev eth0").contains("tentative") {
            assert!(Instant::now() < deadline, "the interface is not ready within 10 s");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What a tool says in the pod's network.
    pub fn look(&self, command: &str) -> String {
        let mut words = command.split_whitespace();
        let mut tool = std::process::Command::new(words.next().unwrap());
        let output = self.pod.network.namespace.run(|| tool.args(words).output()).unwrap().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Asks the guest's control service.
    pub fn control(&self, request: &Value) -> Value {
        self.control_at(ADDRESS, request)
    }

    pub fn control_at(&self, address: &str, request: &Value) -> Value {
        let mut stream = self.reach(address, 7002, 30);
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(format!("{request}\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Names of the pod's links, without loopback.
    pub async fn links(&self) -> Vec<String> {
        let links = Handle::open(&self.pod.network.namespace).unwrap().links().await.unwrap();
        links.into_iter().map(|link| link.name).filter(|name| name != "lo").collect()
    }
}

fn usable(address: &str) -> Address {
    Address::new(address.parse().unwrap()).detection(DuplicateDetection::Skip)
}

async fn connect(
    pod: &Pod,
) -> (OwnedWriteHalf, watch::Receiver<Status>, mpsc::UnboundedReceiver<(String, String)>) {
    let path = pod.private().join(wire::LAUNCHER_SOCKET);
    let deadline = Instant::now() + Duration::from_secs(30);
    let stream = loop {
        match UnixStream::connect(&path).await {
            Ok(stream) => break stream,
            Err(error) => {
                assert!(Instant::now() < deadline, "the launcher does not listen: {error}\n{}", pod.log());
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let (mut reader, mut writer) = stream.into_split();
    let (sender, status) = watch::channel(Status::default());
    let (refused, refusals) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let (mut lines, mut buffer) = (Lines::new(), vec![0; 8192]);
        while let Ok(count @ 1..) = reader.read(&mut buffer).await {
            lines.push(&buffer[..count]);
            while let Some(event) = lines.next::<Event>() {
                match event.unwrap() {
                    Event::Hello { version } => assert_eq!(version, wire::VERSION),
                    Event::Status(status) => drop(sender.send_replace(*status)),
                    Event::Refused { command, reason } => drop(refused.send((command, reason))),
                }
            }
        }
    });
    writer.write_all(&wire::encode(&Command::Hello { version: wire::VERSION }).unwrap()).await.unwrap();
    (writer, status, refusals)
}

fn serve(pod: &Pod, asked: Arc<Mutex<Vec<ProxyRequest>>>) {
    let listener = UnixListener::bind(pod.private().join(wire::CNI_SOCKET)).unwrap();
    let (node, network) = (pod.node.namespace.clone(), pod.network.namespace.clone());
    tokio::spawn(async move {
        let (node, inside) = (Handle::open(&node).unwrap(), Handle::open(&network).unwrap());
        while let Ok((mut stream, _)) = listener.accept().await {
            let (mut lines, mut buffer) = (Lines::new(), vec![0; 8192]);
            while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                lines.push(&buffer[..count]);
                while let Some(request) = lines.next::<ProxyRequest>() {
                    let request = request.unwrap();
                    asked.lock().unwrap().push(request.clone());
                    let response = answer(&node, &inside, request).await;
                    stream.write_all(&wire::encode(&response).unwrap()).await.unwrap();
                }
            }
        }
    });
}

/// As the plugin `bridge` with `host-local` would.
async fn answer(node: &Handle, pod: &Handle, request: ProxyRequest) -> ProxyResponse {
    match request {
        ProxyRequest::Add { vnic } => {
            let end = Peer::new("vnic0").namespace(pod.namespace()).mtu(MTU).up();
            node.create_link(&NewLink::veth("veth0", end).master("cni0").mtu(MTU).up()).await.unwrap();
            let given = |(address, gateway): (String, &str)| VnicAddress {
                address: address.parse().unwrap(),
                gateway: Some(gateway.parse().unwrap()),
            };
            let addresses =
                [(format!("{ADDRESS}/24"), GATEWAY), (format!("{ADDRESS_IPV6}/64"), GATEWAY_IPV6)].map(given);
            for given in &addresses {
                let address = Address::new(given.address).detection(DuplicateDetection::Skip);
                pod.add_address("vnic0", address).await.unwrap();
            }
            let default = |to: &str| VnicRoute { destination: to.parse().unwrap(), gateway: None };
            let added = Vnic {
                name: vnic,
                interface: "vnic0".parse().unwrap(),
                mac: None,
                addresses: addresses.to_vec(),
                routes: vec![default("0.0.0.0/0"), default("::/0")],
                dns: wire::Dns {
                    servers: vec!["10.96.0.10".parse().unwrap()],
                    search: vec!["cluster.local".to_owned()],
                },
                mtu: None,
            };
            ProxyResponse::Added { vnic: Box::new(added) }
        }
        ProxyRequest::Del { vnic } => {
            // A plugin looks for the address when it takes its rules away.
            let addresses = pod.addresses("vnic0").await.unwrap();
            let has = |own: &str| addresses.iter().any(|address| address.network.addr().to_string() == own);
            if !(has(ADDRESS) && has(ADDRESS_IPV6)) {
                return ProxyResponse::Failed { error: "vnic0 has lost its addresses".to_owned() };
            }
            node.delete_link("veth0").await.unwrap();
            ProxyResponse::Deleted { vnic }
        }
        ProxyRequest::Check { vnic } => ProxyResponse::Checked { vnic },
        ProxyRequest::List {} => ProxyResponse::Listed { vnics: Vec::new() },
    }
}
