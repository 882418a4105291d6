//! The road that guest memory takes, as this node has it: one address, who listens there, and by what right.
//!
//! ```text
//!  KubeVirt object ──► settings ──┐                       ┌─► listener, on that address alone
//!  file, interfaces ──► look ─────┼─► address::find ─► run ┼─► dialler, from that address alone
//!  CSR, kubevirt-ca ──► credentials                       └─► published: open, or why not ──► peers: probes, the node's annotation
//! ```
//!
//! One task ([`Work::run`]) owns the listener. It is bound again when the address, or the interface that has it, changes; transfers
//! that run go on. There is no road without an address on the network that was asked for and a certificate: [`Unavailable`] says
//! what is missing, and nothing else is taken instead unless `Prefer` allows it.

mod address;
mod credentials;
mod followed;
mod look;
mod numbers;
mod peers;
mod settings;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::kubevirt::MigrationNetworkType;
use api::names::objects;
use identity::Member;
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tunnel::{Credentials, Dialler, Ledger, Listener, Mover, Registrations, Timeouts};

use crate::error::chain;
use address::{Found, Wanted};
use credentials::Held;
pub use numbers::{Departure, Departures};

/// How soon an address that could not be listened on is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// A node that answers a probe does so at once; one that is away is asked again soon.
const PROBE: Duration = Duration::from_secs(3);

/// What a road needs to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// Namespace of the installation.
    pub namespace: String,
    /// The address that Kubernetes knows this pod by.
    pub pod: IpAddr,
    /// The network-status annotation of this pod, by the downward API.
    pub network_status: PathBuf,
    /// `namespace/name` of the network that this pod was made with; none: the pod network.
    pub made_with: Option<String>,
    /// Port of every handler's listener.
    pub port: u16,
    /// Where it can be asked whether the handler is ready.
    pub health: u16,
}

/// This node's end of the road.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Here {
    pub address: IpAddr,
    pub network: MigrationNetworkType,
    /// Whether members prove who they are by certificate; if not, by tokens.
    pub tls: bool,
}

/// Why guest memory cannot come or go.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    #[error("the KubeVirt object has not been read yet")]
    Settings,
    #[error("the interfaces of the handler's pod cannot be read: {problem}")]
    Interfaces { problem: String },
    #[error("the handler's network-status file cannot be read: {problem}")]
    Status { problem: String },
    #[error("the handler's pod is not attached to the migration network {network}")]
    NotAttached { network: String },
    #[error(
        "the handler's pod is attached to {attached}, not to the migration network {network}; it has to be replaced"
    )]
    OtherNetwork { network: String, attached: String },
    #[error("the handler's pod has lost migration0, its interface on the migration network {network}")]
    NoInterface { network: String },
    #[error("migration0, the interface on the migration network {network}, is down")]
    Down { network: String },
    #[error("migration0 has no address on the migration network {network}")]
    NoAddress { network: String },
    #[error("no interface of the handler's pod has the pod's address {address}")]
    NoPodAddress { address: IpAddr },
    #[error("the handler has no certificate: {problem}")]
    Credentials { problem: String },
    #[error("the handler cannot listen on {address}: {problem}")]
    Listen { address: SocketAddr, problem: String },
}

/// A road that is open.
#[derive(Clone, Debug)]
pub struct Open {
    pub here: Here,
    /// `namespace/name` of the definition that the address is on; none: the pod network.
    pub definition: Option<String>,
    /// The interface that has the address.
    pub interface: String,
    /// Why it is not on the network that was asked for.
    pub instead: Option<Unavailable>,
    dialler: Dialler,
    /// The same with less patience.
    prober: Dialler,
    /// Who this handler is.
    member: Member,
}

/// The road, or why there is none.
pub type Way = Result<Arc<Open>, Unavailable>;

/// The road of this node. Clones are the same.
#[derive(Clone, Debug)]
pub struct Road(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    registrations: Registrations,
    departures: Departures,
    ledger: Ledger,
    way: watch::Sender<Way>,
    /// Whether the pod is what it was made for.
    readiness: watch::Sender<Result<(), Unavailable>>,
}

impl Road {
    /// A road, and the work that keeps it.
    pub fn new(client: Client, node: &str, options: Options) -> (Self, Work) {
        let way = watch::Sender::new(Err(Unavailable::Settings));
        let readiness = watch::Sender::new(Err(Unavailable::Settings));
        let ledger = Ledger::default();
        let registrations = Registrations::counted_in(&ledger);
        let departures = Departures::default();
        let road = Self(Arc::new(Shared { registrations, departures, ledger, way, readiness }));
        let work = Work {
            road: road.clone(),
            client,
            node: node.to_owned(),
            options,
            credentials: None,
            listening: None,
        };
        (road, work)
    }

    /// What this node expects as the target of moves.
    pub fn registrations(&self) -> &Registrations {
        &self.0.registrations
    }

    /// The moves that leave from here.
    pub fn departures(&self) -> &Departures {
        &self.0.departures
    }

    /// Where this node is reached.
    pub fn here(&self) -> Result<Here, Unavailable> {
        self.way().map(|open| open.here)
    }

    /// Connections from this node.
    pub fn dialler(&self) -> Result<Dialler, Unavailable> {
        self.way().map(|open| open.dialler.clone())
    }

    /// The handler of another node of this cluster, as its certificate names it.
    pub fn member(&self, node: &str) -> Result<Member, Unavailable> {
        let open = self.way()?;
        let member = Member::new(open.member.cluster(), objects::HANDLER, node);
        member.map_err(|problem| Unavailable::Credentials { problem: problem.to_string() })
    }

    /// Follows the road: wakes when it opens, changes or closes.
    pub fn changed(&self) -> watch::Receiver<Way> {
        self.0.way.subscribe()
    }

    fn way(&self) -> Way {
        self.0.way.borrow().clone()
    }
}

/// What keeps a road open.
pub struct Work {
    road: Road,
    client: Client,
    node: String,
    options: Options,
    /// Made once, replaced ever after: whoever holds them sees the change.
    credentials: Option<(Credentials, Shown)>,
    listening: Option<Listening>,
}

/// What the credentials were made of.
#[derive(PartialEq, Eq)]
struct Shown {
    certificate: Option<String>,
    bundle: String,
}

/// A listener, and the place that it is bound to.
struct Listening {
    address: SocketAddr,
    link: u32,
    task: JoinHandle<()>,
}

impl Work {
    /// Keeps the road until dropped, which ends the listener and no transfer.
    pub async fn run(mut self) {
        let (client, namespace) = (self.client.clone(), self.options.namespace.clone());
        let (settings, following) = settings::follow(client.clone(), &namespace);
        let (facts, looking) = look::follow(self.options.network_status.clone(), self.options.pod);
        let (held, holding) = credentials::hold(client, &namespace, &self.node);
        let (road, node, port) = (self.road.clone(), self.node.clone(), self.options.port);
        let telling = peers::tell(self.client.clone(), &node, &road, port);
        let health = SocketAddr::new(self.options.pod, self.options.health);
        let answering = telemetry::serve(health, pages(&node, &road));
        let deciding = self.decide(settings, facts, held);
        tokio::join!(following, looking, holding, deciding, telling, answering);
    }

    async fn decide(
        &mut self,
        mut settings: watch::Receiver<Option<settings::Settings>>,
        mut facts: watch::Receiver<look::Looked>,
        mut held: watch::Receiver<credentials::Holding>,
    ) {
        loop {
            let now = settings.borrow_and_update().clone();
            let seen = facts.borrow_and_update().clone();
            let holding = held.borrow_and_update().clone();
            let made_for = self.made_for(now.as_ref(), &seen, &holding);
            let way = self.open(now, seen, holding).await;
            self.tell_readiness(made_for, &way);
            let unbound = matches!(way, Err(Unavailable::Listen { .. }));
            self.publish(way);
            let changed = tokio::select! {
                changed = settings.changed() => changed,
                changed = facts.changed() => changed,
                changed = held.changed() => changed,
                () = tokio::time::sleep(RETRY), if unbound => Ok(()),
            };
            if changed.is_err() {
                return;
            }
        }
    }

    /// Whether the pod has the network that it was made with, and a certificate: what those ask who roll handlers out. While the
    /// `KubeVirt` object names another network, guest memory takes no road from here, and yet the pod is ready: what it lacks is its
    /// successor. Otherwise a change would make every handler unready at once, and nobody could tell a bad one.
    fn made_for(
        &self,
        settings: Option<&settings::Settings>,
        facts: &look::Looked,
        holding: &credentials::Holding,
    ) -> Result<(), Unavailable> {
        let settings = settings.ok_or(Unavailable::Settings)?;
        let facts = facts.as_ref().map_err(|problem| Unavailable::Interfaces { problem: problem.clone() })?;
        let preference = settings.wanted.preference;
        address::find(&Wanted { network: self.options.made_with.clone(), preference }, facts)?;
        holding.as_ref().map(drop).map_err(|problem| Unavailable::Credentials { problem: problem.clone() })
    }

    fn tell_readiness(&self, made_for: Result<(), Unavailable>, way: &Way) {
        let readiness = match way {
            Err(why @ Unavailable::Listen { .. }) => made_for.and(Err(why.clone())),
            _ => made_for,
        };
        self.road
            .0
            .readiness
            .send_if_modified(|before| std::mem::replace(before, readiness.clone()) != readiness);
    }

    /// Everything that an open road is made of, or the first thing that is missing.
    async fn open(
        &mut self,
        settings: Option<settings::Settings>,
        facts: look::Looked,
        holding: credentials::Holding,
    ) -> Way {
        let found = settings.as_ref().ok_or(Unavailable::Settings).and_then(|settings| {
            let facts = facts.map_err(|problem| Unavailable::Interfaces { problem })?;
            address::find(&settings.wanted, &facts)
        });
        let found = match found {
            Ok(found) => found,
            Err(why) => {
                self.close().await;
                return Err(why);
            }
        };
        let tls = !settings.as_ref().is_some_and(|settings| settings.disable_tls);
        let definition = settings.and_then(|settings| settings.wanted.network);
        let held = match holding {
            Ok(held) => held,
            Err(problem) => {
                self.close().await;
                return Err(Unavailable::Credentials { problem });
            }
        };
        let credentials = self.credentials(&held, tls)?;
        self.listen(&found, &credentials).await?;
        let impatient = Timeouts { dial: PROBE, handshake: PROBE, ..Timeouts::default() };
        Ok(Arc::new(Open {
            here: Here { address: found.address, network: found.network, tls },
            definition: definition.filter(|_| found.network == MigrationNetworkType::Migration),
            interface: found.interface,
            instead: found.instead,
            dialler: Dialler::new(found.address, credentials.clone()).counted_in(&self.road.0.ledger),
            prober: Dialler::new_with(found.address, credentials, impatient, Mover::Splice),
            member: held.member,
        }))
    }

    /// The one set of credentials, as it is to be now.
    fn credentials(&mut self, held: &Held, tls: bool) -> Result<Credentials, Unavailable> {
        let shown = Shown {
            certificate: tls.then(|| held.identity.certificate.clone()),
            bundle: held.bundle.clone(),
        };
        let unusable = |error: tunnel::Error| Unavailable::Credentials { problem: chain(&error) };
        let authorities = [held.bundle.as_str()];
        let credentials = match &self.credentials {
            Some((credentials, before)) if *before == shown => return Ok(credentials.clone()),
            Some((credentials, _)) if tls => {
                credentials.replace_with_tls(&held.identity, &authorities).map_err(unusable)?;
                credentials.clone()
            }
            Some((credentials, _)) => {
                credentials.replace_with_plain();
                credentials.clone()
            }
            None if tls => Credentials::tls(&held.identity, &authorities).map_err(unusable)?,
            None => Credentials::plain(),
        };
        self.credentials = Some((credentials.clone(), shown));
        Ok(credentials)
    }

    /// Listens there and nowhere else.
    async fn listen(&mut self, found: &Found, credentials: &Credentials) -> Result<(), Unavailable> {
        let address = SocketAddr::new(found.address, self.options.port);
        let ended = |listening: &Listening| listening.task.is_finished();
        let there = |listening: &Listening| (listening.address, listening.link) == (address, found.link);
        if self.listening.as_ref().is_some_and(|listening| there(listening) && !ended(listening)) {
            return Ok(());
        }
        self.close().await;
        let authorise = Arc::new(self.road.registrations().clone());
        let listener = Listener::bind(address, credentials.clone(), authorise)
            .map_err(|error| Unavailable::Listen { address, problem: chain(&error) })?
            .counted_in(&self.road.0.ledger);
        let task = tokio::spawn(listener.run(std::future::pending()));
        self.listening = Some(Listening { address, link: found.link, task });
        Ok(())
    }

    /// Listens no more. A listener that is dropped leaves its connections alone.
    async fn close(&mut self) {
        if let Some(Listening { mut task, .. }) = self.listening.take() {
            task.abort();
            // Its end is what was asked for.
            let _ = (&mut task).await;
        }
    }

    fn publish(&self, way: Way) {
        let told =
            |way: &Way| way.as_ref().map(|open| (open.here, open.instead.clone())).map_err(Clone::clone);
        self.road.0.way.send_if_modified(|before| {
            let (old, new) = (told(before), told(&way));
            let place =
                |way: &Way| way.as_ref().ok().map(|open| (open.interface.clone(), open.definition.clone()));
            let changed = old != new || place(before) != place(&way);
            match &new {
                _ if !changed => {}
                Ok((here, None)) => {
                    tracing::info!(address = %here.address, network = %here.network, tls = here.tls, "the road is open");
                }
                Ok((here, Some(instead))) => {
                    tracing::warn!(address = %here.address, reason = %instead, "the road is the pod network instead");
                }
                Err(reason) => tracing::warn!(%reason, "guest memory can neither come nor go"),
            }
            *before = way;
            changed
        });
    }
}

/// What is to be seen of a handler.
fn pages(node: &str, road: &Road) -> telemetry::Pages {
    let readiness = road.0.readiness.subscribe();
    let is_ready = road.0.readiness.subscribe();
    telemetry::Pages {
        ready: Box::new(move || readiness.borrow().clone().map_err(|why| why.to_string())),
        numbers: numbers::numbers(node, road, move || is_ready.borrow().is_ok()),
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Some(listening) = &self.listening {
            listening.task.abort();
        }
    }
}
