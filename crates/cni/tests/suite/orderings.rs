//! The order of plugins, and what follows from each of their failures.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cni::{AttachmentRequest, Error, ExecError, Network, Stage};
use proptest::prelude::*;
use serde_json::json;

use crate::{
    fake::{Call, Fake, refused, succeeded},
    sandbox::network,
};

fn chain(version: &str) -> Network {
    network("chain", version, &["a", "b", "c"].map(|name| json!({ "type": name })))
}

/// In our own namespace, which is there; the fake does not touch it.
fn request() -> AttachmentRequest {
    AttachmentRequest::new("pod", "/proc/self/ns/net", "eth0")
}

fn fails_on(
    operation: &'static str,
    plugin: &'static str,
) -> impl Fn(&Call) -> Result<cni::Output, ExecError> {
    move |call| {
        let hit = call.operation == operation && call.plugin == plugin;
        Ok(if hit { refused(100) } else { succeeded(call) })
    }
}

#[tokio::test]
async fn forwards_to_attach_and_check_backwards_to_detach() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::obedient();
    let runtime = fake.runtime(directory.path());
    runtime.add(&chain("1.0.0"), &request()).await.unwrap();
    let calls = fake.calls();
    assert_eq!(calls[0].input.get("prevResult"), None);
    assert_eq!(calls[2].input["prevResult"]["interfaces"], json!([{ "name": "a" }, { "name": "b" }]));
    assert_eq!(calls[2].input["prevResult"]["x-own"], "a", "what we do not know is passed on");
    assert_eq!(fake.take(), ["ADD a", "ADD b", "ADD c"]);
    runtime.add(&chain("1.0.0"), &request()).await.unwrap();
    assert!(
        fake.calls().iter().all(|call| call.input["prevResult"]["interfaces"].as_array().unwrap().len() == 3)
    );
    assert_eq!(fake.take(), ["CHECK a", "CHECK b", "CHECK c"]);
    runtime.del(&chain("1.0.0"), &request()).await.unwrap();
    assert!(
        fake.calls().iter().all(|call| call.input["prevResult"]["interfaces"].as_array().unwrap().len() == 3)
    );
    assert_eq!(fake.take(), ["DEL c", "DEL b", "DEL a"]);
}

#[tokio::test]
async fn no_check_where_there_is_none() {
    let mut disabled = chain("1.0.0").to_value();
    disabled["disableCheck"] = json!("true");
    for network in [chain("0.3.1"), cni::parse(disabled.to_string().as_bytes()).unwrap()] {
        let directory = tempfile::tempdir().unwrap();
        let fake = Fake::obedient();
        let runtime = fake.runtime(directory.path());
        let first = runtime.add(&network, &request()).await.unwrap();
        assert_eq!(fake.take(), ["ADD a", "ADD b", "ADD c"]);
        assert_eq!(runtime.add(&network, &request()).await.unwrap(), first);
        assert_eq!(fake.take(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_failed_add_undoes_what_ran_and_only_that() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::new(fails_on("ADD", "b"));
    let runtime = fake.runtime(directory.path());
    assert!(
        matches!(runtime.add(&chain("1.0.0"), &request()).await, Err(Error::Add { rollback, .. }) if rollback.is_empty())
    );
    assert_eq!(fake.take(), ["ADD a", "ADD b", "DEL b", "DEL a"]);
    assert!(runtime.list().is_empty());
}

#[tokio::test]
async fn a_plugin_that_never_ran_is_not_undone() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::new(|call| match (call.operation.as_str(), call.plugin.as_str()) {
        ("ADD", "b") => Err(ExecError::Missing { path: "/fake".to_owned() }),
        _ => Ok(succeeded(call)),
    });
    let runtime = fake.runtime(directory.path());
    runtime.add(&chain("1.0.0"), &request()).await.unwrap_err();
    assert_eq!(fake.take(), ["ADD a", "ADD b", "DEL a"]);
}

#[tokio::test]
async fn what_cannot_be_undone_stays_in_the_journal_and_is_undone_before_the_next_add() {
    let directory = tempfile::tempdir().unwrap();
    let broken = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&broken);
    let fake = Fake::new(move |call| {
        let hit = matches!((call.operation.as_str(), call.plugin.as_str()), ("ADD", "c") | ("DEL", "a"));
        Ok(if hit && switch.load(Ordering::Relaxed) { refused(100) } else { succeeded(call) })
    });
    let runtime = fake.runtime(directory.path());
    let failed = runtime.add(&chain("1.0.0"), &request()).await.unwrap_err();
    assert!(matches!(&failed, Error::Add { rollback, .. } if rollback.len() == 1), "{failed:?}");
    assert_eq!(runtime.list()[0].stage, Stage::Adding);
    assert_eq!(runtime.list()[0].attachment(), None);
    fake.take();
    broken.store(false, Ordering::Relaxed);
    runtime.add(&chain("1.0.0"), &request()).await.unwrap();
    assert_eq!(fake.take(), ["DEL c", "DEL b", "DEL a", "ADD a", "ADD b", "ADD c"]);
}

#[tokio::test]
async fn detaching_goes_on_past_errors_and_reports_them_all() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::new(|call| {
        Ok(if call.operation == "DEL" && call.plugin != "b" { refused(100) } else { succeeded(call) })
    });
    let runtime = fake.runtime(directory.path());
    runtime.add(&chain("0.4.0"), &request()).await.unwrap();
    fake.take();
    let failed = runtime.del(&chain("0.4.0"), &request()).await.unwrap_err();
    assert_eq!(fake.take(), ["DEL c", "DEL b", "DEL a"]);
    assert!(matches!(&failed, Error::Del { failures, .. } if failures.len() == 2), "{failed:?}");
    // Half undone is not attached, whatever CHECK would say; also for who comes after us.
    assert_eq!(runtime.list()[0].stage, Stage::Detaching);
    drop(runtime);
    let fake = Fake::obedient();
    let runtime = fake.runtime(directory.path());
    runtime.add(&chain("0.4.0"), &request()).await.unwrap();
    assert_eq!(fake.take(), ["DEL c", "DEL b", "DEL a", "ADD a", "ADD b", "ADD c"]);
}

#[tokio::test]
async fn an_unknown_container_is_nothing_to_undo() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::new(|call| Ok(if call.operation == "DEL" { refused(3) } else { succeeded(call) }));
    let runtime = fake.runtime(directory.path());
    runtime.add(&chain("1.0.0"), &request()).await.unwrap();
    runtime.del(&chain("1.0.0"), &request()).await.unwrap();
    assert!(runtime.list().is_empty());
}

/// With the namespace gone, a plugin's last word ends it; one that could not be run, or asks for patience, is asked again.
#[tokio::test]
async fn a_gone_namespace_ends_it_once_every_plugin_has_spoken() {
    type Answer = fn() -> Result<cni::Output, ExecError>;
    let answers: [(Answer, bool); 3] = [
        (|| Ok(refused(100)), true),
        (|| Ok(refused(11)), false),
        (|| Err(ExecError::Timeout { after: Duration::from_secs(1) }), false),
    ];
    for (answer, forgotten) in answers {
        let directory = tempfile::tempdir().unwrap();
        let namespace = directory.path().join("namespace");
        std::fs::write(&namespace, "").unwrap();
        let fake = Fake::new(move |call| match (call.operation.as_str(), call.plugin.as_str()) {
            ("DEL", "b") => answer(),
            _ => Ok(succeeded(call)),
        });
        let runtime = fake.runtime(&directory.path().join("journal"));
        let request = AttachmentRequest::new("pod", &namespace, "eth0");
        runtime.add(&chain("1.0.0"), &request).await.unwrap();
        std::fs::remove_file(&namespace).unwrap();
        fake.take();
        assert_eq!(runtime.del(&chain("1.0.0"), &request).await.is_ok(), forgotten);
        assert!(
            fake.calls().iter().all(|call| call.namespace.is_empty()),
            "no path to a namespace that is gone"
        );
        assert_eq!(runtime.list().is_empty(), forgotten);
    }
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_leave_half_a_chain() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::obedient();
    let runtime = fake.runtime(directory.path());
    let (network, request) = (chain("1.0.0"), request());
    let gone = tokio::time::timeout(Duration::ZERO, runtime.add(&network, &request)).await;
    assert!(gone.is_err());
    // The next operation on the interface waits for the first to end.
    runtime.del(&network, &request).await.unwrap();
    assert_eq!(fake.take(), ["ADD a", "ADD b", "ADD c", "DEL c", "DEL b", "DEL a"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_operation_at_a_time_on_an_interface_many_on_others() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::obedient();
    let runtime = fake.runtime(directory.path());
    let mut running = tokio::task::JoinSet::new();
    for round in 0..40 {
        let runtime = runtime.clone();
        running.spawn(async move {
            let container = format!("pod{}", round % 4);
            let request = AttachmentRequest::new(&container, "/proc/self/ns/net", "eth0");
            if round % 3 == 2 {
                runtime.del(&chain("1.0.0"), &request).await.map(drop)
            } else {
                runtime.add(&chain("1.0.0"), &request).await.map(drop)
            }
        });
    }
    // The fake panics if two meet, which ends the operation as interrupted.
    running.join_all().await.into_iter().collect::<Result<Vec<()>, _>>().unwrap();
}

#[tokio::test]
async fn requests_that_no_plugin_can_be_given_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::obedient();
    let runtime = fake.runtime(directory.path());
    let bad = [
        AttachmentRequest::new("", "/n", "eth0"),
        AttachmentRequest::new("-a", "/n", "eth0"),
        AttachmentRequest::new("a/b", "/n", "eth0"),
        AttachmentRequest::new("a", "n", "eth0"),
        AttachmentRequest::new("a", "/n\0", "eth0"),
        AttachmentRequest::new("a", "/n", "a-name-that-is-too-long"),
        AttachmentRequest::new("a", "/n", "a/b"),
        AttachmentRequest::new("a", "/n", "eth0").with_arg("A", "b;CNI=c"),
        AttachmentRequest::new("a", "/n", "eth0").with_arg("", "b"),
    ];
    for request in bad {
        assert!(
            matches!(runtime.add(&chain("1.0.0"), &request).await, Err(Error::Request { .. })),
            "{request:?}"
        );
    }
    let nowhere = AttachmentRequest::new("a", Path::new("/no/such/namespace"), "eth0");
    assert!(matches!(runtime.add(&chain("1.0.0"), &nowhere).await, Err(Error::Namespace { .. })));
    assert_eq!(fake.take(), Vec::<String>::new());
}

/// Whatever fails, in whatever order: nothing that ran is forgotten.
#[derive(Clone, Copy, Debug)]
enum Step {
    Add,
    Del,
    Restart,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_a_plugin_made_is_in_the_journal_until_it_is_undone(
        steps in prop::collection::vec((prop::sample::select(vec![Step::Add, Step::Del, Step::Restart]), any::<u16>()), 1..12)
    ) {
        let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        rt.block_on(async {
            let directory = tempfile::tempdir().unwrap();
            let made = Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::<String>::new()));
            let luck = Arc::new(std::sync::atomic::AtomicU16::new(0));
            let (world, coin) = (Arc::clone(&made), Arc::clone(&luck));
            let fake = Fake::new(move |call| {
                let bits = coin.load(Ordering::Relaxed);
                coin.store(bits.rotate_right(1), Ordering::Relaxed);
                let fails = bits & 5 == 5;
                match call.operation.as_str() {
                    // A plugin that fails may have made something all the same.
                    "ADD" => _ = world.lock().unwrap().insert(call.plugin.clone()),
                    "DEL" if !fails => _ = world.lock().unwrap().remove(&call.plugin),
                    _ => {}
                }
                Ok(if fails { refused(100) } else { succeeded(call) })
            });
            let mut runtime = fake.runtime(directory.path());
            for (step, bits) in steps {
                luck.store(bits, Ordering::Relaxed);
                let added = match step {
                    Step::Add => runtime.add(&chain("1.0.0"), &request()).await.is_ok(),
                    Step::Del => { drop(runtime.del(&chain("1.0.0"), &request()).await); false }
                    Step::Restart => { drop(runtime); runtime = fake.runtime(directory.path()); false }
                };
                let made: Vec<String> = made.lock().unwrap().iter().cloned().collect();
                let known = runtime.list();
                assert!(!known.is_empty() || made.is_empty(), "{made:?} is made and forgotten");
                if added || known.first().is_some_and(|entry| entry.stage == Stage::Attached) {
                    assert_eq!(made, ["a", "b", "c"]);
                }
            }
        });
    }
}
