//! virt-controller: from machines to instances to launcher pods, and the admission of both.
//!
//! ```text
//!   all replicas            the leader alone
//!  ┌───────────┐   ┌────────────────────────────────────────────┐
//!  │ webhook   │   │ vm: VirtualMachine ──makes──► VMI           │
//!  │    │      │   │ vmi: VMI ──makes──► launcher pod            │
//!  │    │      │   │ vmim: migration ──► target pod              │
//!  │    │      │   │ claims: addresses of machines, let go of    │
//!  │ admission │   │ operator: KubeVirt ──rolls──► virt-handler  │
//!  └───────────┘   │ signer: certificates of handlers            │
//!                  │ setting ──► the migration network           │
//!                  └────────────────────────────────────────────┘
//!                       each: look ─► decide ─► act ─► report
//! ```
//!
//! Decisions are functions of what is there (`vm::decide`, `vmi::decide`, `pod::render`, `admission::review`); the reconcilers around
//! them look and act. Nothing is remembered between two looks: whoever is killed is replaced by one who looks again. No part of
//! this crate ever touches a node.

pub mod admission;
pub mod claims;
mod edit;
mod error;
mod evacuation;
mod installation;
pub mod lease;
pub mod mac;
pub mod operator;
mod placement;
pub mod pod;
mod report;
pub mod setting;
pub mod signer;
mod tally;
mod trust;
pub mod vm;
pub mod vmi;
mod vmim;
mod webhook;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::kubevirt::KubeVirt;
use kube::Client;
use kube::runtime::reflector::Store;

pub use error::Error;
pub use lease::Timing;
pub use pod::Launcher;
pub use webhook::Webhook;

use report::Report;
use tally::Tally;

/// How long webhooks are answered after the controller was told to stop: until then the API server may not have heard of it, and a
/// question that nobody answers ends whatever somebody was doing, such as the drain of this node.
const FAREWELL: Duration = Duration::from_secs(5);

/// How a controller is set up.
pub struct Options {
    /// Namespace of the installation.
    pub namespace: String,
    /// What every launcher pod is made with.
    pub launcher: Launcher,
    /// Who this replica is: the name of its pod.
    pub identity: String,
    /// None: this is the only replica, and it leads.
    pub election: Option<Timing>,
    /// None: nothing is admitted here.
    pub webhook: Option<Webhook>,
    /// Where its numbers are shown; none: nowhere.
    pub metrics: Option<SocketAddr>,
    /// Whether virt-handler is made from the `KubeVirt` object, and its status told; if not, somebody else does both.
    pub operator: bool,
}

/// What the reconcilers share.
pub(crate) struct Context {
    client: Client,
    /// Namespace of the installation.
    namespace: String,
    launcher: Launcher,
    report: Report,
    installation: Store<KubeVirt>,
    tally: Tally,
}

impl Context {
    fn rules(&self) -> admission::Rules {
        installation::rules(&self.installation)
    }
}

/// Runs a controller until `stop` resolves, or until something fails that trying again cannot mend.
pub async fn run(client: Client, options: Options, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let Options { namespace, launcher, identity, election, webhook, metrics, operator } = options;
    let (store, following) = installation::follow(client.clone(), &namespace);
    let context = Arc::new(Context {
        client: client.clone(),
        namespace: namespace.clone(),
        launcher,
        report: Report::new(client.clone(), &identity),
        installation: store.clone(),
        tally: Tally::default(),
    });
    let showing = async {
        match metrics {
            Some(address) => context.tally.clone().serve(address).await,
            None => std::future::pending().await,
        }
    };
    let farewell = if webhook.is_some() { FAREWELL } else { Duration::ZERO };
    let serving = async {
        match webhook {
            Some(webhook) => webhook.serve(client.clone(), &namespace, store).await,
            None => std::future::pending().await,
        }
    };
    let work = || Box::pin(reconcile(context.clone(), operator));
    let leading = async {
        if let Some(timing) = election {
            lease::lead(client.clone(), &namespace, &identity, timing, work, stop).await;
        } else {
            tokio::select! { () = work() => {}, () = stop => {} }
        }
        tokio::time::sleep(farewell).await;
    };
    tokio::select! {
        served = serving => served,
        () = following => Ok(()),
        () = showing => Ok(()),
        () = leading => Ok(()),
    }
}

/// Everything that the leader does.
async fn reconcile(context: Arc<Context>, operator: bool) {
    tokio::join!(
        vm::run(context.clone()),
        vmi::run(context.clone()),
        Box::pin(vmim::run(context.clone())),
        Box::pin(evacuation::run(context.clone())),
        Box::pin(claims::run(context.clone())),
        Box::pin(claims::sweep(context.clone())),
        Box::pin(signer::run(context.clone())),
        Box::pin(operate(context.clone(), operator)),
        Box::pin(setting::run(context)),
    );
}

async fn operate(context: Arc<Context>, ours: bool) {
    if ours {
        Box::pin(operator::run(context)).await;
    }
}
