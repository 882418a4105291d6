//! Lines: how messages become bytes and come back.
//!
//! A line is complete JSON and ends with a newline, which JSON never contains unescaped. What is longer than the limit is
//! never kept in memory.

use std::collections::VecDeque;

use serde::{Serialize, de::DeserializeOwned};

use crate::{Command, Departure, Event, ProxyRequest, ProxyResponse};

/// The longest line, without its newline. A Kubernetes object, the largest thing that is sent, may have a little more than that;
/// one with a VM in it has not.
pub const LINE_LIMIT: usize = 1 << 20;

/// A message of one of the conversations.
pub trait Message: Serialize + DeserializeOwned + sealed::Sealed {
    /// What errors call it.
    const NAME: &'static str;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! messages {
    ($($type:ty = $name:literal),+) => {$(
        impl sealed::Sealed for $type {}
        impl Message for $type {
            const NAME: &'static str = $name;
        }
    )+};
}

messages!(
    Command = "command",
    Departure = "departure",
    Event = "event",
    ProxyRequest = "CNI request",
    ProxyResponse = "CNI response"
);

/// A message cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// It has no JSON form.
    #[error("the {message} cannot be written as JSON")]
    Json {
        /// Which kind of message.
        message: &'static str,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// It is too long.
    #[error("the {message} has {length} bytes; a line has at most {LINE_LIMIT}")]
    TooLong {
        /// Which kind of message.
        message: &'static str,
        /// Its length.
        length: usize,
    },
}

/// A line is not a message.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// It is too long.
    #[error("a line of more than {LINE_LIMIT} bytes is no {message}")]
    TooLong {
        /// What was expected.
        message: &'static str,
    },
    /// It is something else.
    #[error("not a {message}: {line}")]
    Json {
        /// What was expected.
        message: &'static str,
        /// The beginning of the line.
        line: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// The line of a message, with its newline.
pub fn encode<M: Message>(message: &M) -> Result<Vec<u8>, EncodeError> {
    let mut line =
        serde_json::to_vec(message).map_err(|source| EncodeError::Json { message: M::NAME, source })?;
    if line.len() > LINE_LIMIT {
        return Err(EncodeError::TooLong { message: M::NAME, length: line.len() });
    }
    line.push(b'\n');
    Ok(line)
}

/// The message of a line, with or without its newline.
pub fn decode<M: Message>(line: &[u8]) -> Result<M, DecodeError> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    if line.len() > LINE_LIMIT {
        return Err(DecodeError::TooLong { message: M::NAME });
    }
    serde_json::from_slice(line).map_err(|source| DecodeError::Json {
        message: M::NAME,
        line: beginning(line),
        source,
    })
}

/// Enough of a line to recognise it, without control characters, which would confuse a log.
fn beginning(line: &[u8]) -> String {
    const SHOWN: usize = 60;
    let cut = &line[..line.len().min(SHOWN)];
    let text: String =
        String::from_utf8_lossy(cut).chars().filter(|character| !character.is_control()).collect();
    if line.len() > SHOWN { format!("{text}…") } else { text }
}

/// Cuts a stream of bytes into lines.
#[derive(Debug, Default)]
pub struct Lines {
    /// Whole lines in their order; nothing in the place of one that was too long.
    whole: VecDeque<Option<Vec<u8>>>,
    /// The line that is being received; nothing once it is too long.
    begun: Option<Vec<u8>>,
}

impl Lines {
    /// Nothing received yet.
    pub fn new() -> Self {
        Self { whole: VecDeque::new(), begun: Some(Vec::new()) }
    }

    /// Takes in what was received.
    pub fn push(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            self.begun = self.begun.take().filter(|begun| begun.len() + text.len() <= LINE_LIMIT);
            if let Some(begun) = &mut self.begun {
                begun.extend_from_slice(text);
            }
            if text.len() < part.len() {
                self.whole.push_back(self.begun.replace(Vec::new()));
            }
        }
    }

    /// The next whole line as a message; none: not all of it is there yet.
    #[allow(clippy::should_implement_trait, reason = "which message is expected is the caller's to say")]
    pub fn next<M: Message>(&mut self) -> Option<Result<M, DecodeError>> {
        let line = self.whole.pop_front()?;
        Some(line.ok_or(DecodeError::TooLong { message: M::NAME }).and_then(|line| decode(&line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VnicName;

    fn add(name: &str) -> ProxyRequest {
        ProxyRequest::Add { vnic: name.parse().unwrap() }
    }

    #[test]
    fn lines_come_out_as_they_went_in_however_they_are_cut() {
        let sent = [add("default"), ProxyRequest::List {}, add("blue")];
        let bytes: Vec<u8> = sent.iter().flat_map(|message| encode(message).unwrap()).collect();
        for size in [1, 2, 7, bytes.len()] {
            let (mut lines, mut received) = (Lines::new(), Vec::<ProxyRequest>::new());
            for piece in bytes.chunks(size) {
                lines.push(piece);
                while let Some(message) = lines.next() {
                    received.push(message.unwrap());
                }
            }
            assert_eq!(received, sent);
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_dropped_and_the_next_is_read() {
        let mut lines = Lines::new();
        for _ in 0..3 {
            lines.push(&vec![b' '; LINE_LIMIT / 2]);
        }
        assert!(lines.begun.is_none(), "it is not kept");
        lines.push(b"\n");
        lines.push(&encode(&add("default")).unwrap());
        assert!(matches!(lines.next::<ProxyRequest>(), Some(Err(DecodeError::TooLong { .. }))));
        assert_eq!(lines.next().unwrap().ok(), Some(add("default")));
        assert!(lines.next::<ProxyRequest>().is_none());
    }

    #[test]
    fn what_is_too_long_is_not_sent() {
        let event = Event::Refused { command: "start".to_owned(), reason: "x".repeat(LINE_LIMIT) };
        assert!(matches!(encode(&event), Err(EncodeError::TooLong { .. })));
    }

    #[test]
    fn a_request_of_the_proxy_names_a_vnic_and_nothing_else() {
        for line in [
            r#"{"request":"add","vnic":"../../etc"}"#,
            r#"{"request":"add","vnic":"a","netns":"/proc/1/ns/net"}"#,
            r#"{"request":"add","vnic":"a","plugin":"/bin/sh"}"#,
            r#"{"request":"list","path":"/"}"#,
            r#"{"request":"add"}"#,
            r#"{"request":"exec","vnic":"a"}"#,
            "",
        ] {
            let refused = decode::<ProxyRequest>(line.as_bytes()).unwrap_err();
            assert!(refused.to_string().starts_with("not a CNI request: "), "{refused}");
        }
        let vnic: VnicName = "a".parse().unwrap();
        assert_eq!(
            decode::<ProxyRequest>(br#"{"request":"del","vnic":"a"}"#).unwrap(),
            ProxyRequest::Del { vnic }
        );
    }

    #[test]
    fn a_newer_peer_may_say_more() {
        let line = br#"{"command":"shutdown","graceSeconds":5,"because":"drain"}"#;
        assert_eq!(decode::<Command>(line).unwrap(), Command::Shutdown { grace_seconds: 5 });
        assert!(decode::<Command>(br#"{"command":"levitate"}"#).is_err());
    }

    #[test]
    fn an_error_shows_the_line_without_harm() {
        let refused = decode::<Command>(b"\x1b[2Jhello\x07").unwrap_err();
        assert_eq!(refused.to_string(), "not a command: [2Jhello");
    }
}
