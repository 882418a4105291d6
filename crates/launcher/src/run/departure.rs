//! That a guest has left, told from launcher to launcher: what the source says, and what the target hears.
//!
//! ```text
//!  source: QEMU ends ─► Farewell ─► <instance>-1-source.sock ═ handler ═ tunnel ═ handler ═► departure.sock ─► Departed :target
//! ```
//!
//! Invariant: it is said only when the guest's process is at its end, from which nothing brings it back. The way there is not safe: who is not
//! reached hears it from its handler, later.

use std::path::{Path, PathBuf};
use std::time::Duration;

use api::names::channels;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tracing::{info, warn};
use wire::{Departure, Lines, MigrateOptions};

use super::{Executor, whole};
use crate::supervise::Input;

/// How often the guest's process is looked at: the guest stands still from its end to the word about it.
const LOOK: Duration = Duration::from_millis(5);
/// `PF_EXITING` of the kernel: the process has begun to end. A handle on it would tell only when all of its memory is given back, which takes
/// seconds for a large guest.
const ENDING: u64 = 0x4;

/// The process of a guest: its number, and when it began.
#[derive(Debug)]
pub(super) struct Process {
    id: u32,
    began: u64,
}

/// What `/proc` says of a process: the state's letter, the flags, when it began.
fn look(id: u32) -> Option<(char, u64, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The command, in brackets, may hold anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    Some((fields.first()?.chars().next()?, fields.get(6)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}

impl Process {
    pub fn find(id: u32) -> Result<Self, String> {
        let (_, _, began) = look(id).ok_or_else(|| format!("process {id} of the guest is not there"))?;
        Ok(Self { id, began })
    }

    fn is_at_its_end(&self) -> bool {
        match look(self.id) {
            Some((state, flags, began)) => {
                began != self.began || flags & ENDING != 0 || matches!(state, 'Z' | 'X')
            }
            None => true,
        }
    }

    /// Waits for its end. One that is not known is never seen to end.
    pub async fn ended(process: Result<&Self, &String>) {
        let Ok(process) = process else { return std::future::pending().await };
        while !process.is_at_its_end() {
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// The source's end of the conversation. It is opened while the guest is still on its way, so that nothing has to be opened at its end.
#[derive(Debug)]
pub(super) struct Farewell {
    path: PathBuf,
    paused: bool,
    stream: Option<UnixStream>,
    said: bool,
}

impl Farewell {
    /// `sockets`: where those of the move are; `prefix`: what their names begin with.
    pub fn new(sockets: &Path, prefix: &str, paused: bool) -> Self {
        let channel = u16::try_from(channels::DEPARTURE).unwrap_or_default();
        let path = sockets.join(MigrateOptions::socket(prefix, channel));
        Self { path, paused, stream: None, said: false }
    }

    pub fn is_said(&self) -> bool {
        self.said
    }

    /// The guest is still here.
    pub async fn keep(&mut self) {
        if !self.said {
            self.send(Departure::Pending).await;
        }
    }

    /// The guest is gone.
    pub async fn say(&mut self) {
        self.said = true;
        let word = Departure::Gone { paused: self.paused };
        // The other end may have closed what was open; it is tried once more from the beginning.
        if !self.send(word).await && !self.send(word).await {
            warn!("the target does not hear from here that the guest has left; its handler will tell it");
        }
    }

    async fn send(&mut self, word: Departure) -> bool {
        match self.try_send(word).await {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(%error, "nobody hears where the guest is");
                self.stream = None;
                false
            }
        }
    }

    async fn try_send(&mut self, word: Departure) -> std::io::Result<()> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(UnixStream::connect(&self.path).await?),
        };
        let line = wire::encode(&word).map_err(std::io::Error::other)?;
        stream.write_all(&line).await
    }
}

impl Executor {
    /// The target's end: listens until the launcher ends.
    pub(super) fn hear_of_departure(&self) {
        let path = self.settings.migration_sockets().join(wire::DEPARTURE_SOCKET);
        let listener = match UnixListener::bind(&path) {
            Ok(listener) => listener,
            Err(error) => {
                let cause = format!("listening at {}: {}", path.display(), whole(&error));
                return self.say(Input::Problem { cause });
            }
        };
        let this = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let this = this.clone();
                tokio::spawn(async move { this.hear(stream).await });
            }
        });
    }

    async fn hear(&self, mut stream: UnixStream) {
        let (mut lines, mut buffer) = (Lines::new(), [0; 256]);
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            lines.push(&buffer[..count]);
            while let Some(word) = lines.next::<Departure>() {
                match word {
                    Ok(Departure::Pending) => {}
                    Ok(Departure::Gone { paused }) => {
                        info!(paused, "the guest has left its source");
                        self.say(Input::Departed { paused });
                    }
                    Err(error) => return warn!(%error, "the source says what nobody understands"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use super::*;

    #[tokio::test]
    async fn a_process_that_is_killed_is_seen_to_end_and_another_is_not() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process::find(child.id()).unwrap();
        assert!(!process.is_at_its_end());
        // Not reaped yet: it is at its end all the same.
        child.kill().unwrap();
        tokio::time::timeout(Duration::from_mins(1), Process::ended(Ok(&process))).await.unwrap();
        child.wait().unwrap();
        assert!(process.is_at_its_end());
        let reused = Process { id: std::process::id(), began: process.began };
        assert!(reused.is_at_its_end(), "another process has its number");
    }
}
