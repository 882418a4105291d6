//! The two ends of a move on this node: a door for what comes, sockets for what goes. And what the migration is told of its progress.
//!
//! Everything here ends when it is dropped: doors close, sockets go away, and connections that are open go on to their end.

use std::time::{Duration, Instant};

use api::godwit::RoadReport;
use api::kubevirt::{MigrationProgress, VirtualMachineInstance, VirtualMachineInstanceMigration};
use api::names::{annotations, labels, objects};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::sync::watch;
use tunnel::{
    Channel, Forward, Migration, Registration, Route, RouteError, Source, Target, Token, TokenError,
};
use wire::MigrateOptions;

use super::Shared;
use super::moving::{Obstacle, Progress, Receive, Send};
use crate::place::{PlaceError, Private};
use crate::road::Unavailable;

/// How often a migration is told how far it is.
const TELL: Duration = Duration::from_secs(1);
/// The channels of QEMU, which have sockets of the same names at both sides.
const CHANNELS: [Channel; 2] = [Channel::MEMORY, Channel::DISKS];

/// Why guest memory cannot come or go.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error(transparent)]
    Road(#[from] Unavailable),
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Route(#[from] RouteError),
    #[error(transparent)]
    Registered(#[from] tunnel::AlreadyRegistered),
    #[error(transparent)]
    Forward(#[from] tunnel::Error),
    #[error(
        "the move is to be {} TLS, and this node is {} it at present: it waits for the KubeVirt object to say the same",
        if *wanted { "with" } else { "without" },
        if *wanted { "without" } else { "with" }
    )]
    Tls { wanted: bool },
    #[error("reading the secret {name}")]
    Secret {
        name: String,
        #[source]
        source: kube::Error,
    },
    #[error("the secret {name} does not hold a token")]
    NoToken {
        name: String,
        #[source]
        source: TokenError,
    },
    #[error("reading where node {node} sends from")]
    Node {
        node: String,
        #[source]
        source: kube::Error,
    },
    #[error("node {node} does not say where it sends from")]
    NoAddress { node: String },
}

/// One of what is open for moves, counted as long as this is there.
#[derive(Debug)]
struct Counted(watch::Sender<usize>);

impl Counted {
    fn one_of(all: &watch::Sender<usize>) -> Self {
        all.send_modify(|count| *count += 1);
        Self(all.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// A door that is open.
#[derive(Debug)]
pub struct Door {
    pub wanted: Receive,
    _registration: Registration,
    /// The paths of the registration lead through these.
    _directories: [Private; 2],
    _counted: Counted,
}

impl Door {
    /// Lets the source of a migration in, to the sockets of the launcher's hypervisor.
    pub async fn open(shared: &Shared, pod: &str, wanted: &Receive) -> Result<Self, TransferError> {
        let private = shared.places.private(pod)?;
        let sockets = private.directory(wire::MIGRATION_SOCKETS)?;
        let (directory, name) = wire::HYPERVISOR_SOCKET.split_once('/').unwrap_or_default();
        let hypervisor = private.directory(directory)?;
        agree(shared, wanted.tls)?;
        let source = if wanted.tls {
            Source::Certificate(shared.road.member(&wanted.source_node)?)
        } else {
            let address = address_of(shared, &wanted.source_node).await?;
            Source::Token { token: token(shared, &wanted.uid).await?, address }
        };
        let of_qemu = CHANNELS
            .map(|channel| (channel, sockets.path(&MigrateOptions::socket(&wanted.instance, channel.0))));
        let channels = of_qemu.into_iter().chain([
            (Channel::RPC, hypervisor.path(name)),
            (Channel::DEPARTURE, sockets.path(wire::DEPARTURE_SOCKET)),
        ]);
        let registrations = shared.road.registrations();
        let registration = registrations.register(Migration::new(&wanted.uid)?, source, channels)?;
        Ok(Self {
            wanted: wanted.clone(),
            _registration: registration,
            _directories: [sockets, hypervisor],
            _counted: Counted::one_of(&shared.transfers),
        })
    }
}

/// Sockets that lead to the target.
#[derive(Debug)]
pub struct Sockets {
    pub wanted: Send,
    forwards: Vec<Forward>,
    _directory: Private,
    _counted: Counted,
}

impl Sockets {
    /// Makes them, where the source's QEMU and its daemon find them.
    pub async fn open(shared: &Shared, pod: &str, wanted: &Send) -> Result<Self, TransferError> {
        let directory = shared.places.private(pod)?.directory(wire::MIGRATION_SOCKETS)?;
        agree(shared, wanted.tls)?;
        let token = if wanted.tls { None } else { Some(token(shared, &wanted.uid).await?) };
        let member = shared.road.member(&wanted.target_node)?;
        let target = Target { address: wanted.target, member, token };
        let (dialler, migration) = (shared.road.dialler()?, Migration::new(&wanted.uid)?);
        let mut forwards = Vec::new();
        for channel in CHANNELS.into_iter().chain([Channel::RPC, Channel::DEPARTURE]) {
            let name = MigrateOptions::socket(&wanted.instance, channel.0);
            let route = Route::new(migration.clone(), channel);
            forwards.push(dialler.forward(&directory.path(&name), target.clone(), route)?);
            directory.open_to_pod(&name)?;
        }
        let counted = Counted::one_of(&shared.transfers);
        Ok(Self { wanted: wanted.clone(), forwards, _directory: directory, _counted: counted })
    }

    /// What was in the way, if anything was: the hypervisor only knows that its socket was closed. A connection that broke comes first,
    /// as who lost it tries to make another.
    pub fn obstacle(&self) -> Option<Obstacle> {
        let broke = self.forwards.iter().find_map(Forward::first_break);
        let unreached = || self.forwards.iter().find_map(Forward::last_failure);
        broke
            .map(|why| Obstacle::Broke(crate::error::chain(&*why)))
            .or_else(|| unreached().map(|why| Obstacle::Unreached(crate::error::chain(&*why))))
    }
}

/// Both ends of a move must be with TLS, or both without: what was agreed on when it was handed over.
fn agree(shared: &Shared, tls: bool) -> Result<(), TransferError> {
    if shared.road.here()?.tls == tls { Ok(()) } else { Err(TransferError::Tls { wanted: tls }) }
}

async fn token(shared: &Shared, migration: &str) -> Result<Token, TransferError> {
    let name = format!("{}{migration}", objects::MIGRATION_TOKEN_PREFIX);
    let secrets: Api<Secret> =
        Api::namespaced(shared.client.clone(), &objects::migration_tokens(&shared.namespace));
    let secret = secrets.get(&name).await;
    let secret = secret.map_err(|source| TransferError::Secret { name: name.clone(), source })?;
    let bytes = secret.data.unwrap_or_default().remove(objects::MIGRATION_TOKEN_KEY).unwrap_or_default().0;
    String::from_utf8_lossy(&bytes).trim().parse().map_err(|source| TransferError::NoToken { name, source })
}

/// Where the handler of a node says that it sends from.
async fn address_of(shared: &Shared, node: &str) -> Result<std::net::IpAddr, TransferError> {
    let nodes: Api<Node> = Api::all(shared.client.clone());
    let found = nodes.get_metadata(node).await;
    let found = found.map_err(|source| TransferError::Node { node: node.to_owned(), source })?;
    let report = found.annotations().get(annotations::MIGRATION_NETWORK_REPORT);
    let report = report.and_then(|text| RoadReport::parse(text));
    let address = report.and_then(|report| report.address);
    address.ok_or_else(|| TransferError::NoAddress { node: node.to_owned() })
}

/// What a migration was told, and when.
#[derive(Debug, Default)]
pub struct Telling {
    /// Name of the migration of this UID.
    name: Option<(String, String)>,
    told: Option<(Instant, Progress)>,
}

impl Telling {
    /// Tells it, if it has not just been told, or if there is nothing more to come. Says when to tell it again.
    pub async fn tell(
        &mut self,
        client: &Client,
        instance: &VirtualMachineInstance,
        progress: &Progress,
    ) -> Option<Duration> {
        if let Some((at, told)) = &self.told {
            if told == progress {
                return None;
            }
            let left = TELL.saturating_sub(at.elapsed());
            if !left.is_zero() && !progress.last {
                return Some(left);
            }
        }
        let told = self.try_tell(client, instance, progress).await;
        if let Err(cause) = told {
            tracing::warn!(
                instance = instance.name_any(),
                cause = crate::error::chain(&cause),
                "the progress of a migration cannot be written"
            );
        }
        // Also if it failed: it is only a picture of a moment.
        self.told = Some((Instant::now(), progress.clone()));
        None
    }

    async fn try_tell(
        &mut self,
        client: &Client,
        instance: &VirtualMachineInstance,
        progress: &Progress,
    ) -> Result<(), kube::Error> {
        let namespace = instance.namespace().unwrap_or_default();
        let migrations: Api<VirtualMachineInstanceMigration> = Api::namespaced(client.clone(), &namespace);
        // A move that nobody asked for by an object has nobody to tell.
        let Some(name) = self.name(&migrations, instance, &progress.uid).await? else { return Ok(()) };
        let patch = json!({ "metadata": { "uid": progress.uid },
            "status": { "progress": MigrationProgress::new(progress.sample.clone()) } });
        match migrations.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => Ok(()),
            // It is gone, and so is whoever wanted to know.
            Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 409) => Ok(()),
            Err(cause) => Err(cause),
        }
    }

    /// The name of the migration of this UID, which nothing else says.
    async fn name(
        &mut self,
        migrations: &Api<VirtualMachineInstanceMigration>,
        instance: &VirtualMachineInstance,
        uid: &str,
    ) -> Result<Option<String>, kube::Error> {
        if let Some((_, name)) = self.name.as_ref().filter(|(known, _)| known == uid) {
            return Ok(Some(name.clone()));
        }
        let of_instance = format!("{}={}", labels::VMI_NAME, instance.name_any());
        let all = migrations.list_metadata(&ListParams::default().labels(&of_instance)).await?;
        let asked = all.items.iter().find(|found| found.uid().as_deref() == Some(uid));
        self.name = asked.map(|asked| (uid.to_owned(), asked.name_any()));
        Ok(self.name.as_ref().map(|(_, name)| name.clone()))
    }
}
