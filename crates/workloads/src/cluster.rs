//! Everything that the controllers know of the cluster: one cache a kind, one signal for all changes.
//!
//! A controller looks at the whole state when something changed, or when it said that time alone would change its
//! mind. A lab is small; a pass over all of it costs less than the bookkeeping of who must look at what.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Client, Resource};
use tokio::sync::watch::{self, Sender};
use tokio::task::JoinSet;

use crate::Error;
use crate::cache::{Cache, Object};
use crate::herald::Herald;

/// Where nodes keep the leases by which they show that they live.
pub const NODE_LEASES: &str = "kube-node-lease";

/// How long a controller waits after a failure before it looks again.
const RETRY: SignedDuration = SignedDuration::from_millis(500);

pub struct Cluster {
    pub client: Client,
    pub namespaces: Cache<Namespace>,
    pub nodes: Cache<Node>,
    pub leases: Cache<Lease>,
    pub pods: Cache<Pod>,
    pub daemon_sets: Cache<DaemonSet>,
    pub revisions: Cache<ControllerRevision>,
    pub deployments: Cache<Deployment>,
    pub replica_sets: Cache<ReplicaSet>,
    pub budgets: Cache<PodDisruptionBudget>,
    pub services: Cache<Service>,
    pub slices: Cache<EndpointSlice>,
    changes: Arc<Sender<u64>>,
}

impl Cluster {
    pub fn new(client: Client) -> Arc<Self> {
        let changes = Arc::new(Sender::new(0));
        let leases = Api::namespaced(client.clone(), NODE_LEASES);
        Arc::new(Self {
            namespaces: whole(&client, &changes),
            nodes: whole(&client, &changes),
            leases: Cache::new(&client, leases, Api::namespaced, &changes),
            pods: namespaced(&client, &changes),
            daemon_sets: namespaced(&client, &changes),
            revisions: namespaced(&client, &changes),
            deployments: namespaced(&client, &changes),
            replica_sets: namespaced(&client, &changes),
            budgets: namespaced(&client, &changes),
            services: namespaced(&client, &changes),
            slices: namespaced(&client, &changes),
            client,
            changes,
        })
    }

    /// Starts a watch a kind.
    pub fn follow(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        macro_rules! follow {
            ($($kind:ident),*) => {$(
                let cluster = self.clone();
                tasks.spawn(async move { cluster.$kind.follow().await });
            )*};
        }
        follow!(namespaces, nodes, leases, pods, daemon_sets, revisions, deployments, replica_sets);
        follow!(budgets, services, slices);
    }

    /// Resolves once every kind was listed: nobody may decide on half of the state.
    pub async fn ready(&self) {
        tokio::join!(
            self.namespaces.ready(),
            self.nodes.ready(),
            self.leases.ready(),
            self.pods.ready(),
            self.daemon_sets.ready(),
            self.revisions.ready(),
            self.deployments.ready(),
            self.replica_sets.ready(),
            self.budgets.ready(),
            self.services.ready(),
            self.slices.ready(),
        );
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Who tells people what `controller` did.
    pub fn herald(&self, controller: &'static str) -> Herald {
        Herald::new(self.client.clone(), controller)
    }
}

fn whole<K>(client: &Client, changes: &Arc<Sender<u64>>) -> Cache<K>
where
    K: Object + Resource<Scope = ClusterResourceScope>,
{
    Cache::new(client, Api::all(client.clone()), |client, _| Api::all(client), changes)
}

fn namespaced<K>(client: &Client, changes: &Arc<Sender<u64>>) -> Cache<K>
where
    K: Object + Resource<Scope = NamespaceResourceScope>,
{
    Cache::new(client, Api::all(client.clone()), Api::namespaced, changes)
}

/// What one controller does, again and again.
pub trait Controller: Send + 'static {
    /// Brings the cluster nearer to what it should be, as far as this controller is concerned. A pass that finds
    /// everything in order writes nothing.
    fn settle(&mut self, agenda: &mut Agenda) -> impl Future<Output = ()> + Send;
}

/// When to look again, though nothing changed.
pub struct Agenda {
    pub now: Timestamp,
    next: Option<Timestamp>,
}

impl Agenda {
    pub fn new(now: Timestamp) -> Self {
        Self { now, next: None }
    }

    pub fn at(&mut self, when: Timestamp) {
        self.next = Some(self.next.map_or(when, |next| next.min(when)));
    }

    pub fn failed(&mut self, error: &Error) {
        if error.is_out_of_date() {
            tracing::debug!(error = %chain(error), "decided on an old state");
        } else {
            tracing::warn!(error = %chain(error));
        }
        self.at(self.now + RETRY);
    }

    pub fn check<T>(&mut self, done: Result<T, Error>) -> Option<T> {
        done.map_err(|error| self.failed(&error)).ok()
    }

    async fn wait(&self) {
        match self.next {
            Some(next) => {
                let left = next.duration_since(Timestamp::now());
                tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
            }
            None => std::future::pending().await,
        }
    }
}

fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}

pub async fn drive(mut controller: impl Controller, mut changes: watch::Receiver<u64>) {
    loop {
        changes.mark_unchanged();
        let mut agenda = Agenda::new(Timestamp::now());
        controller.settle(&mut agenda).await;
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = agenda.wait() => {}
        }
    }
}
