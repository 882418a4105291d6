//! One launcher pod: the task that owns everything about it on this node.
//!
//! It serves the pod's CNI proxy, follows its launcher, writes what the handler knows of the instance, and gives back what the pod
//! had. What to do is decided in [`decide`]; here it is done, one thing at a time. Nothing is kept that is not also in the
//! API, in the journal or in the launcher: a task that starts again goes on where it was.

mod conversation;
mod decide;
mod moving;
mod role;
mod status;
mod transfer;
mod write;

use std::sync::Arc;
use std::time::Duration;

use api::kubevirt::VirtualMachineInstance;
use cni::NamespaceId;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::events::Recorder;
use kube::{Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use wire::{Accelerator, AcceleratorPolicy, Command, Event, Status};

use crate::attachments::{Attachments, PodName};
use crate::error::chain;
use crate::place::Places;
use crate::pods::{View, has_ended, version};
use crate::proxy::{self, Proxy, Turned};
use crate::road::{Departure, Road, Way};
use crate::sysctls::{self, SysctlError};
use conversation::{Conversation, TalkError};
use decide::{Decision, Situation, Told, decide};
use transfer::{Door, Sockets, Telling};
use write::Written;

/// How soon a launcher that is not there is looked for again: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How soon something that failed on our side is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What all pods of this node share.
#[derive(Clone)]
pub struct Shared {
    pub node: String,
    /// Namespace of the installation.
    pub namespace: String,
    pub client: Client,
    pub recorder: Recorder,
    pub places: Places,
    pub attachments: Attachments,
    pub turned: Arc<Turned>,
    /// What executes guests' instructions on this node; none: no launcher has tried yet.
    pub accelerator: watch::Sender<Option<Accelerator>>,
    pub road: Road,
    /// How many doors and sockets are open for moves.
    pub transfers: watch::Sender<usize>,
}

/// Why a launcher cannot be attended to.
#[derive(Debug, thiserror::Error)]
enum AttendError {
    #[error(transparent)]
    Proxy(#[from] proxy::OpenError),
    #[error(transparent)]
    Talk(#[from] TalkError),
    #[error(transparent)]
    Sysctls(#[from] SysctlError),
}

/// A launcher pod.
pub struct Launcher {
    shared: Shared,
    pod: PodName,
    /// The pod as it was last seen.
    known: Arc<Pod>,
    view: watch::Receiver<View>,
    proxy: Option<Serving>,
    talk: Option<Conversation>,
    heard: Option<Box<Status>>,
    told: Told,
    door: Option<Door>,
    sockets: Option<Sockets>,
    telling: Telling,
    /// A move that leaves from here, in numbers.
    departure: Option<Departure>,
    road: watch::Receiver<Way>,
    /// What our own last write came to: the watch may tell of it later.
    written: Option<Box<VirtualMachineInstance>>,
    pause: Duration,
}

/// A proxy that is served as long as this is there.
struct Serving(JoinHandle<()>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Launcher {
    pub fn new(shared: Shared, pod: &Pod, view: watch::Receiver<View>) -> Self {
        let name = PodName {
            uid: pod.uid().unwrap_or_default(),
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
        };
        let road = shared.road.changed();
        Self {
            shared,
            pod: name,
            known: Arc::new(pod.clone()),
            view,
            proxy: None,
            talk: None,
            heard: None,
            told: Told::default(),
            door: None,
            sockets: None,
            telling: Telling::default(),
            departure: None,
            road,
            written: None,
            pause: FIRST_PAUSE,
        }
    }

    /// Attends to the pod until it is gone and nothing is left to do.
    pub async fn attend(mut self) {
        loop {
            let view = self.look();
            let decision = self.decide(&view);
            let again = self.act(&view, &decision).await;
            if decision.finished {
                return;
            }
            if again.is_some_and(|pause| pause.is_zero()) {
                continue;
            }
            self.wait(again).await;
        }
    }

    /// The latest of what the watch and our own writes say.
    fn look(&mut self) -> View {
        // From here on, a change of the road wakes us: it is looked at next.
        self.road.mark_unchanged();
        let mut view = self.view.borrow_and_update().clone();
        if let Some(pod) = &view.pod {
            self.known = Arc::clone(pod);
        }
        if let (Some(written), Some(seen)) = (&self.written, &mut view.instance)
            && written.uid() == seen.uid()
            && version(written) > version(seen)
        {
            *seen = Arc::new(VirtualMachineInstance::clone(written));
        }
        view
    }

    fn decide(&self, view: &View) -> Decision {
        let accelerator = match *self.shared.accelerator.borrow() {
            None => AcceleratorPolicy::Probe,
            Some(Accelerator::Kvm) => AcceleratorPolicy::Kvm,
            Some(Accelerator::Tcg) => AcceleratorPolicy::Tcg,
        };
        let obstacle = self.sockets.as_ref().and_then(Sockets::obstacle);
        let situation = Situation {
            node: &self.shared.node,
            pod: view.pod.as_deref(),
            known: &self.known,
            instance: view.instance.as_deref(),
            connected: self.talk.is_some(),
            heard: self.heard.as_deref(),
            told: &self.told,
            attached: self.shared.attachments.any(&self.pod.uid),
            accelerator,
            here: self.shared.road.here().ok(),
            receiving: self.door.as_ref().map(|door| door.wanted.uid.as_str()),
            sending: self.sockets.as_ref().map(|sockets| sockets.wanted.uid.as_str()),
            obstacle: obstacle.as_ref(),
        };
        decide(&situation, Timestamp::now())
    }

    /// Does what was decided; says when to decide again though nothing changed.
    async fn act(&mut self, view: &View, decision: &Decision) -> Option<Duration> {
        let mut again = decision.again;
        let mut at_most = |pause: Duration| again = Some(again.map_or(pause, |sooner| sooner.min(pause)));
        // Nobody in it asks for a vNIC any more, and its object may stay for long: every move leaves one.
        if view.pod.as_deref().is_some_and(has_ended) {
            self.proxy = None;
        }
        if decision.attend
            && let Some(pause) = self.connect().await
        {
            at_most(pause);
        }
        if let Some(pause) = self.open_roads(decision).await {
            at_most(pause);
        }
        if let Some(command) = &decision.tell {
            self.tell(command).await;
            at_most(Duration::ZERO);
        }
        self.count(view, decision);
        if let (Some(progress), Some(instance)) = (&decision.progress, &view.instance)
            && let Some(pause) = self.telling.tell(&self.shared.client, instance, progress).await
        {
            at_most(pause);
        }
        if let (Some(status), Some(instance)) = (&decision.status, &view.instance) {
            match write::status(&self.shared.client, instance, status).await {
                Ok(Written::Done(written)) => {
                    write::event(&self.shared.recorder, instance, status).await;
                    self.written = Some(written);
                    at_most(Duration::ZERO);
                }
                Ok(Written::Outdated) => at_most(RETRY),
                Err(cause) => {
                    tracing::warn!(
                        pod = self.pod.name,
                        cause = chain(&cause),
                        "the instance's status cannot be written; trying again"
                    );
                    at_most(RETRY);
                }
            }
        }
        if decision.release {
            self.proxy = None;
            self.talk = None;
            match self.shared.attachments.release(&self.pod.uid).await {
                Ok(()) => {
                    tracing::info!(pod = self.pod.name, "what the pod had was given back");
                    at_most(Duration::ZERO);
                }
                Err(cause) => {
                    tracing::warn!(
                        pod = self.pod.name,
                        cause = chain(&cause),
                        "what the pod had cannot be given back yet"
                    );
                    at_most(RETRY);
                }
            }
        }
        again
    }

    /// Keeps the numbers of a move that leaves from here.
    fn count(&mut self, view: &View, decision: &Decision) {
        let (Some(progress), Some(instance)) = (&decision.progress, &view.instance) else {
            self.departure = None;
            return;
        };
        let departure = self.departure.take().filter(|departure| departure.uid == progress.uid);
        let departure = departure.unwrap_or_else(|| {
            let (namespace, name) = (instance.namespace().unwrap_or_default(), instance.name_any());
            self.shared.road.departures().begin(namespace, name, &progress.uid)
        });
        departure.show(&progress.sample);
        self.departure = Some(departure);
    }

    /// Opens what is to be open for a move, closes what is not; says when to decide again.
    async fn open_roads(&mut self, decision: &Decision) -> Option<Duration> {
        let mut again = None;
        if self.door.as_ref().map(|door| &door.wanted) != decision.receive.as_ref() {
            self.door = None;
            if let Some(wanted) = &decision.receive {
                let opened = Door::open(&self.shared, &self.pod.uid, wanted).await;
                (self.door, again) = self.opened(opened);
            }
        }
        if self.sockets.as_ref().map(|sockets| &sockets.wanted) != decision.send.as_ref() {
            self.sockets = None;
            if let Some(wanted) = &decision.send {
                let opened = Sockets::open(&self.shared, &self.pod.uid, wanted).await;
                (self.sockets, again) = self.opened(opened);
            }
        }
        again
    }

    /// What came of it, and when to decide again.
    fn opened<T>(&self, outcome: Result<T, transfer::TransferError>) -> (Option<T>, Option<Duration>) {
        match outcome {
            Ok(opened) => (Some(opened), Some(Duration::ZERO)),
            Err(cause) => {
                tracing::warn!(
                    pod = self.pod.name,
                    cause = chain(&cause),
                    "guest memory can neither come nor go; trying again"
                );
                (None, Some(RETRY))
            }
        }
    }

    /// Serves the proxy and talks to the launcher; if it cannot, says when to try again.
    async fn connect(&mut self) -> Option<Duration> {
        match self.try_connect().await {
            Ok(talk) => {
                tracing::info!(pod = self.pod.name, "connected to the launcher");
                (self.talk, self.told, self.pause) = (Some(talk), Told::default(), FIRST_PAUSE);
                // It says at once how it stands; what it said to another connection may be long past.
                self.heard = None;
                None
            }
            Err(cause) => {
                if !matches!(&cause, AttendError::Talk(cause) if cause.is_absence()) {
                    tracing::warn!(
                        pod = self.pod.name,
                        cause = chain(&cause),
                        "the launcher cannot be reached; trying again"
                    );
                }
                let pause = self.pause;
                self.pause = (pause * 2).min(LONGEST_PAUSE);
                Some(pause)
            }
        }
    }

    async fn try_connect(&mut self) -> Result<Conversation, AttendError> {
        let shared = &self.shared;
        if self.proxy.is_none() {
            let (proxy, listener) = Proxy::open(
                &shared.places,
                &self.pod,
                &shared.attachments,
                self.view.clone(),
                &shared.turned,
            )?;
            self.proxy = Some(Serving(tokio::spawn(proxy.serve(listener))));
        }
        let path = shared.places.namespace(&self.pod.uid).map_err(proxy::OpenError::from)?;
        let namespace =
            NamespaceId::of(&path).map_err(|source| proxy::OpenError::Namespace { path, source })?;
        let private = shared.places.private(&self.pod.uid).map_err(proxy::OpenError::from)?;
        let talk = Conversation::open(&private, namespace).await?;
        sysctls::open_to(talk.process()).await?;
        Ok(talk)
    }

    async fn tell(&mut self, command: &Command) {
        let Some(talk) = &mut self.talk else { return };
        tracing::info!(pod = self.pod.name, command = command.name(), "telling the launcher");
        self.told.note(command, Timestamp::now());
        if let Err(cause) = talk.tell(command).await {
            self.lost(&cause);
        }
    }

    /// Waits for something new.
    async fn wait(&mut self, again: Option<Duration>) {
        let hear = async {
            match &mut self.talk {
                Some(talk) => talk.hear().await,
                None => std::future::pending().await,
            }
        };
        let pause = async {
            match again {
                Some(pause) => sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        let heard = tokio::select! {
            heard = hear => Some(heard),
            // One that is gone for good tells nothing, and what there is to tell comes by the others.
            _ = self.road.changed() => None,
            changed = self.view.changed() => {
                if changed.is_err() {
                    // Nobody follows pods any more: this task is about to be ended too.
                    std::future::pending::<()>().await;
                }
                None
            }
            () = pause => None,
        };
        match heard {
            Some(Ok(event)) => self.hear(event),
            Some(Err(cause)) => self.lost(&cause),
            None => {}
        }
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Status(status) => {
                if status.accelerator.is_some() {
                    self.shared.accelerator.send_if_modified(|known| {
                        std::mem::replace(known, status.accelerator) != status.accelerator
                    });
                }
                self.heard = Some(status);
            }
            Event::Refused { command, reason } => {
                tracing::warn!(pod = self.pod.name, command, reason, "the launcher refused");
                // It refuses what does not fit the moment, such as a second shutdown; only a VM that cannot run is news.
                if matches!(command.as_str(), "start" | "migrate") {
                    self.told.refused = Some((command, reason));
                }
            }
            // Said once, when we connected.
            Event::Hello { .. } => {}
        }
    }

    fn lost(&mut self, cause: &TalkError) {
        tracing::info!(pod = self.pod.name, cause = chain(cause), "the conversation with the launcher ended");
        self.talk = None;
    }
}
