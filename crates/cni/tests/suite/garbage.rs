//! Garbage collection: what is taken, what is spared, and what plugins are told.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use cni::{AttachmentId, AttachmentRequest, Network};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::{
    fake::{Fake, refused, succeeded},
    sandbox::{Namespace, Node, network, request},
};

fn plain(version: &str) -> Network {
    network("net", version, &[json!({ "type": "a" }), json!({ "type": "b" })])
}

fn of(container: &str) -> AttachmentRequest {
    AttachmentRequest::new(container, "/proc/self/ns/net", "eth0")
}

fn valid(containers: &[&str]) -> BTreeSet<AttachmentId> {
    containers.iter().map(|container| AttachmentId::new(container, "eth0")).collect()
}

#[tokio::test]
async fn pods_that_are_gone_give_their_addresses_back() {
    let (node, stays, goes) = (Node::new(), Namespace::new("stays"), Namespace::new("goes"));
    let network = node.bridged("garbage", "10.78.0.0/24", &[]);
    let runtime = node.runtime();
    for pod in [&stays, &goes] {
        runtime.add(&network, &request(pod, "eth0")).await.unwrap();
    }
    drop(runtime);
    goes.delete();
    let runtime = node.runtime();
    let mark = runtime.gc_mark();
    let collected = runtime.gc(&network, &valid(&[&stays.name]), mark).await;
    assert!(collected.failures.is_empty(), "{:?}", collected.failures);
    assert_eq!(collected.detached.len(), 1);
    assert_eq!(node.leases("garbage"), stays.addresses("eth0"));
    assert_eq!((runtime.list().len(), node.journal_files()), (1, 1));
}

#[tokio::test]
async fn plugins_of_1_1_are_told_what_is_valid_and_older_ones_are_not_asked() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::new(|call| {
        let old = call.operation == "VERSION" && call.plugin == "b";
        let versions = json!({ "supportedVersions": ["1.0.0"] }).to_string().into_bytes();
        Ok(if old {
            cni::Output { code: Some(0), stdout: versions, ..Default::default() }
        } else {
            succeeded(call)
        })
    });
    let runtime = fake.runtime(directory.path());
    for container in ["kept", "lost"] {
        runtime.add(&plain("1.1.0"), &of(container)).await.unwrap();
    }
    fake.take();
    let collected =
        runtime.gc(&plain("1.1.0"), &valid(&["kept", "of-another-runtime"]), runtime.gc_mark()).await;
    assert!(collected.failures.is_empty());
    let told = fake.calls().into_iter().find(|call| call.operation == "GC").unwrap();
    let attachments = json!([{ "containerID": "kept", "ifname": "eth0" },
        { "containerID": "of-another-runtime", "ifname": "eth0" }]);
    assert_eq!(told.input["cni.dev/valid-attachments"], attachments);
    assert_eq!((told.container.as_str(), told.namespace.as_str()), ("", ""));
    assert_eq!(fake.take(), ["DEL b", "DEL a", "VERSION a", "GC a", "VERSION b"]);
    assert_eq!(runtime.list().len(), 1);
}

#[tokio::test]
async fn older_networks_and_disabled_collection_only_detach() {
    let mut disabled = plain("1.1.0").to_value();
    disabled["disableGC"] = json!(true);
    for network in [plain("1.0.0"), cni::parse(disabled.to_string().as_bytes()).unwrap()] {
        let directory = tempfile::tempdir().unwrap();
        let fake = Fake::obedient();
        let runtime = fake.runtime(directory.path());
        runtime.add(&network, &of("lost")).await.unwrap();
        fake.take();
        runtime.gc(&network, &valid(&[]), runtime.gc_mark()).await;
        assert_eq!(fake.take(), ["DEL b", "DEL a"]);
    }
}

#[tokio::test]
async fn what_began_after_the_look_is_spared_by_us_and_by_plugins() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::obedient();
    let runtime = fake.runtime(directory.path());
    runtime.add(&plain("1.1.0"), &of("old")).await.unwrap();
    let mark = runtime.gc_mark();
    let seen = valid(&[]);
    runtime.add(&plain("1.1.0"), &of("new")).await.unwrap();
    let collected = runtime.gc(&plain("1.1.0"), &seen, mark).await;
    assert_eq!(collected.detached.len(), 1);
    assert_eq!(runtime.list()[0].key().container_id, "new");
    let told = fake.calls().into_iter().find(|call| call.operation == "GC").unwrap();
    assert_eq!(told.input["cni.dev/valid-attachments"], json!([{ "containerID": "new", "ifname": "eth0" }]));
}

#[tokio::test]
async fn one_failure_does_not_stop_the_rest_and_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::new(|call| {
        Ok(if call.operation == "DEL" && call.container == "first" { refused(100) } else { succeeded(call) })
    });
    let runtime = fake.runtime(directory.path());
    for container in ["first", "second"] {
        runtime.add(&plain("1.0.0"), &of(container)).await.unwrap();
    }
    // Of any network.
    let collected = runtime.collect(&valid(&[]), runtime.gc_mark()).await;
    assert_eq!((collected.detached.len(), collected.failures.len()), (1, 1));
    assert_eq!(runtime.list()[0].key().container_id, "first");
    drop(runtime);
    let runtime = Fake::obedient().runtime(directory.path());
    assert_eq!(runtime.collect(&valid(&[]), runtime.gc_mark()).await.detached.len(), 1);
    assert!(runtime.list().is_empty());
}

#[tokio::test]
async fn status_is_asked_where_it_is_spoken() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::new(|call| Ok(if call.operation == "STATUS" { refused(50) } else { succeeded(call) }));
    let runtime = fake.runtime(directory.path());
    runtime.status(&plain("1.0.0")).await.unwrap();
    let error = runtime.status(&plain("1.1.0")).await.unwrap_err();
    let cni::Error::Status { source, .. } = &error else { panic!("{error:?}") };
    assert_eq!(source.refusal().unwrap().code, cni::Refusal::NOT_AVAILABLE);
    let unspoken = runtime.status(&plain("0.3.1")).await.unwrap_err();
    assert!(
        crate::sandbox::whole(&unspoken)
            .contains("it speaks 0.4.0, 1.0.0, 1.1.0, and the network is of version 0.3.1")
    );
}

#[tokio::test]
async fn plugins_collect_only_while_nobody_attaches_to_their_network() {
    let directory = tempfile::tempdir().unwrap();
    let permits = Arc::new(Semaphore::new(0));
    let fake = Fake::obedient().holding("ADD a", &permits);
    let runtime = fake.runtime(directory.path());
    let adding = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.add(&plain("1.1.0"), &of("new")).await }
    });
    while fake.calls().is_empty() {
        tokio::task::yield_now().await;
    }
    // Plugins are not told anything before the attachment is done, however long we wait.
    let (network, none, mark) = (plain("1.1.0"), valid(&[]), cni::GcMark::default());
    let mut collecting = Box::pin(runtime.gc(&network, &none, mark));
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut collecting).await.is_err());
    assert_eq!(fake.take(), ["ADD a"]);
    permits.add_permits(1);
    assert!(collecting.await.failures.is_empty());
    adding.await.unwrap().unwrap();
    assert_eq!(fake.take(), ["ADD b", "VERSION a", "GC a", "VERSION b", "GC b"]);
}
