//! Two nodes for one test. Everything is removed when the fixture is dropped, by a panic too.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use identity::{Authority, Identity, Member, Subject};
use net::{Address, DuplicateDetection, Handle, Namespace, Namespaces, NewLink, Peer};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tunnel::{
    Channel, Credentials, Dialler, Forward, Listener, Migration, Mover, PORT, Probes, Refusal, Refusals,
    Registration, Registrations, Route, Source, Target, Timeouts, Token,
};

pub const DEADLINE: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_hours(1);

/// A namespace, and a runtime whose threads live in it: what they open and start is on that node.
pub struct Node {
    pub name: &'static str,
    pub namespace: Namespace,
    runtime: Option<Runtime>,
    pub address: IpAddr,
}

impl Node {
    fn new(name: &'static str, namespace: Namespace, address: &str) -> Self {
        let build = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = namespace.run(build).unwrap().unwrap();
        Self { name, namespace, runtime: Some(runtime), address: address.parse().unwrap() }
    }

    /// Runs to its end what must happen on the node.
    pub fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let runtime = self.runtime.as_ref().unwrap();
        runtime
            .block_on(async { tokio::time::timeout(DEADLINE, runtime.spawn(work)).await })
            .unwrap_or_else(|_| panic!("{}: no end within {DEADLINE:?}", self.name))
            .unwrap()
    }

    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.as_ref().unwrap().spawn(work);
    }

    pub fn member(&self) -> Member {
        member(self.name)
    }

    /// Bytes that left by a link of this node so far.
    pub fn sent_by(&self, link: &'static str) -> u64 {
        self.with_handle(async move |handle| handle.counters(link).await.unwrap().tx_bytes)
    }

    /// How often threads of that name that live on this node have gone to sleep, each of them.
    pub fn times_threads_slept(&self, name: &str) -> Vec<u64> {
        let inode = |path: &Path| path.metadata().map(|found| found.ino()).ok();
        let here = inode(self.namespace.path());
        let slept = |thread: PathBuf| {
            let status = std::fs::read_to_string(thread.join("status")).ok()?;
            let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            let wanted = field("Name:") == Some(name) && inode(&thread.join("ns/net")) == here;
            field("voluntary_ctxt_switches:").filter(|_| wanted)?.parse().ok()
        };
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        threads.filter_map(|thread| slept(thread.ok()?.path())).collect()
    }

    pub fn with_handle<T: Send + 'static, F>(&self, work: impl FnOnce(Handle) -> F + Send + 'static) -> T
    where
        F: Future<Output = T> + Send,
    {
        let namespace = self.namespace.clone();
        self.run(async move { work(Handle::open(&namespace).unwrap()).await })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pub struct Fixture {
    pub source: Node,
    pub target: Node,
    pub authority: Authority,
    namespaces: Namespaces,
    directory: tempfile::TempDir,
}

impl Fixture {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let namespaces = Namespaces::at(directory.path().join("netns"));
        let (a, b) = (namespaces.create("source").unwrap(), namespaces.create("target").unwrap());
        let source = Node::new("source", a, "198.51.100.1");
        let target = Node::new("target", b.clone(), "198.51.100.2");
        source.with_handle(async move |handle| {
            for link in ["eth0", "migration0"] {
                let peer = Peer::new(link).namespace(&b).up();
                handle.create_link(&NewLink::veth(link, peer).up()).await.unwrap();
            }
        });
        for (node, number) in [(&source, 1), (&target, 2)] {
            node.with_handle(async move |handle| {
                for (link, network) in [("eth0", "192.0.2"), ("migration0", "198.51.100")] {
                    let address = Address::new(format!("{network}.{number}/24").parse().unwrap());
                    handle.add_address(link, address.detection(DuplicateDetection::Skip)).await.unwrap();
                }
            });
        }
        let authority = Authority::load_or_generate(directory.path(), "authority", HOUR).unwrap();
        Self { source, target, authority, namespaces, directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn identity(&self, node: &str) -> Identity {
        issue(&self.authority, node)
    }

    pub fn credentials(&self, node: &str) -> Credentials {
        Credentials::tls(&self.identity(node), &[self.authority.certificate()]).unwrap()
    }

    pub fn listen(&self, credentials: Credentials) -> Listening {
        self.listen_with(credentials, Timeouts::default(), Mover::Splice)
    }

    pub fn listen_with(&self, credentials: Credentials, timeouts: Timeouts, mover: Mover) -> Listening {
        let registrations = Registrations::default();
        let authorise = Arc::new(registrations.clone());
        let address = SocketAddr::new(self.target.address, PORT);
        let listener = self.target.run(async move {
            Listener::bind_with(address, credentials, authorise, timeouts, mover).unwrap()
        });
        let (refusals, probes) = (listener.refusals(), listener.probes());
        let ((stop, stopped), (end, ended)) = (oneshot::channel::<()>(), oneshot::channel());
        self.target.spawn(async move {
            listener.run(async { _ = stopped.await }).await;
            let _ = end.send(());
        });
        Listening { registrations, refusals, probes, address, stop: Some(stop), ended: Some(ended) }
    }

    pub fn dialler(&self, credentials: Credentials) -> Dialler {
        Dialler::new(self.source.address, credentials)
    }

    /// A unix socket on the source that leads to the target.
    pub fn forward(
        &self,
        dialler: &Dialler,
        listening: &Listening,
        route: &Route,
        token: Option<&Token>,
    ) -> Forward {
        let target =
            Target { address: listening.address, member: self.target.member(), token: token.cloned() };
        self.forward_to(dialler, target, route)
    }

    pub fn forward_to(&self, dialler: &Dialler, target: Target, route: &Route) -> Forward {
        let (dialler, route, path) = (dialler.clone(), route.clone(), self.path("forward"));
        self.source.run(async move { dialler.forward(&path, target, route).unwrap() })
    }

    /// A connection as QEMU makes it.
    pub fn connect(&self) -> UnixStream {
        patient(UnixStream::connect(self.path("forward")).unwrap())
    }

    /// Registers the source for one channel, whose destination hands over what connects to it.
    pub fn expect(&self, listening: &Listening, route: &Route) -> (Registration, Receiver<UnixStream>) {
        self.expect_from(listening, route, Source::Certificate(self.source.member()))
    }

    pub fn expect_from(
        &self,
        listening: &Listening,
        route: &Route,
        source: Source,
    ) -> (Registration, Receiver<UnixStream>) {
        let path = self.path("destination");
        let accepted = destination(&path);
        let channels = [(route.channel, path)];
        (listening.registrations.register(route.migration.clone(), source, channels).unwrap(), accepted)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let deleted = self.namespaces.delete_all();
        if !std::thread::panicking() {
            deleted.unwrap();
        }
    }
}

/// A running listener.
pub struct Listening {
    pub registrations: Registrations,
    pub refusals: Arc<Refusals>,
    pub probes: Arc<Probes>,
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    ended: Option<oneshot::Receiver<()>>,
}

impl Listening {
    /// Asks it to stop; what comes back resolves when it has ended.
    pub fn stop(&mut self) -> oneshot::Receiver<()> {
        drop(self.stop.take());
        self.ended.take().unwrap()
    }

    pub fn await_refusal(&self, reason: Refusal, count: u64) {
        eventually(&format!("{count} refusals for {reason}; there are {:?}", self.refusals.counts()), || {
            (self.refusals.count(reason) == count).then_some(())
        });
        assert_eq!(self.refusals.counts().values().sum::<u64>(), count, "{:?}", self.refusals.counts());
    }
}

/// Listens on a unix socket for as long as someone takes what connects to it.
pub fn destination(path: &Path) -> Receiver<UnixStream> {
    let listener = UnixListener::bind(path).unwrap();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            if sender.send(patient(stream)).is_err() {
                break;
            }
        }
    });
    receiver
}

pub fn take(accepted: &Receiver<UnixStream>) -> UnixStream {
    accepted.recv_timeout(DEADLINE).expect("a connection at the destination")
}

/// A stream on which a test that waits in vain fails, rather than hangs.
pub fn patient(stream: UnixStream) -> UnixStream {
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    stream
}

pub fn member(node: &str) -> Member {
    Member::new("alaska", "virt-handler", node).unwrap()
}

pub fn issue(authority: &Authority, node: &str) -> Identity {
    let subject = Subject { common_name: node.into(), member: Some(member(node)), ..Subject::default() };
    authority.issue(&subject, HOUR).unwrap()
}

pub fn route() -> Route {
    let uid = "5f0c8d1e-94a1-4f6c-b3a7-0d8c2d6f3a11";
    Route::new(Migration::new(uid).unwrap(), Channel::MEMORY)
}

/// Bytes that look like nothing in particular, the same for the same seed.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

pub fn read_to_end(mut stream: &UnixStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

/// Sends a few bytes there and back.
pub fn ping(mut one: &UnixStream, mut other: &UnixStream, word: [u8; 8]) {
    let mut heard = [0; 8];
    one.write_all(&word).unwrap();
    other.read_exact(&mut heard).unwrap();
    assert_eq!(heard, word);
    other.write_all(&heard).unwrap();
    one.read_exact(&mut heard).unwrap();
    assert_eq!(heard, word);
}

/// Waits until `look` finds something.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {DEADLINE:?} in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
