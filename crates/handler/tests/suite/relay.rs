//! A process in a pod's network namespace that listens on, or connects to, a unix socket, and says what the test says.
//!
//! Lines of the test go to the socket, lines of the socket to the test, and `connected` and `closed` when that happens.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::node::LONG;

const HOW: &str = "GODWIT_TEST_RELAY";
/// The test harness writes to standard output too.
const MARK: &str = "> ";

/// What the process does.
pub fn run() {
    let how = std::env::var(HOW).unwrap();
    let (how, path) = how.split_once(' ').unwrap();
    let current: Arc<Mutex<Option<UnixStream>>> = Arc::default();
    let out = Arc::clone(&current);
    thread::spawn(move || {
        for line in std::io::stdin().lines() {
            let line = line.unwrap() + "\n";
            // What nobody can take any more is lost, as it would be.
            let _ = out.lock().unwrap().as_mut().map(|stream| stream.write_all(line.as_bytes()));
        }
        std::process::exit(0);
    });
    if how == "connect" {
        follow(UnixStream::connect(path).unwrap(), &current);
        // The test may still have something to say to nobody.
        loop {
            thread::park();
        }
    }
    let listener = UnixListener::bind(path).unwrap();
    say("listening");
    for stream in listener.incoming() {
        follow(stream.unwrap(), &current);
    }
}

fn follow(stream: UnixStream, current: &Mutex<Option<UnixStream>>) {
    *current.lock().unwrap() = Some(stream.try_clone().unwrap());
    say("connected");
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { break };
        say(&line);
    }
    say("closed");
}

fn say(text: &str) {
    println!("{MARK}{text}");
}

/// The process, from the test's side. It ends with this.
pub struct Relay {
    child: Child,
    input: ChildStdin,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Relay {
    /// One in the network namespace of this name that listens there.
    pub async fn listen(namespace: &str, path: &Path) -> Self {
        let mut relay = Self::start(namespace, "listen", path);
        relay.expect("listening").await;
        relay
    }

    /// One in the network namespace of this name that is connected there.
    pub async fn connect(namespace: &str, path: &Path) -> Self {
        let mut relay = Self::start(namespace, "connect", path);
        relay.expect("connected").await;
        relay
    }

    fn start(namespace: &str, how: &str, path: &Path) -> Self {
        let mut child = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{namespace}"))
            .arg(std::env::current_exe().unwrap())
            .args(["become_a_relay", "--exact", "--ignored", "--nocapture"])
            .env(HOW, format!("{how} {}", path.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("nsenter is installed");
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (tell, lines) = mpsc::unbounded_channel();
        thread::spawn(move || {
            let all = BufReader::new(output).lines().map_while(Result::ok);
            // libtest puts the name of the test before the first line.
            for line in all.filter_map(|line| Some(line.split_once(MARK)?.1.to_owned())) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, input, lines }
    }

    /// Sends a line.
    pub fn send(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// The next line from the other side.
    pub async fn line(&mut self) -> String {
        timeout(LONG, self.lines.recv()).await.expect("something is said in time").expect("the process lives")
    }

    pub async fn expect(&mut self, line: &str) {
        assert_eq!(self.line().await, line);
    }

    /// The next message from the other side.
    pub async fn hear(&mut self) -> Value {
        let line = self.line().await;
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("a message is JSON: {line}"))
    }

    /// Asks the CNI proxy; again, as a launcher does, while the handler has not heard of the instance.
    pub async fn ask(&mut self, request: &str, vnic: &str) -> Value {
        let deadline = Instant::now() + LONG;
        loop {
            self.send(&json!({ "request": request, "vnic": vnic }).to_string());
            let answer = self.hear().await;
            if !answer.to_string().contains("is not known yet; try again") || Instant::now() > deadline {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Says, as a launcher, where things stand.
    pub fn status(&mut self, mut status: Value) {
        status["event"] = json!("status");
        self.send(&status.to_string());
    }

    /// Takes the handler's hello, and answers it: a launcher that waits.
    pub async fn greet(&mut self) {
        self.expect("connected").await;
        assert_eq!(self.hear().await, json!({ "command": "hello", "version": 1 }));
        self.send(r#"{"event":"hello","version":1}"#);
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
