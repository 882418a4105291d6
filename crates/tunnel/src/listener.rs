//! The target's side: accepts connections, finds out who is calling and for what, asks whether that may be, and joins the connection
//! to its destination.
//!
//! Invariant: not a byte reaches a destination before its authorisation, and nothing that was refused learns why.
//!
//! One thread at a time accepts; it stays with the caller that it accepted, and a new thread takes its place. A caller who has been let
//! in gets a second thread, one for each direction.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use identity::{Member, MemberError};
use socket2::Socket;
use tokio_rustls::rustls;
use tokio_rustls::rustls::server::ServerConfig;

use crate::Timeouts;
use crate::authorise::{Authorise, Destination, Proof, Refusal};
use crate::counters::{Ledger, Probes, Refusals};
use crate::credentials::{Credentials, Mode};
use crate::crew::Crew;
use crate::error::{Error, HandshakeError};
use crate::handshake::{self, Session, Timed};
use crate::hello::{Hello, HelloError};
use crate::line::{Line, Lines};
use crate::preamble::{ACCEPTED, Preamble, PreambleError};
use crate::pump::plain::Mover;
use crate::pump::{Here, Joint, encrypted};
use crate::record::ACCESS_DENIED;
use crate::route::Route;
use crate::socket;

/// Callers who have not proved themselves yet: so many at a time. More wait in the kernel.
const UNPROVEN: usize = 256;

/// A bound listener; [`Listener::run`] serves it.
#[derive(Debug)]
pub struct Listener {
    context: Arc<Context>,
}

struct Context {
    socket: Socket,
    closed: AtomicBool,
    unproven: AtomicUsize,
    credentials: Credentials,
    authorise: Arc<dyn Authorise>,
    timeouts: Timeouts,
    mover: Mover,
    refusals: Arc<Refusals>,
    probes: Arc<Probes>,
    lines: Arc<Lines>,
    crew: Crew,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Context").field("credentials", &self.credentials).finish_non_exhaustive()
    }
}

impl Listener {
    /// Listens on one address of this node, and on the interface that has it.
    pub fn bind(
        address: SocketAddr,
        credentials: Credentials,
        authorise: Arc<dyn Authorise>,
    ) -> Result<Self, Error> {
        Self::bind_with(address, credentials, authorise, Timeouts::default(), Mover::Splice)
    }

    pub fn bind_with(
        address: SocketAddr,
        credentials: Credentials,
        authorise: Arc<dyn Authorise>,
        timeouts: Timeouts,
        mover: Mover,
    ) -> Result<Self, Error> {
        let context = Context {
            socket: socket::listen(address)?,
            closed: AtomicBool::new(false),
            unproven: AtomicUsize::new(0),
            credentials,
            authorise,
            timeouts,
            mover,
            refusals: Arc::default(),
            probes: Arc::default(),
            lines: Arc::default(),
            crew: Crew::default(),
        };
        Ok(Self { context: Arc::new(context) })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        let address = self.context.socket.local_addr()?;
        address.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// What it refuses and answers is counted there, beside that of listeners before and after it. To be said before it serves.
    #[must_use]
    pub fn counted_in(mut self, ledger: &Ledger) -> Self {
        if let Some(context) = Arc::get_mut(&mut self.context) {
            context.refusals = Arc::clone(ledger.refusals());
            context.probes = Arc::clone(ledger.probes());
        }
        self
    }

    /// The connections that were not let in, for whoever publishes metrics.
    pub fn refusals(&self) -> Arc<Refusals> {
        Arc::clone(&self.context.refusals)
    }

    /// How often other nodes found this one.
    pub fn probes(&self) -> Arc<Probes> {
        Arc::clone(&self.context.probes)
    }

    /// Serves until `stop` resolves; then accepts no more, and ends when the open connections have, at the latest after the drain
    /// timeout.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let context = &self.context;
        if let Err(cause) = context.accept_on_another_thread() {
            return tracing::error!(%cause, "the tunnel cannot serve: no thread could be started");
        }
        stop.await;
        context.closed.store(true, Ordering::Release);
        socket::close_to_callers(&context.socket);
        context.lines.drain(context.timeouts.drain).await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Also when the future of `run` was dropped before its end.
        self.context.closed.store(true, Ordering::Release);
        socket::close_to_callers(&self.context.socket);
    }
}

impl Context {
    fn accept_on_another_thread(self: &Arc<Self>) -> io::Result<()> {
        let context = Arc::clone(self);
        self.crew.set_to(move || context.accept())
    }

    /// Accepts and serves until another thread has taken over accepting.
    fn accept(self: Arc<Self>) {
        loop {
            match self.socket.accept() {
                Ok((far, peer)) => {
                    let Some(peer) = peer.as_socket() else { continue };
                    if self.serve(far, peer) {
                        return;
                    }
                }
                Err(_) if self.closed.load(Ordering::Acquire) => return,
                Err(cause) if socket::is_callers_fault(&cause) => {}
                Err(cause) => {
                    // Out of file descriptors, most likely: those that are open must end first.
                    tracing::warn!(%cause, "a tunnel connection could not be accepted");
                    thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }

    /// Serves one caller to the end. Says whether another thread has taken over accepting meanwhile.
    fn serve(self: &Arc<Self>, far: Socket, peer: SocketAddr) -> bool {
        // With too many who have proved nothing yet, the next one waits until this one has.
        let few = self.unproven.fetch_add(1, Ordering::Relaxed) + 1 < UNPROVEN;
        let mut taken_over = few && self.accept_on_another_thread().is_ok();
        let line = Arc::new(Line::default());
        let _open = self.lines.enter(&line);
        let caller = Caller { context: self, far: line.hold(far), line, peer };
        let admitted = caller.admit();
        self.unproven.fetch_sub(1, Ordering::Relaxed);
        match admitted {
            Ok(Admitted::Channel(near, joining)) => {
                // Without a new thread, this one accepts again when its connection has ended.
                taken_over = taken_over || self.accept_on_another_thread().is_ok();
                caller.join(near, joining);
            }
            Ok(Admitted::Probe(session)) => caller.answer_probe(session),
            Err(refused) => caller.refuse(&refused),
        }
        taken_over
    }
}

/// Someone who connected.
struct Caller<'a> {
    context: &'a Context,
    line: Arc<Line>,
    far: Arc<Socket>,
    peer: SocketAddr,
}

/// A refusal, and what is known about it.
struct Refused {
    reason: Refusal,
    route: Option<Route>,
    cause: String,
}

impl Refused {
    fn new(reason: Refusal, cause: &dyn std::error::Error) -> Self {
        Self { reason, route: None, cause: with_sources(cause) }
    }

    fn on(self, route: &Route) -> Self {
        Self { route: Some(route.clone()), ..self }
    }
}

impl From<Refusal> for Refused {
    fn from(reason: Refusal) -> Self {
        Self { reason, route: None, cause: String::new() }
    }
}

/// A caller who may be answered.
enum Admitted {
    /// Its channel, connected.
    Channel(Socket, Joining),
    /// It only asks whether this node can be reached.
    Probe(Option<Session>),
}

/// An authorised connection.
struct Joining {
    route: Route,
    session: Option<Session>,
    destination: Destination,
}

/// Who called, once that is proved, and what they may have; a probe has no destination.
struct Proved {
    route: Route,
    session: Option<Session>,
    destination: Option<Destination>,
}

impl Caller<'_> {
    /// Finds out who it is and whether that may be: the destination, connected.
    fn admit(&self) -> Result<Admitted, Refused> {
        socket::prepare(&self.far, &self.context.timeouts)
            .map_err(|cause| Refused::new(Refusal::Handshake, &cause))?;
        let Proved { route, session, destination } = match &*self.context.credentials.mode() {
            Mode::Tls { server, .. } => self.admit_by_certificate(Arc::clone(server)),
            Mode::Plain => self.admit_by_token(),
        }?;
        let Some(destination) = destination else { return Ok(Admitted::Probe(session)) };
        let near = socket::connect_unix(&destination.path);
        let near = near.map_err(|cause| Refused::new(Refusal::Destination, &cause).on(&route))?;
        Ok(Admitted::Channel(near, Joining { route, session, destination }))
    }

    /// What a member, or the holder of a token, may have.
    fn destination(&self, proof: &Proof<'_>, route: &Route) -> Result<Option<Destination>, Refusal> {
        if route.is_probe() { Ok(None) } else { self.context.authorise.authorise(proof, route).map(Some) }
    }

    fn admit_by_certificate(&self, config: Arc<ServerConfig>) -> Result<Proved, Refused> {
        let mut timed = self.timed();
        let Hello { route, bytes } = Hello::read(&mut timed).map_err(|error| refused_hello(&error))?;
        let session = handshake::accept(config, &mut timed, bytes);
        let mut session = session.map_err(|error| refused_handshake(&error).on(&route))?;
        let member = Member::of_certificate(&session.certificate);
        let admitted = member
            .map_err(|error| refused_member(&error))
            .and_then(|member| Ok(self.destination(&Proof::Certificate(&member), &route)?));
        match admitted {
            Ok(destination) => Ok(Proved { route, session: Some(session), destination }),
            Err(refused) => {
                if let Ok(alert) = session.outgoing.alert(ACCESS_DENIED) {
                    // It is refused either way.
                    let _ = encrypted::write_all(&self.line, &self.far, alert);
                }
                Err(refused.on(&route))
            }
        }
    }

    fn admit_by_token(&self) -> Result<Proved, Refused> {
        let preamble = Preamble::read(&mut self.timed()).map_err(|error| refused_preamble(&error))?;
        let Preamble { route, token } = preamble;
        let proof = Proof::Token { token: &token, address: self.peer.ip().to_canonical() };
        let destination = self.destination(&proof, &route);
        let destination = destination.map_err(|reason| Refused::from(reason).on(&route))?;
        Ok(Proved { route, session: None, destination })
    }

    fn timed(&self) -> Timed<'_> {
        Timed { socket: &self.far, deadline: Instant::now() + self.context.timeouts.handshake }
    }

    fn refuse(&self, Refused { reason, route, cause }: &Refused) {
        let peer = self.peer.ip();
        if self.context.refusals.add(*reason, peer) {
            let route = route.as_ref().map(ToString::to_string).unwrap_or_default();
            tracing::warn!(%reason, %peer, route, cause, "a tunnel connection was refused; the next ones like it are only counted");
        }
        self.line.cut();
    }

    /// Says that this node was reached, and ends the connection.
    fn answer_probe(&self, session: Option<Session>) {
        let answered = match session {
            Some(Session { mut outgoing, unsent: mut answer, .. }) => outgoing
                .data(&[ACCEPTED])
                .map(|record| answer.extend_from_slice(record))
                .map_err(crate::error::Broken::from)
                .and_then(|()| encrypted::write_all(&self.line, &self.far, &answer)),
            None => encrypted::write_all(&self.line, &self.far, &[ACCEPTED]),
        };
        match answered {
            Ok(()) => self.context.probes.add(),
            Err(cause) => {
                tracing::debug!(peer = %self.peer, cause = with_sources(&cause), "a probe ended early");
            }
        }
        self.line.cut();
    }

    fn join(&self, near: Socket, Joining { route, session, destination }: Joining) {
        let Destination { counters, lines, .. } = destination;
        let _open = lines.enter(&self.line);
        let near = self.line.hold(near);
        let (line, far, crew) = (Arc::clone(&self.line), Arc::clone(&self.far), self.context.crew.clone());
        let joint = Joint { line, near, far, counters, crew };
        let mover = self.context.mover;
        let watched = [&joint.near, &joint.far]
            .into_iter()
            .try_for_each(|socket| socket::watch_idleness(socket, &self.context.timeouts));
        let answered = watched.map_err(crate::error::Broken::Far);
        let outcome = match session {
            Some(Session { mut outgoing, incoming, unsent: mut answer, resumed, .. }) => answered
                .inspect(|()| tracing::debug!(%route, peer = %self.peer, resumed, "a tunnel connection was let in"))
                .and_then(|()| {
                    answer.extend(outgoing.data(&[ACCEPTED])?);
                    encrypted::write_all(&joint.line, &joint.far, &answer)?;
                    joint.run(Here::Receives, |joint| joint.send_encrypted(outgoing), |joint| joint.receive_encrypted(incoming))
                }),
            None => answered
                .and_then(|()| encrypted::write_all(&joint.line, &joint.far, &[ACCEPTED]))
                .and_then(|()| joint.run(Here::Receives, move |joint| joint.send_plain(mover), move |joint| joint.receive_plain(mover))),
        };
        match outcome {
            Ok(()) => tracing::debug!(%route, peer = %self.peer, "a tunnel connection ended"),
            Err(cause) => {
                tracing::info!(%route, peer = %self.peer, cause = with_sources(&cause), "a tunnel connection broke");
            }
        }
        self.line.cut();
    }
}

fn refused_hello(error: &HelloError) -> Refused {
    let reason = match error {
        HelloError::NoServerName | HelloError::ServerName(_) => Refusal::ServerName,
        HelloError::Protocol => Refusal::Protocol,
        HelloError::Read(cause) if handshake::is_timeout(cause) => Refusal::Timeout,
        HelloError::NotTls | HelloError::TooLong | HelloError::Read(_) => Refusal::NotOurs,
    };
    Refused::new(reason, error)
}

fn refused_preamble(error: &PreambleError) -> Refused {
    let reason = match error {
        PreambleError::Read(cause) if handshake::is_timeout(cause) => Refusal::Timeout,
        PreambleError::Field { field: "token" } => Refusal::Token,
        _ => Refusal::NotOurs,
    };
    Refused::new(reason, error)
}

fn refused_member(error: &MemberError) -> Refused {
    let reason = match error {
        MemberError::NotCurrent => Refusal::ExpiredCertificate,
        _ => Refusal::UnnamedCertificate,
    };
    Refused::new(reason, error)
}

fn refused_handshake(error: &HandshakeError) -> Refused {
    let reason = match error {
        HandshakeError::Timeout => Refusal::Timeout,
        HandshakeError::Protocol => Refusal::Protocol,
        HandshakeError::Tls(rustls::Error::NoCertificatesPresented) => Refusal::NoCertificate,
        HandshakeError::Tls(cause) if handshake::is_expired(cause) => Refusal::ExpiredCertificate,
        HandshakeError::Tls(rustls::Error::InvalidCertificate(_)) => Refusal::UntrustedCertificate,
        _ => Refusal::Handshake,
    };
    Refused::new(reason, error)
}

/// An error and what caused it, on one line.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
