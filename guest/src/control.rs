//! The control protocol: one JSON object a line asks, one JSON object a line answers.
//!
//! The answer to what was done holds `"ok":true`; to what was not, `"error"` with a reason. The text of a request decides everything;
//! a connection has no state of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use nix::sys::reboot::RebootMode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::memory::{Dirty, Fill};
use crate::{Guest, millis};

/// What powering off means here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    /// The machine is ours: it goes off.
    Machine,
    /// An ordinary process on someone's machine, which stays on.
    Process,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    Dirty(Option<Dirty>),
    Fill(Fill),
    Check {},
    Report {},
    Connect(Connect),
    Reboot {},
    Poweroff {},
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connect {
    pub to: SocketAddr,
    #[serde(default = "every_ms")]
    pub every_ms: u64,
}

/// How often a line goes out on a connection that the guest opened.
pub const fn every_ms() -> u64 {
    100
}

/// What follows once the answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    Continue,
    End(RebootMode),
}

/// Does what a line asks, and says how it went.
pub fn answer(guest: &Arc<Guest>, line: &str) -> (Value, After) {
    let request = match serde_json::from_str(line) {
        Ok(request) => request,
        Err(cause) => return (error(&format_args!("not a request: {cause}")), After::Continue),
    };
    let end = match request {
        Request::Reboot {} => RebootMode::RB_AUTOBOOT,
        Request::Poweroff {} => RebootMode::RB_POWER_OFF,
        other => return (done(guest, other), After::Continue),
    };
    match guest.power {
        Power::Machine => (json!({ "ok": true }), After::End(end)),
        Power::Process => (error(&"this is a process on someone's machine, which stays on"), After::Continue),
    }
}

fn done(guest: &Arc<Guest>, request: Request) -> Value {
    let start = Instant::now();
    match request {
        Request::Dirty(asked) => match guest.memory.dirty(asked) {
            Ok(()) => json!({ "ok": true, "dirty": asked }),
            Err(cause) => error(&cause),
        },
        Request::Fill(asked) => match guest.memory.fill(asked) {
            Ok(filled) => json!({ "ok": true, "filled": filled, "ms": millis(start) }),
            Err(cause) => error(&cause),
        },
        Request::Check {} => match guest.memory.check() {
            Ok(filled) => json!({ "ok": true, "filled": filled, "ms": millis(start) }),
            Err(cause) => error(&cause),
        },
        Request::Connect(asked) => match guest.outgoing.open(&asked) {
            Ok(number) => json!({ "ok": true, "connection": number }),
            Err(cause) => error(&cause),
        },
        Request::Report {} => {
            let report = guest.report();
            guest.serial.say("report", &report);
            json!({ "ok": true, "report": report })
        }
        Request::Reboot {} | Request::Poweroff {} => json!({ "ok": true }),
    }
}

fn error(cause: &dyn std::fmt::Display) -> Value {
    json!({ "error": cause.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Pattern;
    use crate::serial::Serial;

    fn read(line: &str) -> Request {
        serde_json::from_str(line).unwrap()
    }

    #[test]
    fn requests_read_as_documented() {
        let dirty = Dirty { mib_per_s: 140, working_set_mib: 256 };
        assert_eq!(read(r#"{"dirty":{"mib_per_s":140,"working_set_mib":256}}"#), Request::Dirty(Some(dirty)));
        assert_eq!(read(r#"{"dirty":null}"#), Request::Dirty(None));
        let fill = Fill { mib: 300, pattern: Pattern::Zero, seed: None };
        assert_eq!(read(r#"{"fill":{"mib":300,"pattern":"zero"}}"#), Request::Fill(fill));
        let connect = Connect { to: "10.0.0.1:7".parse().unwrap(), every_ms: 100 };
        assert_eq!(read(r#"{"connect":{"to":"10.0.0.1:7"}}"#), Request::Connect(connect));
        for (line, request) in [
            (r#"{"check":{}}"#, Request::Check {}),
            (r#"{"report":{}}"#, Request::Report {}),
            (r#"{"reboot":{}}"#, Request::Reboot {}),
            (r#"{"poweroff":{}}"#, Request::Poweroff {}),
        ] {
            assert_eq!(read(line), request);
        }
    }

    #[test]
    fn every_line_gets_an_answer_that_says_what_is_wrong() {
        let guest = Guest::new(Serial::new(std::io::sink()), Power::Process);
        for (line, start) in [
            ("", "not a request: EOF"),
            ("{}", "not a request: "),
            (r#"{"dirty":{"mib_per_s":1}}"#, "not a request: missing field `working_set_mib`"),
            (r#"{"fill":{"mib":1,"patern":"zero"}}"#, "not a request: unknown field `patern`"),
            (r#"{"check":{}}"#, "nothing was filled"),
            (r#"{"poweroff":{}}"#, "this is a process on someone's machine"),
        ] {
            let (answer, after) = answer(&guest, line);
            let text = answer["error"].as_str().unwrap_or_default();
            assert!(text.starts_with(start), "{line}: {answer}");
            assert_eq!(after, After::Continue);
        }
    }

    #[test]
    fn on_a_machine_of_its_own_it_ends_after_the_answer() {
        let guest = Guest::new(Serial::new(std::io::sink()), Power::Machine);
        let (said, after) = answer(&guest, r#"{"reboot":{}}"#);
        assert_eq!((said, after), (json!({ "ok": true }), After::End(RebootMode::RB_AUTOBOOT)));
    }
}
