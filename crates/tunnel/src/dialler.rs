//! The source's side: unix sockets that QEMU and libvirt connect to, and for each of their connections one to the target.
//!
//! Connections are dialled one after the other, in the order in which they were accepted, and the next one only when the target has
//! said that the one before arrived: some versions of QEMU take the first connection that they accept for the main one. So one thread at
//! a time accepts; it stays with the connection that it made, and another takes its place.
//!
//! Invariant: not a byte is sent before the target has shown that it is the member that it should be, or, without TLS, has accepted the
//! token.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use identity::Member;
use rustls_pki_types::ServerName;
use socket2::Socket;
use tokio_rustls::rustls::client::ClientConfig;

use crate::Timeouts;
use crate::counters::{Counters, Ledger};
use crate::credentials::{Credentials, Mode};
use crate::crew::Crew;
use crate::error::{Broken, DialError, Error, HandshakeError};
use crate::handshake::{self, Session, Timed};
use crate::line::{Line, Lines};
use crate::listener::with_sources;
use crate::preamble::{ACCEPTED, Preamble};
use crate::pump::plain::Mover;
use crate::pump::{Here, Joint, encrypted};
use crate::record::{ACCESS_DENIED, Incoming, Received};
use crate::route::Route;
use crate::socket::{self, Home, Unreached};
use crate::token::Token;

/// Where a channel leads: the listener of the other node.
#[derive(Debug, Clone)]
pub struct Target {
    pub address: SocketAddr,
    /// Who must answer there.
    pub member: Member,
    /// What proves this node's right when TLS is disabled.
    pub token: Option<Token>,
}

/// Makes connections from one address of this node.
#[derive(Debug, Clone)]
pub struct Dialler(Arc<Context>);

#[derive(Debug, Clone)]
struct Context {
    source: Arc<Home>,
    credentials: Credentials,
    timeouts: Timeouts,
    mover: Mover,
    ledger: Ledger,
}

impl Dialler {
    /// `source` is this node's migration address: everything leaves from it, by the interface that has it.
    pub fn new(source: IpAddr, credentials: Credentials) -> Self {
        Self::new_with(source, credentials, Timeouts::default(), Mover::Splice)
    }

    pub fn new_with(source: IpAddr, credentials: Credentials, timeouts: Timeouts, mover: Mover) -> Self {
        let (source, ledger) = (Arc::new(Home::new(source)), Ledger::default());
        Self(Arc::new(Context { source, credentials, timeouts, mover, ledger }))
    }

    /// The same, whose bytes and failures are counted there.
    #[must_use]
    pub fn counted_in(&self, ledger: &Ledger) -> Self {
        Self(Arc::new(Context { ledger: ledger.clone(), ..Context::clone(&self.0) }))
    }

    /// Asks the listener of another node whether a connection from here would reach it: both sides prove who they are, and nothing
    /// else is said. Without TLS it only shows that the road is there. Blocks, for as long as the timeouts allow.
    pub fn probe(&self, address: SocketAddr, member: Member) -> Result<(), DialError> {
        let token = Some(Token::from_bytes([0; Token::LENGTH]));
        let target = Target { address, member, token };
        Call { context: &self.0, target: &target, route: &Route::probe() }.probe()
    }

    /// Listens on a unix socket, and carries every connection to it to the target. The file is made anew, for its owner only.
    pub fn forward(&self, path: &Path, target: Target, route: Route) -> Result<Forward, Error> {
        let failed = |source| Error::ListenUnix { path: path.to_owned(), source };
        let counters = self.0.ledger.counters(route.channel);
        let shared = Arc::new(Shared {
            context: Arc::clone(&self.0),
            listener: socket::listen_unix(path).map_err(failed)?,
            closed: AtomicBool::new(false),
            target,
            route,
            counters,
            lines: Arc::default(),
            crew: Crew::default(),
            failure: Mutex::default(),
            broke: OnceLock::new(),
        });
        let forward = Forward { path: path.to_owned(), shared };
        forward.shared.accept_on_another_thread().map_err(failed)?;
        Ok(forward)
    }
}

#[derive(Debug)]
struct Shared {
    context: Arc<Context>,
    listener: Socket,
    closed: AtomicBool,
    target: Target,
    route: Route,
    counters: Arc<Counters>,
    lines: Arc<Lines>,
    crew: Crew,
    failure: Mutex<Option<Arc<DialError>>>,
    broke: OnceLock<Arc<Broken>>,
}

/// A unix socket that leads to another node. Dropping it closes the socket for new connections and removes its file; those that
/// are open go on.
#[derive(Debug)]
#[must_use = "dropping a forward ends it"]
pub struct Forward {
    path: PathBuf,
    shared: Arc<Shared>,
}

impl Forward {
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Why the last connection that could not be made could not.
    pub fn last_failure(&self) -> Option<Arc<DialError>> {
        self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why a connection that was in use was the first to break at the other node, or on the road to it, if one was.
    pub fn first_break(&self) -> Option<Arc<Broken>> {
        self.shared.broke.get().cloned()
    }

    /// Ends every connection that is open now.
    pub fn cut(&self) {
        self.shared.lines.cut();
    }

    /// Accepts no more, and waits until what is open has ended, at the latest after the drain timeout.
    pub async fn stop(self) {
        let shared = Arc::clone(&self.shared);
        drop(self);
        shared.lines.drain(shared.context.timeouts.drain).await;
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        socket::close_to_callers(&self.shared.listener);
        if let Err(error) = std::fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "the socket of a forward could not be removed");
        }
    }
}

/// How far a connection has come.
#[derive(Default)]
struct Progress {
    arrived: AtomicBool,
    /// Whether another thread accepts.
    taken_over: AtomicBool,
    /// Who used it has ended it: what breaks afterwards is what ended connections do.
    said_all: AtomicBool,
}

impl Shared {
    fn accept_on_another_thread(self: &Arc<Self>) -> io::Result<()> {
        let shared = Arc::clone(self);
        self.crew.set_to(move || shared.accept())
    }

    /// Accepts and carries until another thread has taken over accepting.
    fn accept(self: Arc<Self>) {
        loop {
            match self.listener.accept() {
                Ok((near, _)) => {
                    if self.carry(near) {
                        return;
                    }
                }
                Err(_) if self.closed.load(Ordering::Acquire) => return,
                Err(cause) if socket::is_callers_fault(&cause) => {}
                Err(cause) => {
                    // Out of file descriptors, most likely: those that are open must end first.
                    tracing::warn!(route = %self.route, %cause, "a connection to the tunnel could not be accepted");
                    thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }

    /// Carries one connection to its end. Says whether another thread has taken over accepting meanwhile, which it does when the
    /// connection has arrived.
    fn carry(self: &Arc<Self>, near: Socket) -> bool {
        let line = Arc::new(Line::default());
        let _open = self.lines.enter(&line);
        let near = line.hold(near);
        let progress = Arc::new(Progress::default());
        let outcome = self.call().connect(&line).and_then(|(far, session)| {
            self.prepare(&near, &far).map_err(|error| self.broken(Broken::Far(error)))?;
            let (counters, crew) = (Arc::clone(&self.counters), self.crew.clone());
            let joint = Joint { line: Arc::clone(&line), near, far, counters, crew };
            self.exchange(&joint, session, &progress)
        });
        if let Err(error) = outcome {
            let cause = with_sources(&error);
            if progress.arrived.load(Ordering::Acquire) {
                tracing::info!(route = %self.route, cause, "a tunnel connection broke");
                if let DialError::Broken { source, .. } = error
                    && source.is_far()
                    && !progress.said_all.load(Ordering::Acquire)
                {
                    self.broke.get_or_init(|| Arc::new(source));
                }
            } else {
                tracing::warn!(route = %self.route, cause, "a tunnel connection could not be made");
                self.context.ledger.add_failure(&error);
                *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(error));
            }
        }
        line.cut();
        progress.taken_over.load(Ordering::Acquire)
    }

    fn arrived(self: &Arc<Self>, progress: &Progress) {
        progress.arrived.store(true, Ordering::Release);
        // Without another thread, this one accepts again when its connection has ended.
        progress.taken_over.store(self.accept_on_another_thread().is_ok(), Ordering::Release);
    }

    fn prepare(&self, near: &Socket, far: &Socket) -> io::Result<()> {
        socket::enlarge(near)?;
        socket::watch_idleness(near, &self.context.timeouts)?;
        socket::watch_idleness(far, &self.context.timeouts)
    }

    fn exchange(
        self: &Arc<Self>,
        joint: &Joint,
        session: Option<Session>,
        progress: &Arc<Progress>,
    ) -> Result<(), DialError> {
        let outcome = if let Some(Session { outgoing, mut incoming, .. }) = session {
            // The target is who it should be, so bytes may leave while its answer is on the way.
            let said_all = said_all(progress);
            let (shared, progress) = (Arc::clone(self), Arc::clone(progress));
            let receive = move |joint: &Joint| {
                answer(&mut shared.call().timed(&joint.far), &mut incoming)?;
                // What came with the answer goes first: it takes a while to set another thread to accept.
                let handed_on = joint.hand_on(&mut incoming);
                shared.arrived(&progress);
                handed_on?;
                socket::watch_idleness(&joint.far, &shared.context.timeouts).map_err(Broken::Far)?;
                joint.receive_encrypted(incoming)
            };
            let send = move |joint: &Joint| joint.send_encrypted(outgoing).inspect(|()| said_all());
            joint.run(Here::Sends, send, receive)
        } else {
            self.arrived(progress);
            let (mover, said_all) = (self.context.mover, said_all(progress));
            joint.run(
                Here::Sends,
                move |joint| joint.send_plain(mover).inspect(|()| said_all()),
                move |joint| joint.receive_plain(mover),
            )
        };
        outcome.map_err(|source| self.broken(source))
    }

    fn broken(&self, source: Broken) -> DialError {
        self.call().broken(source)
    }

    fn call(&self) -> Call<'_> {
        Call { context: &self.context, target: &self.target, route: &self.route }
    }
}

/// Notes that there is nothing more to send.
fn said_all(progress: &Arc<Progress>) -> impl FnOnce() + Send + 'static {
    let progress = Arc::clone(progress);
    move || progress.said_all.store(true, Ordering::Release)
}

/// One connection that is being made.
struct Call<'a> {
    context: &'a Context,
    target: &'a Target,
    route: &'a Route,
}

impl Call<'_> {
    fn connect(&self, line: &Line) -> Result<(Arc<Socket>, Option<Session>), DialError> {
        let Context { source, credentials, timeouts, .. } = self.context;
        let target = self.target.address;
        let mode = credentials.mode();
        let far = socket::dial(source, target, timeouts).map_err(|unreached| match unreached {
            Unreached::Source(error) => DialError::Source(error),
            Unreached::Target(source) => DialError::Connect { target, source },
        })?;
        let far = line.hold(far);
        let session = match &*mode {
            Mode::Tls { client, .. } => Some(self.shake_hands(&far, Arc::clone(client))?),
            Mode::Plain => {
                self.show_token(line, &far)?;
                None
            }
        };
        Ok((far, session))
    }

    fn shake_hands(&self, far: &Socket, config: Arc<ClientConfig>) -> Result<Session, DialError> {
        let target = self.target.address;
        let failed = |source| DialError::Handshake { target, source };
        let name = ServerName::try_from(self.route.server_name());
        let name = name.map_err(|_| failed(HandshakeError::Unexpected))?;
        let session = handshake::connect(config, name, &mut self.timed(far)).map_err(failed)?;
        let found = Member::of_certificate(&session.certificate);
        let found = found.map_err(|source| DialError::Unnamed { target, source })?;
        if found != self.target.member {
            let expected = Box::new(self.target.member.clone());
            return Err(DialError::OtherMember { target, found: Box::new(found), expected });
        }
        Ok(session)
    }

    fn show_token(&self, line: &Line, far: &Socket) -> Result<(), DialError> {
        let target = self.target.address;
        let token = self.target.token.clone().ok_or(DialError::NoToken)?;
        let preamble = Preamble { route: self.route.clone(), token };
        encrypted::write_all(line, far, &preamble.encode()).map_err(|source| self.broken(source))?;
        let mut answer = [0];
        match io::Read::read_exact(&mut self.timed(far), &mut answer) {
            Ok(()) if answer[0] == ACCEPTED => Ok(()),
            Ok(()) => Err(self.broken(Broken::Answer)),
            Err(error) if handshake::is_timeout(&error) => {
                Err(DialError::Handshake { target, source: HandshakeError::Timeout })
            }
            Err(_) => Err(DialError::Refused { target }),
        }
    }

    fn timed<'a>(&self, socket: &'a Socket) -> Timed<'a> {
        Timed { socket, deadline: Instant::now() + self.context.timeouts.handshake }
    }

    fn broken(&self, source: Broken) -> DialError {
        let target = self.target.address;
        match source {
            Broken::Refused => DialError::Refused { target },
            source => DialError::Broken { target, source },
        }
    }

    /// Asks whether the target could be reached, and is told.
    fn probe(&self) -> Result<(), DialError> {
        let line = Line::default();
        let (far, session) = self.connect(&line)?;
        let answered = match session {
            Some(Session { mut incoming, .. }) => answer(&mut self.timed(&far), &mut incoming),
            // The token's answer was the probe's.
            None => Ok(()),
        };
        line.cut();
        answered.map_err(|source| self.broken(source))
    }
}

/// Waits for the target to say that the connection has arrived.
fn answer(far: &mut Timed<'_>, incoming: &mut Incoming) -> Result<(), Broken> {
    loop {
        match incoming.open()? {
            Some(Received::Data(range)) if incoming.plain(range.clone()) == [ACCEPTED] => return Ok(()),
            Some(Received::Alert(ACCESS_DENIED)) => return Err(Broken::Refused),
            Some(Received::Alert(alert)) => return Err(Broken::Alert(alert)),
            Some(_) => return Err(Broken::Answer),
            None => {}
        }
        match io::Read::read(far, incoming.room()) {
            // A refusal may overtake the alert that announces it.
            Ok(0) => return Err(Broken::Refused),
            Ok(length) => incoming.received(length),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(Broken::Refused),
            Err(error) if handshake::is_timeout(&error) => return Err(Broken::NoAnswer),
            Err(error) => return Err(Broken::Far(error)),
        }
    }
}
