//! The target's side: accepts connections, finds out who is calling and for what, asks whether that may be, and joins the connection
//! to its destination.
//!
//! Invariant: not a byte reaches a destination before its authorisation, and nothing that was refused learns why.
//!
//! Connections are accepted on the caller's runtime; each is then served by two threads of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use identity::Member;
use socket2::Socket;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::rustls;
use tokio_rustls::rustls::server::ServerConfig;

use crate::Timeouts;
use crate::authorise::{Authorise, Destination, Proof, Refusal};
use crate::counters::Refusals;
use crate::credentials::{Credentials, Mode};
use crate::error::{Error, HandshakeError};
use crate::handshake::{self, Session, Timed};
use crate::hello::{Hello, HelloError};
use crate::line::{Line, Lines};
use crate::preamble::{ACCEPTED, Preamble, PreambleError};
use crate::pump::plain::Mover;
use crate::pump::{Here, Joint, STACK, encrypted};
use crate::record::ACCESS_DENIED;
use crate::route::Route;
use crate::socket;

/// Callers who have not proved themselves yet. More wait in the kernel.
const UNPROVEN: usize = 256;

/// A bound listener; [`Listener::run`] serves it.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    context: Arc<Context>,
}

struct Context {
    credentials: Credentials,
    authorise: Arc<dyn Authorise>,
    timeouts: Timeouts,
    mover: Mover,
    refusals: Arc<Refusals>,
    lines: Arc<Lines>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Context").field("credentials", &self.credentials).finish_non_exhaustive()
    }
}

impl Listener {
    /// Listens on one address of this node, and on the interface that has it. Must be called on a runtime.
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
        let socket = TcpListener::from_std(socket::listen(address)?.into())
            .map_err(|source| Error::Listen { address, source })?;
        let (refusals, lines) = (Arc::default(), Arc::default());
        let context = Context { credentials, authorise, timeouts, mover, refusals, lines };
        Ok(Self { socket, context: Arc::new(context) })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The connections that were not let in, for whoever publishes metrics.
    pub fn refusals(&self) -> Arc<Refusals> {
        Arc::clone(&self.context.refusals)
    }

    /// Serves until `stop` resolves; then accepts no more, and ends when the open connections have, at the latest after the drain
    /// timeout.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { socket, context } = self;
        let unproven = Arc::new(Semaphore::new(UNPROVEN));
        tokio::pin!(stop);
        loop {
            let accept = async {
                // The semaphore is never closed.
                let permit = Arc::clone(&unproven).acquire_owned().await.ok();
                (permit, socket.accept().await)
            };
            let (permit, accepted) = tokio::select! {
                accepted = accept => accepted,
                () = &mut stop => break,
            };
            let started = accepted
                .and_then(|(stream, peer)| start(&context, Socket::from(stream.into_std()?), peer, permit));
            if let Err(cause) = started {
                // Out of file descriptors or threads, most likely: those that are open must end first.
                tracing::warn!(%cause, "a tunnel connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        drop(socket);
        context.lines.drain(context.timeouts.drain).await;
    }
}

fn start(
    context: &Arc<Context>,
    socket: Socket,
    peer: SocketAddr,
    permit: Option<OwnedSemaphorePermit>,
) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket::prepare(&socket, &context.timeouts)?;
    let context = Arc::clone(context);
    let line = Arc::new(Line::default());
    let open = context.lines.enter(&line);
    let serve = move || {
        let caller = Caller { context: &context, far: line.hold(socket), line, peer };
        caller.serve(permit);
        drop(open);
    };
    thread::Builder::new().name("tunnel-receive".to_owned()).stack_size(STACK).spawn(serve)?;
    Ok(())
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

/// An authorised connection.
struct Admitted {
    route: Route,
    session: Option<Session>,
    destination: Destination,
}

impl Caller<'_> {
    fn serve(&self, permit: Option<OwnedSemaphorePermit>) {
        let admitted = match &*self.context.credentials.mode() {
            Mode::Tls { server, .. } => self.admit_by_certificate(Arc::clone(server)),
            Mode::Plain => self.admit_by_token(),
        };
        drop(permit);
        let outcome = admitted.and_then(|admitted| {
            let near = socket::connect_unix(&admitted.destination.path)
                .map_err(|cause| Refused::new(Refusal::Destination, &cause).on(&admitted.route));
            Ok((near?, admitted))
        });
        match outcome {
            Ok((near, admitted)) => self.join(near, admitted),
            Err(refused) => self.refuse(&refused),
        }
    }

    fn admit_by_certificate(&self, config: Arc<ServerConfig>) -> Result<Admitted, Refused> {
        let mut timed = self.timed();
        let Hello { route, bytes } = Hello::read(&mut timed).map_err(|error| refused_hello(&error))?;
        let session = handshake::accept(config, &mut timed, bytes);
        let mut session = session.map_err(|error| refused_handshake(&error).on(&route))?;
        let member = Member::of_certificate(&session.certificate);
        let admitted = member
            .map_err(|error| Refused::new(Refusal::UnnamedCertificate, &error))
            .and_then(|member| Ok(self.context.authorise.authorise(&Proof::Certificate(&member), &route)?));
        match admitted {
            Ok(destination) => Ok(Admitted { route, session: Some(session), destination }),
            Err(refused) => {
                if let Ok(alert) = session.outgoing.alert(ACCESS_DENIED) {
                    // It is refused either way.
                    let _ = encrypted::write_all(&self.line, &self.far, alert);
                }
                Err(refused.on(&route))
            }
        }
    }

    fn admit_by_token(&self) -> Result<Admitted, Refused> {
        let preamble = Preamble::read(&mut self.timed()).map_err(|error| refused_preamble(&error))?;
        let Preamble { route, token } = preamble;
        let proof = Proof::Token { token: &token, address: self.peer.ip().to_canonical() };
        let destination = self.context.authorise.authorise(&proof, &route);
        let destination = destination.map_err(|reason| Refused::from(reason).on(&route))?;
        Ok(Admitted { route, session: None, destination })
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

    fn join(&self, near: Socket, Admitted { route, session, destination }: Admitted) {
        let Destination { counters, lines, .. } = destination;
        let _open = lines.enter(&self.line);
        let near = self.line.hold(near);
        let joint = Joint { line: Arc::clone(&self.line), near, far: Arc::clone(&self.far), counters };
        let mover = self.context.mover;
        let watched = [&joint.near, &joint.far]
            .into_iter()
            .try_for_each(|socket| socket::watch_idleness(socket, &self.context.timeouts));
        let answered = watched.map_err(crate::error::Broken::Far);
        let outcome = match session {
            Some(Session { mut outgoing, incoming, resumed, .. }) => answered
                .inspect(|()| tracing::debug!(%route, peer = %self.peer, resumed, "a tunnel connection was let in"))
                .and_then(|()| encrypted::write_all(&joint.line, &joint.far, outgoing.data(&[ACCEPTED])?))
                .and_then(|()| {
                    joint.run(Here::Receives, || joint.send_encrypted(outgoing), || joint.receive_encrypted(incoming))
                }),
            None => answered
                .and_then(|()| encrypted::write_all(&joint.line, &joint.far, &[ACCEPTED]))
                .and_then(|()| joint.run(Here::Receives, || joint.send_plain(mover), || joint.receive_plain(mover))),
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

fn refused_handshake(error: &HandshakeError) -> Refused {
    let reason = match error {
        HandshakeError::Timeout => Refusal::Timeout,
        HandshakeError::Protocol => Refusal::Protocol,
        HandshakeError::Tls(rustls::Error::NoCertificatesPresented) => Refusal::NoCertificate,
        HandshakeError::Expired => Refusal::ExpiredCertificate,
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
