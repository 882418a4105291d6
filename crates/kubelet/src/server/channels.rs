//! The protocol in which clients of Kubernetes talk to containers: WebSocket messages, of which the first byte says the stream. Pure.
//!
//! | channel | direction | what |
//! |---|---|---|
//! | 0 | from the client | standard input |
//! | 1, 2 | to the client | standard output, standard error |
//! | 3 | to the client | how it ended, as a `Status`; once, at the end |
//! | 4 | from the client | the size of its terminal, as JSON |
//! | 255 | from the client | the number of a channel that is closed; version 5 only |

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

pub const STDIN: u8 = 0;
pub const STDOUT: u8 = 1;
pub const STDERR: u8 = 2;
const STATUS: u8 = 3;
const SIZE: u8 = 4;
const CLOSE: u8 = 255;

/// The versions, the best first.
pub const VERSIONS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];

/// The first version that a client offers and we know.
pub fn choose<'a>(offered: impl IntoIterator<Item = &'a str>) -> Option<&'static str> {
    let mut offered = offered.into_iter().flat_map(|list| list.split(','));
    offered.find_map(|name| VERSIONS.into_iter().find(|known| *known == name.trim()))
}

/// What a client said.
#[derive(Debug, PartialEq)]
pub enum Said {
    Input(Bytes),
    InputEnds,
    Size {
        rows: u16,
        columns: u16,
    },
    /// An empty message, or one that nobody here knows.
    Nothing,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TerminalSize {
    width: u16,
    height: u16,
}

impl Said {
    pub fn parse(message: &Bytes) -> Self {
        match message.first() {
            Some(&STDIN) if message.len() > 1 => Self::Input(message.slice(1..)),
            Some(&SIZE) => match serde_json::from_slice(&message[1..]) {
                Ok(TerminalSize { width, height }) => Self::Size { rows: height, columns: width },
                Err(_) => Self::Nothing,
            },
            Some(&CLOSE) if message[1..] == [STDIN] => Self::InputEnds,
            _ => Self::Nothing,
        }
    }
}

/// How a conversation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Success,
    Exit(i32),
    Failed(String),
}

impl Outcome {
    /// The last message.
    pub fn message(&self) -> Bytes {
        let status = match self {
            Self::Success | Self::Exit(0) => json!({ "metadata": {}, "status": "Success" }),
            Self::Exit(code) => json!({
                "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                "message": format!("command terminated with non-zero exit code: {code}"),
                "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] },
            }),
            Self::Failed(why) => json!({
                "metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
                "message": format!("Internal error occurred: {why}"),
            }),
        };
        message(STATUS, status.to_string().as_bytes())
    }
}

/// Bytes of a stream as a message.
pub fn message(channel: u8, bytes: &[u8]) -> Bytes {
    let mut message = Vec::with_capacity(bytes.len() + 1);
    message.push(channel);
    message.extend_from_slice(bytes);
    message.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_version_that_both_know_is_chosen() {
        let cases: [(&[&str], _); 5] = [
            (&["v5.channel.k8s.io,v4.channel.k8s.io"], Some("v5.channel.k8s.io")),
            (&["v4.channel.k8s.io, v5.channel.k8s.io"], Some("v4.channel.k8s.io")),
            (&["channel.k8s.io", "v5.channel.k8s.io"], Some("v5.channel.k8s.io")),
            (&["base64.channel.k8s.io"], None),
            (&[], None),
        ];
        for (offered, expected) in cases {
            assert_eq!(choose(offered.iter().copied()), expected, "{offered:?}");
        }
    }

    #[test]
    fn what_a_client_says_is_understood_or_passed_over() {
        let size = Said::Size { rows: 24, columns: 80 };
        let cases: [(&[u8], Said); 9] = [
            (b"\x00abc", Said::Input("abc".into())),
            (b"\x00", Said::Nothing),
            (b"", Said::Nothing),
            (b"\x04{\"Width\":80,\"Height\":24}", size),
            (b"\x04{\"Width\":-1,\"Height\":24}", Said::Nothing),
            (b"\xff\x00", Said::InputEnds),
            (b"\xff\x01", Said::Nothing),
            (b"\xff", Said::Nothing),
            (b"\x07what", Said::Nothing),
        ];
        for (message, expected) in cases {
            assert_eq!(Said::parse(&Bytes::from_static(message)), expected, "{message:?}");
        }
    }

    #[test]
    fn the_exit_code_is_where_clients_look_for_it() {
        let status = |outcome: Outcome| -> serde_json::Value {
            let message = outcome.message();
            assert_eq!(message[0], STATUS);
            serde_json::from_slice(&message[1..]).unwrap_or_default()
        };
        assert_eq!(status(Outcome::Exit(0))["status"], "Success");
        let failed = status(Outcome::Exit(4));
        assert_eq!((&failed["status"], &failed["reason"]), (&json!("Failure"), &json!("NonZeroExitCode")));
        assert_eq!(failed["details"]["causes"], json!([{ "reason": "ExitCode", "message": "4" }]));
    }
}
