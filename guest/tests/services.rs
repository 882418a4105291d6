//! The TCP services as an ordinary process: no virtual machine needed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what it expects")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

struct Guest {
    process: Child,
    ports: Value,
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Guest {
    fn start() -> Self {
        // The kernel ends it with us, however we end.
        let mut process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_guest-init"), "--serve"])
            .args(["--echo", "0", "--counter", "0", "--control", "0"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("guest-init starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).expect("the first line says the ports");
        Self { process, ports: said["godwit-guest"].clone() }
    }

    fn connect(&self, service: &str, address: impl Into<IpAddr>) -> TcpStream {
        let port = u16::try_from(self.ports[service].as_u64().unwrap()).unwrap();
        TcpStream::connect((address.into(), port)).unwrap()
    }

    fn control(&self) -> impl FnMut(Value) -> Value {
        let mut lines = BufReader::new(self.connect("control", Ipv4Addr::LOCALHOST));
        move |request| {
            lines.get_mut().write_all(format!("{request}\n").as_bytes()).unwrap();
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            serde_json::from_str(&line).unwrap()
        }
    }
}

#[test]
fn echo_answers_on_both_ip_versions() {
    let guest = Guest::start();
    for address in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        let mut stream = guest.connect("echo", address);
        stream.write_all(b"hello").unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"hello");
    }
}

#[test]
fn the_counter_counts_at_the_interval_that_was_asked_for() {
    let guest = Guest::start();
    let mut stream = guest.connect("counter", Ipv4Addr::LOCALHOST);
    stream.write_all(b"every 50ms\n").unwrap();
    let numbers: Vec<(u64, u64)> = BufReader::new(stream)
        .lines()
        .take(12)
        .map(|line| {
            let line = line.unwrap();
            let (sequence, ms) = line.split_once(' ').unwrap();
            (sequence.parse().unwrap(), ms.parse().unwrap())
        })
        .collect();
    assert!(numbers.iter().zip(0..).all(|((sequence, _), expected)| *sequence == expected), "{numbers:?}");
    // The first lines may be out before the wish has arrived.
    assert!(numbers[11].1 - numbers[3].1 >= 8 * 50, "{numbers:?}");
}

#[test]
fn control_answers_line_by_line_and_survives_nonsense() {
    let guest = Guest::start();
    let mut ask = guest.control();
    assert!(ask(json!("nonsense"))["error"].is_string());
    assert_eq!(ask(json!({"fill": {"mib": 3, "seed": 5}}))["filled"]["mib"], 3);
    assert_eq!(ask(json!({"check": {}}))["ok"], true);
    assert_eq!(ask(json!({"dirty": {"mib_per_s": 8, "working_set_mib": 4}}))["ok"], true);
    let report = ask(json!({"report": {}}));
    assert_eq!(report["report"]["filled"], json!({"mib": 3, "pattern": "random", "seed": 5}));
    assert_eq!(report["report"]["dirty"]["working_set_mib"], 4);
    assert_eq!(ask(json!({"dirty": null}))["ok"], true);
    assert_eq!(ask(json!({"report": {}}))["report"]["dirty"], Value::Null);
}

#[test]
fn a_connection_out_is_kept_and_counted_until_the_other_side_closes_it() {
    let guest = Guest::start();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut ask = guest.control();
    let to = listener.local_addr().unwrap();
    assert_eq!(ask(json!({"connect": {"to": to, "every_ms": 1}})), json!({"ok": true, "connection": 0}));
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"one\ntwo\n").unwrap();
    let lines: Vec<String> = BufReader::new(&stream).lines().take(3).map(Result::unwrap).collect();
    assert!(
        lines.iter().zip(0..).all(|(line, sequence)| line.starts_with(&format!("{sequence} "))),
        "{lines:?}"
    );
    drop(stream);
    // The guest notices in its own time, and counts a line after it was sent; each look is an answer from it.
    let closed = (0..10_000)
        .map(|_| ask(json!({"report": {}}))["report"]["connections"][0].clone())
        .find(|connection| connection["closed"].is_string() && connection["sent"].as_u64() >= Some(3))
        .expect("the connection is reported as closed, and every line that was read here as sent");
    assert_eq!(closed["received"], 2, "{closed}");
    drop(listener);
    let refused = ask(json!({"connect": {"to": to}}));
    assert!(refused["error"].as_str().unwrap().starts_with("cannot connect to "), "{refused}");
}
