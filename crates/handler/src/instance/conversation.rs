//! The conversation with a launcher, on its socket.
//!
//! The socket is in a directory that the pod may write to, and connecting follows links: whoever answers must be in the
//! pod's network namespace, or it is not the launcher.

use std::io;
use std::time::Duration;

use cni::NamespaceId;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;
use wire::{Command, Event, LAUNCHER_SOCKET, Lines, VERSION};

use crate::place::{PlaceError, Private, check_peer};

/// How long a launcher may take to say hello, and to take in a command.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no conversation, or none any more.
#[derive(Debug, thiserror::Error)]
pub enum TalkError {
    /// Nobody is there.
    #[error("the launcher's socket")]
    Connect(#[source] io::Error),
    /// Somebody else is there.
    #[error("at the launcher's socket is somebody else")]
    Stranger(#[source] PlaceError),
    /// It went.
    #[error("the launcher closed the connection")]
    Closed,
    /// It stopped, or broke.
    #[error("the connection to the launcher")]
    Broken(#[source] io::Error),
    /// It does not answer.
    #[error("the launcher does not answer within {} s", PATIENCE.as_secs())]
    Silent,
    /// It says what we do not understand.
    #[error("what the launcher says")]
    Decode(#[source] wire::DecodeError),
    /// We have what cannot be said.
    #[error("a command for the launcher")]
    Encode(#[source] wire::EncodeError),
    /// It says hello in another version.
    #[error(
        "the launcher speaks version {theirs}, this handler version {VERSION}; it goes on by itself until its VM ends"
    )]
    Version {
        /// Its version.
        theirs: u32,
    },
}

impl TalkError {
    /// Whether the launcher is merely not there yet, which is no news.
    pub fn is_absence(&self) -> bool {
        let absent = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
        matches!(self, Self::Connect(cause) if absent.contains(&cause.kind()))
    }
}

/// A connection on which both sides have said hello.
#[derive(Debug)]
pub struct Conversation {
    process: i32,
    stream: UnixStream,
    lines: Lines,
    buffer: Vec<u8>,
}

impl Conversation {
    /// Connects and says hello.
    pub async fn open(private: &Private, pod: NamespaceId) -> Result<Self, TalkError> {
        let stream = UnixStream::connect(private.path(LAUNCHER_SOCKET)).await.map_err(TalkError::Connect)?;
        let peer = stream.peer_cred().map_err(TalkError::Connect)?;
        let process = check_peer(&peer, pod).map_err(TalkError::Stranger)?;
        let mut talk = Self { process, stream, lines: Lines::new(), buffer: Vec::with_capacity(8 * 1024) };
        talk.tell(&Command::Hello { version: VERSION }).await?;
        match timeout(PATIENCE, talk.hear()).await.map_err(|_| TalkError::Silent)?? {
            Event::Hello { version: VERSION } => Ok(talk),
            Event::Hello { version: theirs } => Err(TalkError::Version { theirs }),
            Event::Status(_) | Event::Refused { .. } => Err(TalkError::Version { theirs: 0 }),
        }
    }

    /// The launcher.
    pub fn process(&self) -> i32 {
        self.process
    }

    /// The next thing that the launcher says. Nothing is lost if it is given up while waiting.
    pub async fn hear(&mut self) -> Result<Event, TalkError> {
        loop {
            if let Some(event) = self.lines.next() {
                return event.map_err(TalkError::Decode);
            }
            self.buffer.clear();
            let read = self.stream.read_buf(&mut self.buffer).await.map_err(TalkError::Broken)?;
            if read == 0 {
                return Err(TalkError::Closed);
            }
            self.lines.push(&self.buffer);
        }
    }

    /// Tells the launcher.
    pub async fn tell(&mut self, command: &Command) -> Result<(), TalkError> {
        let line = wire::encode(command).map_err(TalkError::Encode)?;
        let written = timeout(PATIENCE, self.stream.write_all(&line)).await.map_err(|_| TalkError::Silent)?;
        written.map_err(TalkError::Broken)
    }
}
