//! README.md as a person follows it: its shell blocks about VMs and the lab, typed line by line into
//! a shell on a terminal.
//!
//! Every line must end with 0, in a copy of the project where `target/release` holds the programs of
//! this build. [`NOT_TYPED`] names the lines that are left out, with the reason. What README says
//! that a line shows or does is asserted here.

use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use e2e::{Installation, Lab, Place, programs, project};

use crate::PATIENCE;

/// The sections whose blocks are followed, in README's order.
const SECTIONS: [&str; 2] = ["Virtual machines", "The lab"];

/// Lines that begin so are not typed.
const NOT_TYPED: [(&str, &str); 2] = [
    ("make build", "the programs are built already, and lie where `make build` puts them"),
    (
        "godwit lab node ",
        "it needs a second Kubernetes, and runs until Ctrl-C: crates/lab/tests/suite/join.rs runs it",
    ),
];

/// Lines that start an interactive program: what the program shows when it is ready, what is typed
/// then, and what the program must show after that.
const DIALOGUES: [(&str, &str, &str, &str); 3] = [
    ("godwit console vm", "Ctrl-] leaves", "\x1d", ""),
    ("godwit lab shell node-1", "# ", "hostname; exit\r", "node-1\r\n"),
    ("kubectl exec -it pod -- sh", "# ", "hostname; exit\r", "pod\r\n"),
];

/// What lines must show, beside what is asserted of their effect.
const SHOWN: [(&str, &[&str]); 9] = [
    ("godwit lab up", &["is ready: 3 nodes"]),
    ("tools/install", &["waiting for virt-controller", "installed"]),
    ("kubectl get vmi", &["Running"]),
    ("godwit migrate vm --wait", &["TIME", "DOWNTIME", "MOVED", "NETWORK", "Pod"]),
    (
        "kubectl drain \"$node\" --pod-selector=kubevirt.io=virt-launcher --delete-emptydir-data",
        &["Eviction triggered evacuation of VMI"],
    ),
    ("kubectl get nodes -o wide", &["node-1", "node-2", "node-3"]),
    ("kubectl logs pod", &["hello"]),
    ("godwit lab status", &["cluster lab", "node-3", "default", "agent"]),
    ("godwit console vm", &["The console of vm"]),
];

/// How long one line may take. Installing takes longest.
const LINE: Duration = Duration::from_mins(3);

#[test]
fn readme_can_be_followed_line_by_line() {
    let readme = std::fs::read_to_string(project().join("README.md")).unwrap();
    let lines = commands(&readme);
    for unused in NOT_TYPED.iter().map(|(line, _)| *line).chain(DIALOGUES.map(|dialogue| dialogue.0)) {
        assert!(lines.iter().any(|line| line.starts_with(unused)), "README does not say {unused:?}");
    }
    for (line, _) in SHOWN {
        assert!(lines.iter().any(|said| said == line), "README does not say {line:?}");
    }
    // The first command after the VM runs, but for a look at it, migrates the VM.
    let after = lines.iter().position(|line| line.starts_with("kubectl wait vm/vm ")).unwrap();
    assert_eq!(lines[after + 1..after + 3], ["kubectl get vmi", "godwit migrate vm --wait"]);

    // README is about the lab.
    let lab = Installation::of(Arc::new(Lab::none()));
    let mut person = Person::at_terminal(&lab, &copy_of_project(&lab));
    // Where the VM was before it migrates.
    let mut left = None;
    for line in lines.iter().filter(|line| !NOT_TYPED.iter().any(|(skipped, _)| line.starts_with(skipped))) {
        if line.starts_with("godwit migrate ") || line.starts_with("kubectl drain ") {
            left = home(&lab);
        }
        let shown = person.types(line);
        for (_, texts) in SHOWN.iter().filter(|(said, _)| said == line) {
            for text in *texts {
                assert!(shown.contains(text), "{line}: {text:?} is not shown: {shown}");
            }
        }
        match line.as_str() {
            "godwit lab down" => assert!(!lab.directory().exists(), "the lab is still there"),
            "kubectl get vmi" => {
                let now = home(&lab).unwrap();
                assert!(shown.contains(&now.0) && shown.contains(&now.1), "{now:?} is not shown: {shown}");
                if let Some(before) = left.take() {
                    it_has_moved(&lab, &before);
                }
            }
            wait if wait.starts_with("kubectl wait vmim ") => {
                assert_eq!(shown.matches("condition met").count(), 2, "{shown}");
                it_has_moved(&lab, &left.take().unwrap());
            }
            _ => {}
        }
    }
}

/// The node and the address of the VM, if it has both.
fn home(lab: &Installation) -> Option<(String, String)> {
    Some((lab.node_of("vm"), lab.address("vm")?))
}

/// The VM runs on another node, and its guest answers at another address.
fn it_has_moved(lab: &Installation, before: &(String, String)) {
    let after = home(lab).unwrap();
    assert!(after.0 != before.0 && after.1 != before.1, "{after:?} after {before:?}");
    lab.until_it_is("the guest answers", PATIENCE, || lab.echo(Place::Node("node-1"), &after.1, "hello"));
}

/// The lines of the shell blocks of the sections that are followed, without comments.
fn commands(readme: &str) -> Vec<String> {
    let mut commands = Vec::new();
    for section in SECTIONS {
        let heading = format!("\n## {section}\n");
        let (_, text) =
            readme.split_once(&heading).unwrap_or_else(|| panic!("README has no section {section:?}"));
        let text = text.split("\n## ").next().unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("    "));
        commands.extend(lines.map(|line| line.split("  #").next().unwrap().trim_end().to_owned()));
    }
    commands
}

/// What README's lines need of the project, in a directory that goes with the lab.
fn copy_of_project(lab: &Installation) -> PathBuf {
    let copy = lab.directory().with_file_name("project");
    std::fs::create_dir_all(copy.join("target")).unwrap();
    let parts = ["deploy", "examples", "tools"].map(|part| project().join(part));
    let copied = Command::new("cp").arg("-a").args(parts).arg(&copy).status().unwrap();
    assert!(copied.success(), "cp: {copied}");
    std::os::unix::fs::symlink(programs(), copy.join("target/release")).unwrap();
    copy
}

/// Somebody at a shell on a terminal.
struct Person {
    shell: Child,
    keys: ChildStdin,
    screen: Receiver<Vec<u8>>,
    /// What the terminal has shown since the last line was typed.
    shown: Vec<u8>,
}

impl Person {
    fn at_terminal(lab: &Installation, directory: &Path) -> Self {
        let lab = lab.directory();
        let (labs, name) = (lab.parent().unwrap(), lab.file_name().unwrap());
        let mut shell = Command::new("script");
        shell.args([
            "--quiet",
            "--return",
            "--command",
            "bash --norc --noprofile --noediting -i",
            "/dev/null",
        ]);
        shell.current_dir(directory).env("GODWIT_LABS", labs).env("GODWIT_LAB", name);
        for inherited in ["KUBECONFIG", "GODWIT_PROGRAMS", "GODWIT_KUBECTL", "PROMPT_COMMAND", "PS1"] {
            shell.env_remove(inherited);
        }
        let mut shell =
            shell.env("TERM", "dumb").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (keys, mut output) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let (show, screen) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                // Nobody looks any more once the test has ended.
                if show.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        let mut person = Self { shell, keys, screen, shown: Vec::new() };
        // The prompt shows the exit status of the line before it. The quotes in the middle keep the
        // echo of this line from looking like a prompt.
        person.types("PS1='<<''$?>> '");
        person
    }

    /// Types a line, waits until it has ended well, and says what was shown.
    fn types(&mut self, line: &str) -> String {
        let began = Instant::now();
        self.shown.clear();
        self.press(&format!("{line}\r"));
        if let Some((_, ready, keys, then)) = DIALOGUES.iter().find(|dialogue| dialogue.0 == line) {
            self.until(line, ready, |shown| after_echo(shown, line)?.contains(ready).then_some(()));
            self.press(keys);
            self.until(line, then, |shown| after_echo(shown, line)?.contains(then).then_some(()));
        }
        let code = self.until(line, "the next prompt", prompt);
        let shown = String::from_utf8_lossy(&self.shown).into_owned();
        println!("{:5.1} s  {line}", began.elapsed().as_secs_f32());
        assert_eq!(code, 0, "{line} ended with {code}: {shown}");
        shown
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until what is shown has something.
    fn until<T>(&mut self, line: &str, what: &str, find: impl Fn(&str) -> Option<T>) -> T {
        let end = Instant::now() + LINE;
        loop {
            let shown = String::from_utf8_lossy(&self.shown);
            if let Some(found) = find(&shown) {
                return found;
            }
            match self.screen.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(more) => self.shown.extend(more),
                Err(RecvTimeoutError::Timeout) => {
                    panic!("{line}: {what:?} is not shown within {LINE:?}: {shown}")
                }
                Err(RecvTimeoutError::Disconnected) => panic!("{line}: the shell has ended: {shown}"),
            }
        }
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// What was shown after the line that was typed.
fn after_echo<'a>(shown: &'a str, line: &str) -> Option<&'a str> {
    let (_, after) = shown.split_once(line)?;
    after.split_once('\n').map(|(_, after)| after)
}

/// The exit status that the last prompt shows, once there is a prompt at the end.
fn prompt(shown: &str) -> Option<u8> {
    let (_, code) = shown.strip_suffix(">> ")?.rsplit_once("<<")?;
    code.parse().ok()
}
