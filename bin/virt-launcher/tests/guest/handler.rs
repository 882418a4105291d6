//! The handler that a launcher sees: a CNI proxy that makes a veth as a plugin would, and the other end of `launcher.sock`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use net::{Address, Handle, IpNet, NewLink, Peer};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use wire::{Command, Event, Lines, ProxyRequest, ProxyResponse, Status, Vnic, VnicAddress, VnicRoute};

use crate::sandbox::Pod;

pub const GATEWAY: &str = "10.9.0.1";
pub const ADDRESS: &str = "10.9.0.5";
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
        node.ensure_link(&NewLink::bridge("cni0").up()).await.unwrap();
        node.add_address("cni0", Address::new(format!("{address}/24").parse().unwrap())).await.unwrap();
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

    /// Asks the guest's control service.
    pub fn control(&self, request: &Value) -> Value {
        let mut stream = self.reach(ADDRESS, 7002, 30);
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
            let address: IpNet = format!("{ADDRESS}/24").parse().unwrap();
            pod.add_address("vnic0", Address::new(address)).await.unwrap();
            let default = VnicRoute { destination: "0.0.0.0/0".parse().unwrap(), gateway: None };
            let added = Vnic {
                name: vnic,
                interface: "vnic0".parse().unwrap(),
                mac: None,
                addresses: vec![VnicAddress { address, gateway: Some(GATEWAY.parse().unwrap()) }],
                routes: vec![default],
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
            if !addresses.iter().any(|address| address.network.addr().to_string() == ADDRESS) {
                return ProxyResponse::Failed { error: "vnic0 has lost its address".to_owned() };
            }
            node.delete_link("veth0").await.unwrap();
            ProxyResponse::Deleted { vnic }
        }
        ProxyRequest::Check { vnic } => ProxyResponse::Checked { vnic },
        ProxyRequest::List {} => ProxyResponse::Listed { vnics: Vec::new() },
    }
}
