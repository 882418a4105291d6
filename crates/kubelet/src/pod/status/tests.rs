//! Statuses, by example.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use serde_json::{Value, json};

use super::*;
use crate::pod::seen::Refusal;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn exit(code: i32) -> Exit {
    let reason = if code == 0 { "Completed" } else { "Error" };
    Exit { code, started: at(600), finished: at(700), reason: reason.to_owned() }
}

fn running() -> Container {
    Container {
        attempt: Some(0),
        run: Run::Running { since: at(600) },
        started: true,
        ready: true,
        ..Container::default()
    }
}

fn ended(code: i32) -> Container {
    Container { attempt: Some(0), run: Run::Ended(exit(code)), streak: 1, ..Container::default() }
}

struct Case {
    pod: Value,
    seen: Seen,
}

impl Case {
    fn new(containers: &[(&str, Container)]) -> Self {
        let mut seen = Seen::new(at(0));
        (seen.sandbox, seen.sandbox_since) = (Setup::Ready, Some(at(500)));
        seen.containers =
            containers.iter().map(|(name, container)| ((*name).to_owned(), container.clone())).collect();
        let pod = json!({
            "metadata": { "name": "p", "namespace": "n", "uid": "u", "generation": 3 },
            "spec": { "containers": [{ "name": "main", "image": "host" }] },
        });
        Self { pod, seen }
    }

    fn pod(&self) -> Pod {
        serde_json::from_value(self.pod.clone()).unwrap()
    }

    fn status(&self) -> PodStatus {
        let pod = self.pod();
        let messages = |_: &str, attempt: u32| (attempt == 0).then(|| "last words".to_owned());
        let (host, addresses) = (["192.0.2.1".parse().unwrap()], ["10.0.0.7".parse().unwrap()]);
        Sight {
            pod: &pod,
            plan: &Plan::of(&pod, false),
            seen: &self.seen,
            host: &host,
            addresses: &addresses,
            messages: &messages,
            now: at(1_000),
        }
        .status()
    }

    fn main(&self) -> ContainerStatus {
        self.status().container_statuses.unwrap().remove(0)
    }

    fn condition(&self, name: &str) -> (String, String) {
        let conditions = self.status().conditions.unwrap().into_iter();
        let found = conditions.into_iter().find(|condition| condition.type_ == name).unwrap();
        (found.status, found.reason.unwrap_or_default())
    }
}

fn reason(status: &ContainerStatus) -> String {
    status.state.clone().unwrap().waiting.unwrap().reason.unwrap()
}

#[test]
fn phases_follow_containers() {
    let policy = |case: &mut Case, policy: &str| case.pod["spec"]["restartPolicy"] = json!(policy);
    for (restart, container, expected) in [
        ("Always", Container::default(), "Pending"),
        ("Always", running(), "Running"),
        ("Always", ended(0), "Running"),
        ("OnFailure", ended(1), "Running"),
        ("OnFailure", ended(0), "Succeeded"),
        ("Never", ended(0), "Succeeded"),
        ("Never", ended(1), "Failed"),
    ] {
        let mut case = Case::new(&[("main", container)]);
        policy(&mut case, restart);
        assert_eq!(case.status().phase.unwrap(), expected, "{restart}");
    }
}

#[test]
fn a_pod_that_ends_is_not_running_any_more() {
    let mut case = Case::new(&[("main", ended(143))]);
    case.pod["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:15:00Z");
    assert_eq!(case.status().phase.unwrap(), "Failed");
    assert!(case.main().state.unwrap().terminated.is_some());
    case.seen.containers.insert("main".into(), running());
    assert_eq!(case.status().phase.unwrap(), "Running");
}

#[test]
fn a_running_container_says_since_when_and_what_was_before() {
    let case = Case::new(&[("main", Container { attempt: Some(1), previous: Some(exit(2)), ..running() })]);
    let main = case.main();
    assert_eq!(main.state.unwrap().running.unwrap().started_at.unwrap().0, at(600));
    let last = main.last_state.unwrap().terminated.unwrap();
    assert_eq!((last.exit_code, last.message.as_deref()), (2, Some("last words")));
    assert_eq!((main.restart_count, main.ready, main.started), (1, true, Some(true)));
    assert_eq!(main.container_id.as_deref(), Some("runc://u_main_1"));
    assert_eq!(case.condition("Ready"), ("True".into(), String::new()));
    let status = case.status();
    assert_eq!((status.pod_ip.as_deref(), status.host_ip.as_deref()), (Some("10.0.0.7"), Some("192.0.2.1")));
    assert_eq!(status.observed_generation, Some(3));
}

#[test]
fn a_container_that_waits_says_for_what() {
    let crashed = Container { streak: 3, ..ended(1) };
    let case = Case::new(&[("main", crashed)]);
    let main = case.main();
    assert_eq!(reason(&main), "CrashLoopBackOff");
    assert_eq!(main.last_state.unwrap().terminated.unwrap().exit_code, 1);
    assert_eq!(case.condition("ContainersReady"), ("False".into(), "ContainersNotReady".into()));

    let refusal = Refusal { reason: "ErrImageNeverPull", message: "no".into(), until: at(0) };
    let refused = Container { attempt: Some(0), run: Run::Refused(refusal), ..Container::default() };
    let main = Case::new(&[("main", refused)]).main();
    assert_eq!((reason(&main).as_str(), main.container_id), ("ErrImageNeverPull", None));

    assert_eq!(reason(&Case::new(&[]).main()), "ContainerCreating");
    let mut case = Case::new(&[]);
    case.pod["spec"]["initContainers"] =
        json!([{ "name": "one", "image": "host" }, { "name": "two", "image": "host" }]);
    assert_eq!(reason(&case.main()), "PodInitializing");
    let init = case.status().init_container_statuses.unwrap();
    assert_eq!(
        (reason(&init[0]).as_str(), reason(&init[1]).as_str()),
        ("ContainerCreating", "PodInitializing")
    );
    assert_eq!(case.condition("Initialized"), ("False".into(), "ContainersNotInitialized".into()));
}

#[test]
fn readiness_gates_hold_the_pod_back() {
    let mut case = Case::new(&[("main", running())]);
    case.pod["spec"]["readinessGates"] = json!([{ "conditionType": "theirs" }]);
    assert_eq!(case.condition("ContainersReady").0, "True");
    assert_eq!(case.condition("Ready"), ("False".into(), "ReadinessGatesNotReady".into()));
    case.pod["status"] = json!({ "conditions": [{ "type": "theirs", "status": "True" }] });
    assert_eq!(case.condition("Ready").0, "True");
    assert_eq!(case.condition("theirs").0, "True", "what others say stays");
}

#[test]
fn a_deadline_is_named() {
    let mut case = Case::new(&[("main", ended(143))]);
    case.pod["spec"]["activeDeadlineSeconds"] = json!(10);
    case.pod["status"] = json!({ "startTime": "1970-01-01T00:00:00Z" });
    let status = case.status();
    assert_eq!(
        (status.phase.as_deref(), status.reason.as_deref()),
        (Some("Failed"), Some("DeadlineExceeded"))
    );
}

#[test]
fn only_what_changed_is_written() {
    let mut case = Case::new(&[("main", running())]);
    let wanted = case.status();
    let change = patch(&case.pod(), &wanted).unwrap().unwrap();
    assert_eq!(change["metadata"]["uid"], "u");
    assert_eq!(change["status"]["podIPs"], json!([{ "$patch": "replace" }, { "ip": "10.0.0.7" }]));

    case.pod["status"] = serde_json::to_value(&wanted).unwrap();
    assert_eq!(patch(&case.pod(), &case.status()).unwrap(), None, "nothing changed, not even a time");

    let unready = Container { ready: false, ..running() };
    case.seen.containers.insert("main".into(), unready);
    let change = patch(&case.pod(), &case.status()).unwrap().unwrap();
    let changed: Vec<&String> = change["status"].as_object().unwrap().keys().collect();
    assert_eq!(changed, ["conditions", "containerStatuses"]);
    assert_eq!(change["status"]["conditions"].as_array().unwrap().len(), 2, "Ready and ContainersReady");

    case.pod["status"] = serde_json::to_value(case.status()).unwrap();
    case.seen.containers.insert("main".into(), running());
    let change = patch(&case.pod(), &case.status()).unwrap().unwrap();
    assert_eq!(
        change["status"]["conditions"][0]["message"],
        Value::Null,
        "what no longer holds is taken back"
    );
    assert!(change["status"]["conditions"][0].as_object().unwrap().contains_key("message"));
}
