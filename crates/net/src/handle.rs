//! A netlink socket inside a namespace, and the one way in which requests are made on it.
//!
//! Links, addresses, routes, neighbours and rates are `impl Handle` blocks in their own files; all of them ask here. A
//! listing that the kernel says was interrupted by a change is read again, so that what callers get was true at one moment.

use std::io;

use futures::StreamExt as _;
use nix::errno::Errno;
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload, NlasIterator,
};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::sys::AsyncSocket as _;

use crate::{Error, Namespace, Refusal};

/// The kernel's flag on an answer whose listing changed while it was read.
const DUMP_INTERRUPTED: u16 = 0x10;
/// How often such a listing is read again before what came last is taken.
const READINGS: usize = 10;
/// In an error, the header of the refused request comes before the kernel's words.
const HEADER_LENGTH: usize = 16;
const ERROR_WORDS: u16 = 1;

/// Netlink in one namespace. Clones share the socket, which is closed when the last of them is dropped.
#[derive(Debug, Clone)]
pub struct Handle {
    netlink: rtnetlink::Handle,
    namespace: Namespace,
}

/// What is asked, for errors: "creating link eth0".
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub operation: &'static str,
    pub object: String,
}

/// How a request that makes something treats what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    Refuse,
    Replace,
}

impl Existing {
    pub(crate) fn flags(self) -> u16 {
        match self {
            Self::Refuse => NLM_F_CREATE | NLM_F_EXCL,
            Self::Replace => NLM_F_CREATE | NLM_F_REPLACE,
        }
    }
}

impl Handle {
    /// Opens a socket inside the namespace. Must be called within a tokio runtime that has I/O enabled.
    pub fn open(namespace: &Namespace) -> Result<Self, Error> {
        let failed = |source| Error::Connect { namespace: namespace.name().to_owned(), source };
        let runtime =
            tokio::runtime::Handle::try_current().map_err(|cause| failed(io::Error::other(cause)))?;
        let opened = namespace.run(|| {
            let _entered = runtime.enter();
            rtnetlink::new_connection()
        })?;
        let (mut connection, netlink, _) = opened.map_err(failed)?;
        // With the end of every answer forwarded, an answer that ends without it is seen to be cut short.
        connection.set_forward_ack(true);
        connection.set_forward_done(true);
        let socket = connection.socket_mut().socket_mut();
        socket.set_ext_ack(true).map_err(failed)?;
        socket.set_cap_ack(true).map_err(failed)?;
        runtime.spawn(connection);
        Ok(Self { netlink, namespace: namespace.clone() })
    }

    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// One request that changes something or reads one thing. Answers with what the kernel sent before it acknowledged.
    pub(crate) async fn ask(
        &self,
        asked: Asked,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Vec<RouteNetlinkMessage>, Error> {
        self.send(asked, message, NLM_F_REQUEST | NLM_F_ACK | flags).await.map(|(answers, _)| answers)
    }

    /// A request that names other namespaces by file descriptor. It holds them open until it is answered, also when the
    /// caller stops waiting: the number must not come to mean another file before the kernel has read it.
    pub(crate) async fn ask_holding(
        &self,
        asked: Asked,
        message: RouteNetlinkMessage,
        flags: u16,
        held: Vec<Namespace>,
    ) -> Result<(), Error> {
        let (handle, task_asked) = (self.clone(), asked.clone());
        let task = tokio::spawn(async move {
            let outcome = handle.ask(task_asked, message, flags).await;
            drop(held);
            outcome
        });
        task.await.unwrap_or_else(|_| Err(self.disconnected(asked))).map(drop)
    }

    /// A listing, whole and of one moment.
    pub(crate) async fn list(
        &self,
        asked: Asked,
        message: RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, Error> {
        let mut reading = 1;
        loop {
            let (answers, interrupted) =
                self.send(asked.clone(), message.clone(), NLM_F_REQUEST | NLM_F_DUMP).await?;
            if !interrupted || reading == READINGS {
                return Ok(answers);
            }
            reading += 1;
        }
    }

    async fn send(
        &self,
        asked: Asked,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<(Vec<RouteNetlinkMessage>, bool), Error> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = flags;
        let Ok(mut stream) = self.netlink.clone().request(request) else {
            return Err(self.disconnected(asked));
        };
        let (mut answers, mut interrupted) = (Vec::new(), false);
        while let Some(answer) = stream.next().await {
            interrupted |= answer.header.flags & DUMP_INTERRUPTED != 0 && flags & NLM_F_DUMP == NLM_F_DUMP;
            match answer.payload {
                NetlinkPayload::InnerMessage(message) => answers.push(message),
                NetlinkPayload::Error(error) if error.code.is_some() => {
                    return Err(self.refused(asked, refusal(error.raw_code(), &error.header)));
                }
                NetlinkPayload::Done(done) if done.code < 0 => {
                    return Err(self.refused(asked, refusal(done.code, &[])));
                }
                NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok((answers, interrupted)),
                _ => {}
            }
        }
        Err(self.disconnected(asked))
    }

    pub(crate) fn refused(&self, asked: Asked, refusal: impl Into<Refusal>) -> Error {
        Error::refused(asked.operation, asked.object, self.namespace.name().to_owned(), refusal.into())
    }

    pub(crate) fn unsupported(&self, asked: Asked, words: &str) -> Error {
        self.refused(asked, Refusal { errno: Errno::EOPNOTSUPP, words: Some(words.to_owned()) })
    }

    fn disconnected(&self, asked: Asked) -> Error {
        let Asked { operation, object } = asked;
        Error::Disconnected { operation, object, namespace: self.namespace.name().to_owned() }
    }
}

/// The error number and the kernel's words, of which there may be none.
fn refusal(code: i32, payload: &[u8]) -> Refusal {
    let words = payload.get(HEADER_LENGTH..).and_then(|attributes| {
        let words =
            NlasIterator::new(attributes).flatten().find(|attribute| attribute.kind() == ERROR_WORDS)?;
        let text = String::from_utf8_lossy(words.value());
        Some(text.trim_end_matches(['\0', '.']).to_owned())
    });
    Refusal { errno: Errno::from_raw(code.saturating_abs()), words }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_kernels_words_are_found_behind_the_header() {
        let mut payload = vec![0; HEADER_LENGTH];
        payload.extend([9, 0, 1, 0]);
        payload.extend(b"Nope\0");
        assert_eq!(refusal(-17, &payload), Refusal { errno: Errno::EEXIST, words: Some("Nope".to_owned()) });
        assert_eq!(refusal(-17, &[]), Refusal { errno: Errno::EEXIST, words: None });
    }

    proptest! {
        #[test]
        fn no_answer_confuses_the_reader(code: i32, payload: Vec<u8>) {
            refusal(code, &payload);
        }
    }
}
