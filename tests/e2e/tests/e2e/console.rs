//! `godwit console`: a person at a guest's serial line, and the terminal afterwards.

use std::io::{Read, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use e2e::{Installation, Place, bridged_example, other_node};

use crate::PATIENCE;

const LEAVE: &[u8] = b"\x1d";

/// A console that somebody has open.
struct Console {
    child: Child,
    keys: ChildStdin,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Console {
    fn open(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (shown, keys) = (Arc::new(Mutex::new(Vec::new())), child.stdin.take().unwrap());
        let streams: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for mut stream in streams {
            let shown = shown.clone();
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    shown.lock().unwrap().extend_from_slice(&buffer[..count]);
                }
            });
        }
        Self { child, keys, shown }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    fn press(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }

    fn until_shown(&self, text: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.shown().contains(text) {
            assert!(Instant::now() < end, "{text:?} was never shown: {:?}", self.shown());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn code(&mut self) -> Option<i32> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < end, "the console does not end: {:?}", self.shown());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        // One that has ended needs no end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn open_console(lab: &Installation, vm: &str) -> Console {
    Console::open(lab.at_terminal(&["console", vm]))
}

/// A shell on a terminal of its own.
fn open_terminal(lab: &Installation, script: &str) -> Console {
    let mut command = Command::new("script");
    command.args(["-qec", script, "/dev/null"]).env("KUBECONFIG", lab.kubeconfig());
    command.env("GODWIT", lab.at_terminal(&[]).get_program()).env("SHELL", "/bin/sh");
    Console::open(command)
}

#[test]
fn a_person_sits_at_the_console_of_a_guest() {
    let lab = Installation::new("");
    let mut console = open_console(&lab, "vm");
    assert_eq!(console.code(), Some(3), "{}", console.shown());
    console.until_shown("there is no VM vm in namespace default");
    lab.apply(&bridged_example());
    let mut console = open_console(&lab, "vm");
    assert_eq!(console.code(), Some(4), "{}", console.shown());
    console.until_shown("VM vm does not run");

    let address = lab.until("the instance has an address", PATIENCE, || lab.address("vm"));
    let node = Place::Node(other_node(&lab.node_of("vm")));
    lab.until_it_is("the guest answers", PATIENCE, || lab.echo(node, &address, "hello"));

    // What is typed reaches the guest, whose line echoes it; what the guest says is shown.
    let mut console = open_console(&lab, "vm");
    console.press(b"typed by a person\r");
    console.until_shown("typed by a person");
    let report = r#"echo '{"report":{}}' | timeout 3 socat -t2 -"#;
    lab.shell(node, &format!("{report} TCP:{address}:7002"));
    console.until_shown(r#""event":"report""#);

    // One at a time. Who leaves makes room for the next.
    let mut second = open_console(&lab, "vm");
    assert_eq!(second.code(), Some(5), "{}", second.shown());
    second.until_shown("in use");
    console.press(LEAVE);
    assert_eq!(console.code(), Some(0), "{}", console.shown());

    // A terminal is given back as it was, whether its user leaves or the program is told to end.
    let mut terminal = open_terminal(&lab, "$GODWIT console vm; echo left=$?; stty -a");
    terminal.until_shown("Ctrl-] leaves");
    terminal.press(LEAVE);
    terminal.until_shown("left=0");
    terminal.until_shown(" icanon");
    let terminal = open_terminal(&lab, "timeout --foreground 4 $GODWIT console vm; echo left=$?; stty -a");
    terminal.until_shown("left=124");
    terminal.until_shown(" icanon");

    // A program that is killed leaves the console free, and one that is open ends with the guest.
    let mut killed = open_console(&lab, "vm");
    killed.press(b"x");
    killed.until_shown("x");
    drop(killed);
    let mut last = lab.until("the console is free again", PATIENCE, || {
        let mut console = open_console(&lab, "vm");
        console.press(b"y");
        while !console.shown().contains('y') {
            // In use, still.
            console.child.try_wait().unwrap().is_none().then_some(())?;
            thread::sleep(Duration::from_millis(20));
        }
        Some(console)
    });
    lab.kubectl_ok(&["delete", "vm", "vm", "--timeout=60s"]);
    assert_eq!(last.code(), Some(0), "{}", last.shown());
    last.until_shown("power button");
}
