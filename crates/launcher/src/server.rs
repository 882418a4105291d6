//! `launcher.sock`: handlers come, say hello, give commands and hear how things stand.
//!
//! A connection has a task of its own. Commands go to the one who decides; the status comes from what that one published, so a handler
//! that reads slowly misses steps and never the last one. Invariant: nobody gives a command before hello.

use std::{
    collections::HashMap,
    io,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream, unix::OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};
use wire::{Command, Event, Lines, Status, VERSION};

use crate::supervise::Input;

/// What one connection is told beside the status.
type Mailboxes = Arc<Mutex<HashMap<u64, mpsc::UnboundedSender<Event>>>>;

/// The listening socket and its connections.
#[derive(Debug)]
pub struct Server {
    mailboxes: Mailboxes,
    accepting: tokio::task::JoinHandle<()>,
    /// Each connection holds one; all gone, all is said.
    finished: mpsc::Receiver<()>,
}

impl Server {
    /// Listens; what is at the path already is replaced.
    pub fn listen(
        path: &Path,
        inputs: mpsc::UnboundedSender<Input>,
        status: watch::Receiver<Status>,
    ) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        let mailboxes = Mailboxes::default();
        let (alive, finished) = mpsc::channel(1);
        let accepting = tokio::spawn(accept(listener, mailboxes.clone(), inputs, status, alive));
        Ok(Self { mailboxes, accepting, finished })
    }

    /// Tells one connection that its command is not obeyed.
    pub fn refuse(&self, to: u64, command: &str, reason: String) {
        let mailboxes = self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mailbox) = mailboxes.get(&to) {
            // A connection that is gone does not care.
            let _ = mailbox.send(Event::Refused { command: command.to_owned(), reason });
        }
    }

    /// Waits until every connection has been told the last status; to be called after the status was published for the
    /// last time and its sender dropped.
    pub async fn finish(mut self) {
        self.accepting.abort();
        let _ = self.accepting.await; // aborted, as we just asked for
        while self.finished.recv().await.is_some() {}
    }
}

async fn accept(
    listener: UnixListener,
    mailboxes: Mailboxes,
    inputs: mpsc::UnboundedSender<Input>,
    status: watch::Receiver<Status>,
    alive: mpsc::Sender<()>,
) {
    for id in 0.. {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await; // out of files, most likely
                continue;
            }
        };
        let (mail, mailbox) = mpsc::unbounded_channel();
        mailboxes.lock().unwrap_or_else(PoisonError::into_inner).insert(id, mail);
        let (mailboxes, inputs, status, alive) =
            (mailboxes.clone(), inputs.clone(), status.clone(), alive.clone());
        tokio::spawn(async move {
            info!(connection = id, "a handler is connected");
            match converse(id, stream, mailbox, inputs, status).await {
                Ok(()) => info!(connection = id, "the handler is gone"),
                Err(error) => info!(connection = id, %error, "the handler is gone"),
            }
            mailboxes.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            drop(alive);
        });
    }
}

/// Two tasks: one listens, one speaks; the first that ends ends both.
async fn converse(
    id: u64,
    stream: UnixStream,
    mailbox: mpsc::UnboundedReceiver<Event>,
    inputs: mpsc::UnboundedSender<Input>,
    status: watch::Receiver<Status>,
) -> io::Result<()> {
    let (mut reader, writer) = stream.into_split();
    let (heard, hearing) = mpsc::channel(16);
    let mut tasks = JoinSet::new();
    tasks.spawn(speak(id, writer, mailbox, hearing, inputs, status));
    tasks.spawn(async move {
        let (mut lines, mut buffer) = (Lines::new(), vec![0; 8192]);
        loop {
            match reader.read(&mut buffer).await? {
                0 => return Ok(()),
                count => lines.push(&buffer[..count]),
            }
            while let Some(command) = lines.next::<Command>() {
                if heard.send(command).await.is_err() {
                    return Ok(());
                }
            }
        }
    });
    let outcome = tasks.join_next().await;
    outcome.unwrap_or(Ok(Ok(()))).unwrap_or_else(|panic| Err(io::Error::other(panic)))
}

async fn speak(
    id: u64,
    mut writer: OwnedWriteHalf,
    mut mailbox: mpsc::UnboundedReceiver<Event>,
    mut heard: mpsc::Receiver<Result<Command, wire::DecodeError>>,
    inputs: mpsc::UnboundedSender<Input>,
    mut status: watch::Receiver<Status>,
) -> io::Result<()> {
    send(&mut writer, &Event::Hello { version: VERSION }).await?;
    let mut greeted = false;
    loop {
        tokio::select! {
            command = heard.recv() => match command {
                None => return Ok(()),
                Some(Ok(Command::Hello { version: VERSION })) => {
                    greeted = true;
                    publish(&mut writer, &mut status).await?;
                }
                Some(Ok(Command::Hello { version })) => {
                    let reason = format!("this launcher speaks version {VERSION}, not {version}");
                    return send(&mut writer, &Event::Refused { command: "hello".to_owned(), reason }).await;
                }
                Some(Ok(command)) if !greeted => {
                    let reason = "hello comes first".to_owned();
                    let command = command.name().to_owned();
                    return send(&mut writer, &Event::Refused { command, reason }).await;
                }
                Some(Ok(Command::Query)) => publish(&mut writer, &mut status).await?,
                Some(Ok(command)) => {
                    // Nobody listens any more at the very end, when every command is too late.
                    let _ = inputs.send(Input::Command { command, from: id });
                }
                Some(Err(error)) => {
                    let reason = match std::error::Error::source(&error) {
                        Some(cause) => format!("{error}: {cause}"),
                        None => error.to_string(),
                    };
                    send(&mut writer, &Event::Refused { command: "line".to_owned(), reason }).await?;
                }
            },
            Some(event) = mailbox.recv() => send(&mut writer, &event).await?,
            changed = status.changed(), if greeted => match changed {
                Ok(()) => publish(&mut writer, &mut status).await?,
                Err(_) => return Ok(()),
            },
        }
    }
}

async fn publish(writer: &mut OwnedWriteHalf, status: &mut watch::Receiver<Status>) -> io::Result<()> {
    let event = Event::Status(Box::new(status.borrow_and_update().clone()));
    send(writer, &event).await
}

async fn send(writer: &mut OwnedWriteHalf, event: &Event) -> io::Result<()> {
    writer.write_all(&wire::encode(event).map_err(io::Error::other)?).await
}
