//! What a killed process leaves, and who may have a file.
#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

use super::*;

fn record(container: &str, addresses: &[&str]) -> Record {
    let held = |address: &&str| Held {
        address: address.parse().unwrap(),
        prefix_length: 24,
        uid: None,
        resource_version: None,
    };
    Record {
        container: container.into(),
        interface: "net1".into(),
        name: "blue".into(),
        network: "shared".into(),
        owner: AddressOwner::default(),
        addresses: addresses.iter().map(held).collect(),
        rest_seconds: 60,
    }
}

fn whose(container: &str) -> Whose<'_> {
    Whose { pod_uid: "uid", container, interface: "net1" }
}

fn journal() -> (tempfile::TempDir, Journal) {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::new(directory.path().join("not/yet/there"));
    (directory, journal)
}

#[test]
fn the_last_whole_line_counts() {
    let (_directory, journal) = journal();
    let mut entry = journal.open(&whose("a")).unwrap();
    assert_eq!(entry.record, None);
    entry.note(record("a", &["10.0.0.1"])).unwrap();
    entry.note(record("a", &["10.0.0.2"])).unwrap();
    let path = entry.path.clone();
    drop(entry);
    // Killed in the middle of a third.
    let mut text = fs::read(&path).unwrap();
    text.extend_from_slice(br#"{"container":"a","inter"#);
    fs::write(&path, &text).unwrap();
    let mut entry = journal.open(&whose("a")).unwrap();
    assert_eq!(entry.record, Some(record("a", &["10.0.0.2"])));
    entry.note(record("a", &["10.0.0.3"])).unwrap();
    drop(entry);
    assert_eq!(journal.find("a", "net1").unwrap().unwrap().record, Some(record("a", &["10.0.0.3"])));
}

#[test]
fn nonsense_is_nothing_and_does_no_harm() {
    let (_directory, journal) = journal();
    let path = journal.open(&whose("a")).unwrap().path.clone();
    for text in ["", "\n", "\n\n", "{}\n", "\0\0\0", "null\n"] {
        fs::write(&path, text).unwrap();
        assert_eq!(journal.open(&whose("a")).unwrap().record, None, "{text:?}");
    }
}

#[test]
fn what_was_released_is_held_again_when_its_container_asks() {
    let (_directory, journal) = journal();
    let mut entry = journal.open(&whose("a")).unwrap();
    entry.note(record("a", &["10.0.0.1"])).unwrap();
    entry.release().unwrap();
    drop(entry);
    assert_eq!(journal.released().unwrap().len(), 1);
    let entry = journal.open(&whose("a")).unwrap();
    assert_eq!(entry.record, Some(record("a", &["10.0.0.1"])));
    assert!(journal.released().unwrap().is_empty());
    entry.remove().unwrap();
    assert!(journal.find("a", "net1").unwrap().is_none());
}

#[test]
fn a_file_that_is_worked_on_is_passed_over_and_one_that_went_is_none() {
    let (_directory, journal) = journal();
    let entry = journal.open(&whose("a")).unwrap();
    let path = entry.path.clone();
    assert!(Entry::try_lock(&path).unwrap().is_none());
    entry.remove().unwrap();
    assert!(Entry::try_lock(&path).unwrap().is_none());
    assert!(Entry::lock(&path, false).unwrap().is_none());
}

#[test]
fn a_restarted_sandbox_finds_its_predecessor_and_nobody_else() {
    let (_directory, journal) = journal();
    journal.open(&whose("old")).unwrap().note(record("old", &["10.0.0.1"])).unwrap();
    let other = Whose { pod_uid: "another", container: "x", interface: "net1" };
    journal.open(&other).unwrap().note(record("x", &["10.0.0.2"])).unwrap();
    let second = Whose { pod_uid: "uid", container: "old", interface: "net2" };
    journal.open(&second).unwrap().note(record("old", &["10.0.0.3"])).unwrap();
    assert_eq!(journal.predecessors(&whose("new")).unwrap(), [record("old", &["10.0.0.1"])]);
    assert_eq!(journal.predecessors(&whose("old")).unwrap(), []);
}
