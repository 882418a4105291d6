//! The journal as files: what is there before a result is, what is set aside, and that nobody shares it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use cni::{AttachmentRequest, Journal, JournalError, Network, Stage};
use serde_json::{Value, json};

use crate::{
    fake::{Fake, succeeded},
    sandbox::{Node, network},
};

fn entries(directory: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(directory).unwrap().flatten().map(|file| file.path());
    files.filter(|path| path.extension().is_some_and(|ending| ending == "json")).collect()
}

/// Leaves an entry of an attachment that had begun when its runtime died.
pub async fn write_adding(node: &Node, network: &Network, request: &AttachmentRequest) {
    let runtime = Fake::obedient().runtime(&node.journal());
    runtime.add(network, request).await.unwrap();
    drop(runtime);
    let path = entries(&node.journal()).remove(0);
    let mut entry: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    (entry["stage"], entry["result"]) = (json!("adding"), Value::Null);
    fs::write(path, entry.to_string()).unwrap();
}

fn net() -> Network {
    network("net", "1.0.0", &[json!({ "type": "a" })])
}

fn of(container: &str) -> AttachmentRequest {
    AttachmentRequest::new(container, "/proc/self/ns/net", "eth0")
}

#[tokio::test]
async fn an_entry_is_on_disk_before_a_plugin_runs_and_before_a_result_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let watched = directory.path().to_owned();
    let stage = move || -> Value {
        let file = fs::read(entries(&watched).remove(0)).unwrap();
        serde_json::from_slice::<Value>(&file).unwrap()["stage"].clone()
    };
    let seen = stage.clone();
    let fake = Fake::new(move |call| {
        match call.operation.as_str() {
            "ADD" => assert_eq!(seen(), "adding"),
            "DEL" => assert_eq!(seen(), "detaching"),
            _ => {}
        }
        Ok(succeeded(call))
    });
    let runtime = fake.runtime(directory.path());
    runtime.add(&net(), &of("pod")).await.unwrap();
    assert_eq!(stage(), "attached");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&entries(directory.path())[0]), 0o600);
    runtime.del(&net(), &of("pod")).await.unwrap();
    assert_eq!(entries(directory.path()), Vec::<PathBuf>::new());
    assert!(fs::read_dir(directory.path()).unwrap().flatten().all(|file| !file.path().ends_with(".partial")));
}

#[tokio::test]
async fn what_cannot_be_recorded_is_undone() {
    let directory = tempfile::tempdir().unwrap();
    let blocked = directory.path().to_owned();
    // While the plugin runs, a directory takes the place of the file that the result would be written through.
    let fake = Fake::new(move |call| {
        if call.operation == "ADD" {
            fs::create_dir(entries(&blocked).remove(0).with_extension("partial")).unwrap();
        }
        Ok(succeeded(call))
    });
    let runtime = fake.runtime(directory.path());
    let error = runtime.add(&net(), &of("pod")).await.unwrap_err();
    assert!(matches!(error, cni::Error::Record { .. }), "{error:?}");
    assert_eq!(fake.take(), ["ADD a", "DEL a"]);
    assert!(runtime.list().is_empty());
}

#[tokio::test]
async fn what_is_there_is_read_back_whole() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = Fake::obedient().runtime(directory.path());
    let mut request = of("pod").with_arg("K", "v");
    request.capabilities = cni::Capabilities::new().with("dns", json!({ "servers": ["192.0.2.1"] }));
    request.cni_args.insert("a".to_owned(), json!([1]));
    runtime.add(&net(), &request).await.unwrap();
    let before = runtime.list();
    drop(runtime);
    let after = Journal::open(directory.path()).unwrap().journal.list();
    assert_eq!(after.len(), 1);
    assert_eq!((&after[0].request, &after[0].network), (&before[0].request, &before[0].network));
    assert_eq!((after[0].stage, after[0].attachment()), (Stage::Attached, before[0].attachment()));
}

#[tokio::test]
async fn corrupt_entries_are_set_aside_and_reported_every_time() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = Fake::obedient().runtime(directory.path());
    for container in ["cut", "moved", "young", "whole"] {
        runtime.add(&net(), &of(container)).await.unwrap();
    }
    drop(runtime);
    let holding = |container: &str| {
        let is_it = |path: &PathBuf| fs::read_to_string(path).unwrap().contains(&format!("\"{container}\""));
        entries(directory.path()).into_iter().find(is_it).unwrap()
    };
    let cut = holding("cut");
    let content = fs::read(&cut).unwrap();
    fs::write(&cut, &content[..content.len() / 2]).unwrap();
    fs::rename(holding("moved"), directory.path().join("0123.json")).unwrap();
    let young = holding("young");
    fs::write(&young, fs::read_to_string(&young).unwrap().replace("\"form\": 1", "\"form\": 2")).unwrap();
    fs::write(directory.path().join("left.partial"), "{").unwrap();

    let opened = Journal::open(directory.path()).unwrap();
    assert_eq!(opened.set_aside.len(), 3, "{:?}", opened.set_aside);
    assert!(opened.set_aside.iter().all(|aside| aside.path.exists() && !aside.cause.is_empty()));
    assert_eq!(opened.journal.list().len(), 1);
    assert_eq!(entries(directory.path()).len(), 1);
    assert!(!directory.path().join("left.partial").exists());
    drop(opened);
    let again = Journal::open(directory.path()).unwrap();
    assert_eq!(again.set_aside.len(), 3, "what was set aside is not forgotten");
}

#[test]
fn one_process_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let first = Journal::open(directory.path()).unwrap();
    assert!(matches!(Journal::open(directory.path()), Err(JournalError::InUse { .. })));
    drop(first);
    Journal::open(directory.path()).unwrap();
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    /// Whatever a file holds: the journal opens, and the file is an entry or set aside.
    #[test]
    fn any_file_is_read_or_set_aside(content: Vec<u8>) {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("0.json"), &content).unwrap();
        let opened = Journal::open(directory.path()).unwrap();
        assert_eq!(fs::read(&opened.set_aside[0].path).unwrap(), content);
    }
}
