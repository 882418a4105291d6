//! What is taken over.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use serde_json::{Value, json};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn pod(probes: bool, statuses: &Value) -> Pod {
    let mut container = json!({ "name": "main", "image": "host" });
    if probes {
        container["readinessProbe"] = json!({ "exec": { "command": ["true"] } });
        container["startupProbe"] = json!({ "exec": { "command": ["true"] } });
    }
    let pod = json!({
        "metadata": { "name": "p", "uid": "u" },
        "spec": { "containers": [container] },
        "status": { "containerStatuses": statuses },
    });
    serde_json::from_value(pod).unwrap()
}

fn trace(attempt: u32, state: State) -> (ContainerId, State) {
    (ContainerId { pod: "u".into(), container: "main".into(), attempt }, state)
}

fn exit(code: i32, finished: i64) -> Exit {
    Exit { code, started: at(finished - 1), finished: at(finished), reason: "Error".into() }
}

fn main(pod: &Pod, traces: Vec<(ContainerId, State)>) -> Container {
    adopt(pod, traces, at(1_000)).remove("main").unwrap_or_default()
}

#[test]
fn a_container_that_runs_goes_on_with_its_count() {
    let running = State::Running { pid: 7, started: at(900) };
    let traces = vec![trace(3, running), trace(2, State::Exited(exit(1, 800)))];
    let container = main(&pod(false, &json!([])), traces);
    assert_eq!(container.attempt, Some(3));
    assert_eq!(container.run, Run::Running { since: at(900) });
    assert_eq!(container.previous, Some(exit(1, 800)));
    assert!(container.started && container.ready, "it has no probes to pass");
}

#[test]
fn probes_that_had_passed_are_not_asked_to_pass_again() {
    let traces = || vec![trace(0, State::Running { pid: 7, started: at(900) })];
    let passed = json!([{ "name": "main", "ready": true, "started": true, "restartCount": 0, "image": "", "imageID": "" }]);
    let container = main(&pod(true, &passed), traces());
    assert!(container.started && container.ready);
    let container = main(&pod(true, &json!([])), traces());
    assert!(!container.started && !container.ready);
}

#[test]
fn what_ended_meanwhile_has_ended() {
    let container = main(&pod(false, &json!([])), vec![trace(1, State::Exited(exit(2, 800)))]);
    assert_eq!((container.attempt, container.run.clone()), (Some(1), Run::Ended(exit(2, 800))));
    assert_eq!(container.next_attempt(), 2);
    assert_eq!(container.delay().as_secs(), 10, "its second end in a row");
}

#[test]
fn a_start_that_was_cut_off_is_made_again() {
    let container = main(&pod(false, &json!([])), vec![trace(4, State::Created)]);
    assert_eq!((container.run.clone(), container.next_attempt()), (Run::Never, 4));
}

#[test]
fn without_a_trace_the_api_is_believed() {
    let status = |state: Value, last: Value| json!([{ "name": "main", "ready": true, "restartCount": 2, "image": "", "imageID": "", "state": state, "lastState": last }]);
    let end = json!({ "terminated": { "exitCode": 5, "reason": "Error",
        "startedAt": "1970-01-01T00:10:00Z", "finishedAt": "1970-01-01T00:11:00Z" } });
    let running = json!({ "running": { "startedAt": "1970-01-01T00:10:00Z" } });
    let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff" } });

    let container = main(&pod(false, &status(end.clone(), json!({}))), Vec::new());
    assert_eq!(container.exit().unwrap().code, 5);
    let container = main(&pod(false, &status(running, json!({}))), Vec::new());
    let lost = container.exit().unwrap();
    assert_eq!((lost.code, lost.reason.as_str(), lost.finished), (137, "ContainerStatusUnknown", at(1_000)));
    assert_eq!(container.next_attempt(), 3);
    let container = main(&pod(false, &status(waiting.clone(), end)), Vec::new());
    assert_eq!((container.exit().unwrap().code, container.next_attempt()), (5, 3));
    let container = main(&pod(false, &status(waiting, json!({}))), Vec::new());
    assert_eq!(container, Container::default(), "it was never started");
}
