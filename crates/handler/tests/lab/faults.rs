//! Whatever goes wrong at whatever moment of a move: the guest runs at one place, as it was, and can move again.
//!
//! `GODWIT_SEED` draws others. `GODWIT_FAULTS` says how many of the combinations of a fault and a moment are tried.

use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::installation::{Installation, NODES, network_to_move_on};
use crate::moves::{Listener, request};
use crate::{asked, seed};

/// Guests and their moves have a network each, so that one can be cut without the other.
pub const LAB: &str = "
networks:
  - { name: management, nic: eth0 }
  - { name: secondary, nic: eth1, bridge: br-guests }
  - { name: moving, nic: eth2 }
";
pub const ROLE: &str = r#"[{ "networkAttachmentDefinition": "moving", "role": "migration" }]"#;
/// So slow that memory is on its way for some seconds.
const BANDWIDTH: &str = "32Mi";
const FILLED_MIB: u64 = 32;
/// How many combinations are tried unless told otherwise, and how many of them at the switch-over.
const FEW: usize = 6;
const FEW_AT_SWITCH_OVER: usize = 3;
/// From a fault to the end of its move. The longest wait is the tunnel's for a peer that does not answer.
const SETTLED: Duration = Duration::from_mins(4);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    SourceHandler,
    TargetHandler,
    TargetLauncher,
    TargetQemu,
    Controllers,
    Network,
    /// The handlers of both sides are told to stop, as by a roll-out: no fault at all, for they wait.
    HandlersStop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    Scheduling,
    Scheduled,
    PreparingTarget,
    TargetReady,
    Running,
    /// Some time in the seconds from the first page to the last, and a little after.
    SwitchOver,
}

const FAULTS: [Fault; 7] = [
    Fault::SourceHandler,
    Fault::TargetHandler,
    Fault::TargetLauncher,
    Fault::TargetQemu,
    Fault::Controllers,
    Fault::Network,
    Fault::HandlersStop,
];
const MOMENTS: [Moment; 6] = [
    Moment::Scheduling,
    Moment::Scheduled,
    Moment::PreparingTarget,
    Moment::TargetReady,
    Moment::Running,
    Moment::SwitchOver,
];

#[derive(Clone, Copy, Debug)]
struct Combination {
    fault: Fault,
    moment: Moment,
}

impl Combination {
    fn all() -> Vec<Self> {
        let all = FAULTS.into_iter().flat_map(|fault| MOMENTS.map(|moment| Self { fault, moment }));
        all.filter(|combination| combination.can_be()).collect()
    }

    /// What is not there yet cannot die.
    fn can_be(self) -> bool {
        match self.fault {
            Fault::TargetLauncher => self.moment >= Moment::Scheduled,
            Fault::TargetQemu => self.moment >= Moment::Running,
            // Before, they have nothing to wait for.
            Fault::HandlersStop => self.moment >= Moment::TargetReady,
            _ => true,
        }
    }

    /// How long after the first page at switch-over. What has the guest once it has arrived is ended before it can have: afterwards
    /// that is the guest's own end, and no fault of its move.
    fn delay(self, random: &mut fastrand::Rng) -> Duration {
        let longest = match (self.moment, self.fault) {
            (Moment::SwitchOver, Fault::TargetLauncher | Fault::TargetQemu) => 1500,
            (Moment::SwitchOver, _) => 5000,
            _ => return Duration::ZERO,
        };
        Duration::from_millis(random.u64(..longest))
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:?}", self.fault, self.moment)
    }
}

#[test]
fn whatever_fails_during_a_move_the_guest_runs_at_one_place_and_can_move_again() {
    let seed = seed();
    let count = asked("GODWIT_FAULTS").map_or(FEW, |count| usize::try_from(count).unwrap());
    println!("GODWIT_SEED={seed} GODWIT_FAULTS={count}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut all = Combination::all();
    random.shuffle(&mut all);
    let (late, early): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|combination| combination.moment == Moment::SwitchOver);
    let (first, rest) = late.split_at(FEW_AT_SWITCH_OVER.min(late.len()));
    let order = first.iter().chain(&early).chain(rest).take(count);

    let lab = Installation::with_traveller_in(LAB);
    lab.apply(&network_to_move_on("moving", "eth2", &json!({})));
    assert!(lab.set_roles(ROLE).status.success());
    lab.ready_on("kubevirt/moving");
    lab.configure(&json!({ "bandwidthPerMigration": BANDWIDTH }));
    let filled = lab.ask(&json!({ "fill": { "mib": FILLED_MIB, "seed": 11 } }));
    assert_eq!(filled["ok"], json!(true), "{filled}");
    // A guest that runs is told by its processor's time.
    lab.ask(&json!({ "dirty": { "mib_per_s": 4, "working_set_mib": 4 } }));
    let listener = Listener::start(&lab);
    let watch = Watch::start(&lab);
    let mut guest = Guest::default();
    guest.is_well(&lab, &watch);
    for (round, combination) in order.enumerate() {
        let begun = Instant::now();
        let name = format!("round-{round}");
        let patient = count > FEW;
        let migration = lab.move_with(&name, *combination, patient, &mut random);
        let state = &migration["status"]["migrationState"];
        println!(
            "{combination}: {} {} after {:.1?}",
            migration["status"]["phase"],
            state["failureReason"],
            begun.elapsed()
        );
        if combination.fault == Fault::HandlersStop && combination.moment >= Moment::Running {
            assert_eq!(migration["status"]["phase"], "Succeeded", "{migration:#}\n{}", lab.describe());
        }
        guest.is_well(&lab, &watch);
        lab.until_it_is_whole();
        if migration["status"]["phase"] == "Failed" {
            assert!(state["failureReason"].is_string(), "{migration:#}");
            assert_eq!(lab.node_of("traveller"), state["sourceNode"].as_str().unwrap(), "{migration:#}");
            let again = format!("{name}-again");
            lab.apply(&request(&again));
            let migration = lab.settled(&again);
            assert_eq!(migration["status"]["phase"], "Succeeded", "{migration:#}\n{}", lab.describe());
            guest.is_well(&lab, &watch);
        }
    }
    println!("longest silence: {:.1?}", listener.silence());
}

impl Installation {
    /// Moves the guest, does the fault at its moment, and waits for the end of both.
    fn move_with(
        &self,
        name: &str,
        combination: Combination,
        patient: bool,
        random: &mut fastrand::Rng,
    ) -> Value {
        let source = self.node_of("traveller");
        self.apply(&request(name));
        self.until_moment(name, combination.moment);
        thread::sleep(combination.delay(random));
        match combination.fault {
            Fault::SourceHandler => self.end_handler(&source, "KILL"),
            Fault::TargetHandler => {
                let Some(target) = self.target_of(name) else { return self.settled(name) };
                self.end_handler(&target, "KILL");
            }
            Fault::HandlersStop => {
                let Some(target) = self.target_of(name) else { return self.settled(name) };
                self.end_handler(&source, "TERM");
                self.end_handler(&target, "TERM");
            }
            Fault::TargetLauncher | Fault::TargetQemu => {
                let Some(target) = self.target_of(name) else { return self.settled(name) };
                let job = format!("kubevirt.io/migrationJobUID={}", self.uid_of(name));
                let process =
                    if combination.fault == Fault::TargetQemu { "qemu-system" } else { "virt-launcher" };
                self.end(&target, "default", &job, process, "KILL");
            }
            Fault::Controllers => {
                for node in NODES {
                    self.end(node, "kubevirt", "kubevirt.io=virt-controller", "godwit", "KILL");
                }
            }
            Fault::Network => {
                self.shell(&source, "ip link set eth2 down");
                // Shorter than the tunnel's patience; or longer, for those who have the time.
                let healed = if random.u8(..4) == 0 && patient { 90_000 } else { random.u64(1000..8000) };
                thread::sleep(Duration::from_millis(healed));
                self.shell(&source, "ip link set eth2 up");
            }
        }
        self.settled(name)
    }

    /// Waits until the move has come so far, or is over.
    fn until_moment(&self, name: &str, moment: Moment) {
        let path = r"jsonpath={.status.phase}{'\n'}";
        let mut watch = self.kubectl_command(&["get", "vmim", name, "-w", "-o", path]);
        let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let way = ["Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running"];
        let wanted = way.len().min(moment as usize + 1) - 1;
        let lines = BufReader::new(watch.stdout.take().unwrap()).lines().map_while(Result::ok);
        for phase in lines {
            let over = matches!(phase.as_str(), "Succeeded" | "Failed");
            if over || way[wanted..].contains(&phase.as_str()) {
                break;
            }
        }
        // It would go on for ever.
        let _ = watch.kill();
        let _ = watch.wait();
    }

    /// The node that a move goes to, once it has one; none: it is over without.
    fn target_of(&self, name: &str) -> Option<String> {
        let job = format!("kubevirt.io/migrationJobUID={}", self.uid_of(name));
        self.until("the target has a node", SETTLED, || {
            let path = "jsonpath={.items[*].spec.nodeName}";
            let node = self.kubectl_ok(&["get", "pods", "-l", &job, "-o", path]);
            let over =
                matches!(self.migration(name)["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            (over || !node.is_empty()).then_some((!node.is_empty()).then_some(node))
        })
    }

    fn uid_of(&self, name: &str) -> String {
        self.migration(name)["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    pub fn end_handler(&self, node: &str, signal: &str) {
        self.end(node, "kubevirt", "kubevirt.io=virt-handler", "godwit", signal);
    }

    /// Sends a signal to the processes of this name in pods of a node; those that are not there, or not any more, are well dead.
    fn end(&self, node: &str, namespace: &str, label: &str, process: &str, signal: &str) {
        let field = format!("spec.nodeName={node}");
        let path = "jsonpath={.items[*].metadata.uid}";
        let pods = ["-n", namespace, "get", "pods", "-l", label, "--field-selector", &field, "-o", path];
        let pods = self.kubectl_ok(&pods);
        let script = format!(
            r#"for pod in {pods}; do for process in $(ip netns pids $pod); do
  case "$(cat /proc/$process/comm 2>/dev/null)" in {process}*) kill -{signal} $process;; esac
done; done 2>/dev/null; true"#
        );
        self.shell(node, &script);
    }

    /// Waits for the end of a move, whatever it is.
    fn settled(&self, name: &str) -> Value {
        self.until("the move is over", SETTLED, || {
            let migration = self.migration(name);
            matches!(migration["status"]["phase"].as_str(), Some("Succeeded" | "Failed")).then_some(migration)
        })
    }
}

/// The guest, as it was when it was last seen.
#[derive(Default)]
pub struct Guest {
    uptime: Duration,
}

impl Guest {
    /// It runs at one place, where the instance says, with its memory, and was never started again.
    pub fn is_well(&mut self, lab: &Installation, watch: &Watch) {
        lab.until_it_is("one launcher is left, and its node is the instance's", SETTLED, || {
            let node = lab.node_of("traveller");
            matches!(&lab.launchers()[..], [(_, on)] if *on == node)
        });
        lab.until_it_is("one QEMU is left, and its guest runs", SETTLED, || watch.runs());
        watch.never_twice();
        assert_eq!(lab.phase("traveller"), "Running");
        let checked = lab.ask(&json!({ "check": {} }));
        assert_eq!(checked["ok"], json!(true), "{checked}");
        let report = lab.ask(&json!({ "report": {} }));
        let uptime = Duration::from_millis(report["report"]["uptime_ms"].as_u64().unwrap());
        assert!(uptime > self.uptime, "it was started again: {uptime:?} after {:?}", self.uptime);
        self.uptime = uptime;
    }
}

/// Looks all the while which QEMU of the lab has its guest run, by the time that its virtual processors take.
pub struct Watch {
    seen: Arc<Mutex<Seen>>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    /// Of each process: ticks of its virtual processors.
    running: HashMap<u32, u64>,
    /// The one that ran last.
    last: Option<u32>,
    /// Those whose guest had gone on in another.
    left: Vec<u32>,
    twice: Option<String>,
}

/// Of the kernel's clock, a hundred a second. To be made, or to load a guest's state, takes a virtual processor less.
const RUNS: u64 = 20;

impl Watch {
    pub fn start(lab: &Installation) -> Self {
        let directory = lab.directory();
        let (seen, end) = (Arc::<Mutex<Seen>>::default(), Arc::<AtomicBool>::default());
        let (see, until) = (Arc::clone(&seen), Arc::clone(&end));
        let thread = thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                see.lock().unwrap().look(&directory);
                thread::sleep(Duration::from_millis(100));
            }
        });
        Self { seen, end, thread: Some(thread) }
    }

    /// Whether the only one that is left has its guest run.
    fn runs(&self) -> bool {
        let seen = self.seen.lock().unwrap();
        seen.running.len() == 1 && seen.last.is_some_and(|last| seen.running.contains_key(&last))
    }

    fn never_twice(&self) {
        let twice = self.seen.lock().unwrap().twice.clone();
        assert_eq!(twice, None);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

impl Seen {
    fn look(&mut self, lab: &Path) {
        let now = machines(lab);
        self.running.retain(|process, _| now.contains_key(process));
        for (process, ticks) in now {
            let before = *self.running.entry(process).or_insert(ticks);
            if ticks < before + RUNS {
                continue;
            }
            self.running.insert(process, ticks);
            if self.left.contains(&process) {
                let text = format!("process {process} ran again after {:?} had run", self.last);
                self.twice.get_or_insert(text);
            }
            if self.last != Some(process) {
                self.left.extend(self.last.replace(process));
            }
        }
    }
}

/// Every QEMU of this lab, with what its virtual processors have taken.
fn machines(lab: &Path) -> HashMap<u32, u64> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let of_lab = |process: &u32| {
        let read =
            |name: &str| std::fs::read_to_string(format!("/proc/{process}/{name}")).unwrap_or_default();
        read("comm").starts_with("qemu-system") && read("mountinfo").contains(lab.to_str().unwrap())
    };
    all.filter(of_lab).map(|process| (process, ticks(process).unwrap_or_default())).collect()
}

fn ticks(process: u32) -> Option<u64> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
    let of = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).ok()?;
        let (name, rest) = stat.rsplit_once(") ")?;
        let mut times = rest.split(' ').skip(11).map_while(|field| field.parse::<u64>().ok());
        name.contains("(CPU ").then(|| times.next().unwrap_or(0) + times.next().unwrap_or(0))
    };
    Some(threads.filter_map(of).sum())
}
