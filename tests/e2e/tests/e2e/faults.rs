//! Whatever goes wrong at whatever moment of a move: the guest runs at one place, as it was, and can move again.
//!
//! Every fault is tried at one moment, which is drawn; `GODWIT_SEED` draws others. `GODWIT_FAULTS` says how many of the combinations of a
//! fault and a moment are tried (`make faults`: all of them), `GODWIT_FAULT` which ones, by a part of their names.

use std::fmt;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use e2e::handlers::NO_REQUESTS;
use e2e::migration_network::{ROLE, SPEC, squatter};
use e2e::objects::{KUBEVIRT, VMS};
use e2e::traveller::Listener;
use e2e::{Guest, Installation, Kind, NODES, Signal, Watch, network_to_move_on};
use serde_json::{Value, json};

use crate::{asked, seed};

/// So slow that memory is on its way for some seconds.
const BANDWIDTH: &str = "32Mi";
const FILLED_MIB: u64 = 32;
/// How many combinations are tried unless told otherwise: one of every fault.
const FEW: usize = FAULTS.len();
/// From a fault to the end of its move. The longest wait is the tunnel's for a peer that does not answer.
const SETTLED: Duration = Duration::from_mins(4);
/// Of the certificate that expires: long enough for a handler to come up with it, and for a move to begin.
const LIFE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    SourceHandler,
    TargetHandler,
    TargetLauncher,
    TargetQemu,
    Controllers,
    Network,
    /// A handler's pod goes, and there is no address for the one that comes in its place. An address that is given back rests.
    FullPool,
    /// That of the source's handler, and no other is to be had.
    Certificate,
    /// The handlers of both sides are told to stop, as by a roll-out: no fault at all, for they wait.
    HandlersStop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    Pending,
    Scheduling,
    Scheduled,
    PreparingTarget,
    TargetReady,
    Running,
    /// Some time in the seconds from the first page to the last, and a little after.
    SwitchOver,
}

const FAULTS: [Fault; 9] = [
    Fault::SourceHandler,
    Fault::TargetHandler,
    Fault::TargetLauncher,
    Fault::TargetQemu,
    Fault::Controllers,
    Fault::Network,
    Fault::FullPool,
    Fault::Certificate,
    Fault::HandlersStop,
];
const MOMENTS: [Moment; 7] = [
    Moment::Pending,
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

    /// In the order that they are tried in: one of every fault, then the others.
    fn drawn(random: &mut fastrand::Rng) -> Vec<Self> {
        let mut all = Self::all();
        random.shuffle(&mut all);
        let is_first = |place: usize| all[..place].iter().all(|before| before.fault != all[place].fault);
        let (first, others): (Vec<usize>, _) = (0..all.len()).partition(|place| is_first(*place));
        first.into_iter().chain(others).map(|place| all[place]).collect()
    }

    /// What is not there yet cannot die.
    fn can_be(self) -> bool {
        match self.fault {
            Fault::TargetHandler => self.moment >= Moment::Scheduling,
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
    let mut order = Combination::drawn(&mut random);
    if let Ok(part) = std::env::var("GODWIT_FAULT") {
        order.retain(|combination| combination.to_string().contains(&part));
    }
    assert!(!order.is_empty(), "GODWIT_FAULT names none");
    order.truncate(count);

    let lab = Installation::with_traveller_in(SPEC);
    // An address for each handler, and one that is free until a pool is to be full.
    let few = json!({ "range_start": "198.51.100.11", "range_end": "198.51.100.14", "rest_seconds": 10 });
    lab.apply(&network_to_move_on("moving", "eth2", &few));
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
    for (round, combination) in order.into_iter().enumerate() {
        let begun = Instant::now();
        let name = format!("round-{round}");
        begin_anew(&lab);
        let patient = count > FEW;
        let migration = move_with(&lab, &name, combination, patient, &mut random);
        mend(&lab, combination.fault);
        let state = &migration["status"]["migrationState"];
        println!(
            "{round}: {combination}: {} {} after {:.1?}",
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
            lab.request_until_admitted(&again);
            let migration = settled(&lab, &again);
            assert_eq!(migration["status"]["phase"], "Succeeded", "{migration:#}\n{}", lab.describe());
            guest.is_well(&lab, &watch);
        }
    }
    println!("longest silence: {:.1?}", listener.silence());
}

/// Puts new pods in the place of those whose containers have died often: the kubelet would wait ever longer before it starts them.
fn begin_anew(lab: &Installation) {
    let pods = lab.objects(Kind::Pod, KUBEVIRT);
    for pod in &pods {
        if pod["status"]["containerStatuses"][0]["restartCount"].as_u64() > Some(1) {
            let name = pod["metadata"]["name"].as_str().unwrap();
            lab.in_installation(&["delete", "pod", name, "--timeout=60s"]);
            lab.ready_on("kubevirt/moving");
        }
    }
}

/// Moves the guest, does the fault at its moment, and waits for the end of both.
fn move_with(
    lab: &Installation,
    name: &str,
    combination: Combination,
    patient: bool,
    random: &mut fastrand::Rng,
) -> Value {
    let source = lab.node_of("traveller");
    let mut expiry = Instant::now();
    match combination.fault {
        // That it is full is felt by the next pod that needs an address.
        Fault::FullPool => {
            lab.apply(&squatter(lab.tools_image()));
            lab.in_installation(&["wait", "--for=condition=Ready", "pod/squatter", "--timeout=60s"]);
        }
        Fault::Certificate => expiry = last_certificate(lab, &source),
        _ => {}
    }
    lab.request_until_admitted(name);
    until_moment(lab, name, combination.moment);
    thread::sleep(combination.delay(random));
    // At the switch-over it may come a little late; else it meets a move that is under way.
    let in_time = !is_over(lab, name);
    assert!(in_time || combination.moment == Moment::SwitchOver, "{combination} came too late");
    match combination.fault {
        Fault::SourceHandler => lab.end_handler(&source, Signal::Kill),
        Fault::TargetHandler => {
            let Some(target) = target_of(lab, name) else { return settled(lab, name) };
            lab.end_handler(&target, Signal::Kill);
        }
        Fault::HandlersStop => {
            let Some(target) = target_of(lab, name) else { return settled(lab, name) };
            lab.end_handler(&source, Signal::Terminate);
            lab.end_handler(&target, Signal::Terminate);
        }
        Fault::TargetLauncher | Fault::TargetQemu => {
            let Some(target) = target_of(lab, name) else { return settled(lab, name) };
            let job = format!("kubevirt.io/migrationJobUID={}", uid_of(lab, name));
            let process =
                if combination.fault == Fault::TargetQemu { "qemu-system" } else { "virt-launcher" };
            // The phase may be seen before the process has started.
            lab.until_it_is(&format!("{combination}: there is a process to kill"), SETTLED, || {
                lab.end(&target, "default", &job, process, Signal::Kill) > 0 || is_over(lab, name)
            });
        }
        Fault::Controllers => signal_controllers(lab, Signal::Kill),
        Fault::FullPool => {
            let Some(target) = target_of(lab, name) else { return settled(lab, name) };
            let node = if random.bool() { &source } else { &target };
            let handler = lab.handler(node).name;
            lab.end_handler(node, Signal::Kill);
            lab.in_installation(&["delete", "pod", &handler, "--grace-period=0", "--force"]);
        }
        Fault::Certificate => {
            // Until then nothing goes on, neither the phases nor the guest's memory.
            signal_all(lab, Signal::Stop);
            thread::sleep(expiry.saturating_duration_since(Instant::now()));
            println!("expired while it is {}", lab.migration(name)["status"]["phase"]);
            signal_all(lab, Signal::Continue);
        }
        Fault::Network => {
            lab.set_connected(&source, "moving", false);
            // Shorter than the tunnel's patience; or longer, for those who have the time.
            let healed = if random.u8(..4) == 0 && patient { 90_000 } else { random.u64(1000..8000) };
            thread::sleep(Duration::from_millis(healed));
            lab.set_connected(&source, "moving", true);
        }
    }
    settled(lab, name)
}

/// Takes away what a fault left behind that would not go by itself.
fn mend(lab: &Installation, fault: Fault) {
    match fault {
        Fault::FullPool => {
            lab.in_installation(&["delete", "pod", "squatter", "--timeout=60s"]);
        }
        Fault::Certificate => {
            lab.kubectl_ok(&["delete", "validatingwebhookconfiguration", "no-requests"]);
            lab.certificates_live(None);
        }
        _ => return,
    }
    lab.ready_on("kubevirt/moving");
}

/// Gives the handler of a node a certificate that will not be followed by another, and says when it expires.
fn last_certificate(lab: &Installation, node: &str) -> Instant {
    lab.certificates_live(Some(LIFE));
    let before = lab.certificates_of(node);
    // The next one asks for a certificate.
    lab.end_handler(node, Signal::Kill);
    lab.until_it_is("it has a new one", SETTLED, || lab.certificates_of(node) > before);
    let expiry = Instant::now() + LIFE;
    lab.apply(NO_REQUESTS);
    lab.ready_on("kubevirt/moving");
    expiry
}

fn signal_all(lab: &Installation, signal: Signal) {
    signal_controllers(lab, signal);
    for node in NODES {
        lab.end_handler(node, signal);
    }
}

fn signal_controllers(lab: &Installation, signal: Signal) {
    let on = |node| lab.end(node, "kubevirt", "kubevirt.io=virt-controller", "godwit", signal);
    assert!(NODES.into_iter().map(on).sum::<usize>() > 0, "there is no controller\n{}", lab.describe());
}

/// Waits until the move has come so far, or is over.
fn until_moment(lab: &Installation, name: &str, moment: Moment) {
    let path = r"jsonpath={.status.phase}{'\n'}";
    let mut watch = lab.kubectl_command(&["get", "vmim", name, "-w", "-o", path]);
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let way = ["Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running"];
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
fn target_of(lab: &Installation, name: &str) -> Option<String> {
    let job = format!("kubevirt.io/migrationJobUID={}", uid_of(lab, name));
    lab.until("the target has a node", SETTLED, || {
        let pods = lab.selected(Kind::Pod, VMS, &job, "");
        let node = pods.iter().find_map(|pod| Some(pod["spec"]["nodeName"].as_str()?.to_owned()));
        (is_over(lab, name) || node.is_some()).then_some(node)
    })
}

fn uid_of(lab: &Installation, name: &str) -> String {
    lab.migration(name)["metadata"]["uid"].as_str().unwrap().to_owned()
}

fn is_over(lab: &Installation, name: &str) -> bool {
    matches!(lab.migration(name)["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Waits for the end of a move, whatever it is.
fn settled(lab: &Installation, name: &str) -> Value {
    lab.until("the move is over", SETTLED, || is_over(lab, name).then(|| lab.migration(name)))
}
