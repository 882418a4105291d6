//! A pod's row: one word for the state of all its containers.
//!
//! The rules are the real server's: the first init container that is not done speaks for the pod, then the
//! first container that is waiting or has ended; a pod that is being deleted is Terminating whatever they say.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age as since, list, number, or_none, text};
use crate::object::{is_being_deleted, name};

/// What the containers' states add up to.
#[derive(Default)]
struct Tally<'a> {
    ready: usize,
    restarts: i64,
    /// When a container last ended before it was started again.
    last_restart: Option<&'a Value>,
    reason: String,
}

impl<'a> Tally<'a> {
    fn restarted(&mut self, container: &'a Value) {
        self.restarts += number(&container["restartCount"]);
        let finished = &container["lastState"]["terminated"]["finishedAt"];
        // RFC 3339 in UTC sorts as text.
        if finished.is_string() && self.last_restart.is_none_or(|known| text(known) < text(finished)) {
            self.last_restart = Some(finished);
        }
    }
}

pub fn cells(pod: &Value, age: Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let sidecars = list(&spec["initContainers"]).iter().filter(|c| c["restartPolicy"] == "Always");
    let total = list(&spec["containers"]).len() + sidecars.count();
    let tally = tally(spec, status);

    let phase = text(&status["phase"]);
    let reason = match (is_being_deleted(pod), text(&status["reason"])) {
        (true, "NodeLost") => "Unknown",
        (true, _) if phase != "Succeeded" && phase != "Failed" => "Terminating",
        _ => &tally.reason,
    };
    let restarts = match tally.last_restart {
        Some(last) if tally.restarts > 0 => format!("{} ({} ago)", tally.restarts, since(last, now)),
        _ => tally.restarts.to_string(),
    };
    let gates = list(&spec["readinessGates"]);
    let open = gates.iter().filter(|gate| is_true(status, text(&gate["conditionType"])));
    let gates = match gates.len() {
        0 => "<none>".to_owned(),
        all => format!("{}/{all}", open.count()),
    };
    vec![
        json!(name(pod)),
        json!(format!("{}/{total}", tally.ready)),
        json!(reason),
        json!(restarts),
        age,
        json!(or_none(text(&status["podIPs"][0]["ip"]))),
        json!(or_none(text(&spec["nodeName"]))),
        json!(or_none(text(&status["nominatedNodeName"]))),
        json!(gates),
    ]
}

fn is_true(status: &Value, condition: &str) -> bool {
    let mut conditions = list(&status["conditions"]).iter();
    conditions.any(|c| c["type"] == condition && c["status"] == "True")
}

fn tally<'a>(spec: &Value, status: &'a Value) -> Tally<'a> {
    let mut all = Tally {
        reason: [text(&status["reason"]), text(&status["phase"])]
            .into_iter()
            .find(|said| !said.is_empty())
            .unwrap_or_default()
            .to_owned(),
        ..Tally::default()
    };
    let gated = |c: &Value| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated";
    if list(&status["conditions"]).iter().any(gated) {
        "SchedulingGated".clone_into(&mut all.reason);
    }

    // Restarts of init containers count until they are done; those of sidecars always.
    let mut sidecars = Tally::default();
    let initializing = init_containers(spec, status, &mut all, &mut sidecars);
    if initializing && !is_true(status, "Initialized") {
        return all;
    }
    all.restarts = sidecars.restarts;
    all.last_restart = sidecars.last_restart;
    let mut running = false;
    for container in list(&status["containerStatuses"]).iter().rev() {
        all.restarted(container);
        let state = &container["state"];
        let (waiting, terminated) = (text(&state["waiting"]["reason"]), &state["terminated"]);
        if !waiting.is_empty() {
            waiting.clone_into(&mut all.reason);
        } else if terminated.is_object() {
            all.reason = ended(terminated);
        } else if container["ready"] == true && state["running"].is_object() {
            running = true;
            all.ready += 1;
        }
    }
    if all.reason == "Completed" && running {
        let now = if is_true(status, "Ready") { "Running" } else { "NotReady" };
        now.clone_into(&mut all.reason);
    }
    all
}

/// Whether an init container is still at it, or failed; the reason then says so.
fn init_containers<'a>(
    spec: &Value,
    status: &'a Value,
    all: &mut Tally<'a>,
    sidecars: &mut Tally<'a>,
) -> bool {
    let specs = list(&spec["initContainers"]);
    for (index, container) in list(&status["initContainerStatuses"]).iter().enumerate() {
        all.restarted(container);
        let mut found = specs.iter().filter(|c| c["name"] == container["name"]);
        let sidecar = found.any(|c| c["restartPolicy"] == "Always");
        if sidecar {
            sidecars.restarted(container);
        }
        let (waiting, terminated) = (&container["state"]["waiting"], &container["state"]["terminated"]);
        if terminated.is_object() && number(&terminated["exitCode"]) == 0 {
            continue;
        }
        if sidecar && container["started"] == true {
            all.ready += usize::from(container["ready"] == true);
            continue;
        }
        let reason = text(&waiting["reason"]);
        all.reason = if terminated.is_object() {
            format!("Init:{}", ended(terminated))
        } else if !reason.is_empty() && reason != "PodInitializing" {
            format!("Init:{reason}")
        } else {
            format!("Init:{index}/{}", specs.len())
        };
        return true;
    }
    false
}

/// Why a container ended.
fn ended(terminated: &Value) -> String {
    match (text(&terminated["reason"]), number(&terminated["signal"])) {
        ("", 0) => format!("ExitCode:{}", number(&terminated["exitCode"])),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}
