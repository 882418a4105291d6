//! The store's promises: what is committed stays, in order, and can be looked back at as far as the history reaches.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use proptest::prelude::*;
use serde_json::json;

use super::*;

const PLACE: &str = "birds";

fn write(key: &str, expect: Expect, change: fn(Value) -> Desired, value: Value) -> Write {
    Write { place: PLACE.into(), key: key.into(), expect, change: change(value) }
}

async fn put(store: &Store, key: &str, eggs: u64) -> Arc<Stored> {
    let expect =
        store.view().get(PLACE, key).map_or(Expect::Absent, |stored| Expect::Revision(stored.revision));
    let value = json!({ "metadata": { "name": key, "labels": { "eggs": eggs.to_string() } }, "eggs": eggs });
    store.commit(write(key, expect, Desired::Put, value)).await.unwrap()
}

async fn delete(store: &Store, key: &str) {
    let view = store.view();
    let stored = view.get(PLACE, key).unwrap();
    let gone = write(key, Expect::Revision(stored.revision), Desired::Delete, stored.value());
    store.commit(gone).await.unwrap();
}

fn eggs(view: &View) -> BTreeMap<String, u64> {
    view.scan(PLACE, "", "")
        .map(|stored| (stored.key.to_string(), stored.value()["eggs"].as_u64().unwrap()))
        .collect()
}

fn history(store: &Store, after: u64) -> Result<Vec<(u64, Change)>, TooOld> {
    let events = store.feed(&PLACE.into()).after(after, u64::MAX, usize::MAX)?;
    Ok(events.iter().map(|event| (event.revision, event.change)).collect())
}

#[tokio::test]
async fn a_write_is_made_only_on_what_was_expected() {
    let store = Store::memory(10).unwrap();
    let first = put(&store, "godwit", 1).await;
    let again = store.commit(write("godwit", Expect::Absent, Desired::Put, json!({}))).await;
    assert!(
        matches!(again, Err(WriteError::Changed { current: Some(current) }) if current.revision == first.revision)
    );
    put(&store, "godwit", 2).await;
    let stale =
        store.commit(write("godwit", Expect::Revision(first.revision), Desired::Put, json!({}))).await;
    assert!(matches!(stale, Err(WriteError::Changed { current: Some(_) })));
    let nobody = store.commit(write("dodo", Expect::Revision(1), Desired::Delete, json!({}))).await;
    assert!(matches!(nobody, Err(WriteError::Changed { current: None })));
    assert_eq!(store.view().revision, 2);
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_restart_with_its_history() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let store = Store::open(&path, 3).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "secrets are in it");
    for eggs in 1..=4 {
        put(&store, "godwit", eggs).await;
    }
    put(&store, "knot", 1).await;
    delete(&store, "knot").await;
    let before = (store.view().revision, eggs(&store.view()), history(&store, 3));
    assert_eq!(before.2, Ok(vec![(4, Change::Modified), (5, Change::Added), (6, Change::Deleted)]));
    assert_eq!(history(&store, 2), Err(TooOld { trimmed: 3 }));
    drop(store);
    let store = reopen(&path, 3).await;
    assert_eq!((store.view().revision, eggs(&store.view()), history(&store, 3)), before);
    assert_eq!(history(&store, 2), Err(TooOld { trimmed: 3 }), "what was forgotten stays forgotten");
    assert_eq!(put(&store, "knot", 2).await.revision, 7, "revisions go on where they were");
}

/// The file is free once the writer's thread has ended, which it does soon after the last handle is gone.
async fn reopen(path: &Path, history: usize) -> Store {
    let opened = async {
        loop {
            match Store::open(path, history) {
                Ok(store) => return store,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), opened).await.expect("the file is let go of")
}

#[tokio::test]
async fn many_writers_share_one_order() {
    let store = Store::memory(1000).unwrap();
    let writers = (0..200_u64).map(|index| {
        let store = store.clone();
        async move { put(&store, &format!("bird-{index:03}"), index).await.revision }
    });
    let mut revisions = futures::future::join_all(writers).await;
    revisions.sort_unstable();
    assert_eq!(revisions, (1..=200).collect::<Vec<_>>());
    let events = history(&store, 0).unwrap();
    assert!(events.iter().map(|(revision, _)| *revision).eq(1..=200), "one event each, in order");
    assert_eq!(eggs(&store.view()).len(), 200);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every state that the history reaches can be looked at again, and is what it was.
    #[test]
    fn the_past_is_as_it_was(steps in proptest::collection::vec((0..4_usize, 0..100_u64, any::<bool>()), 1..40), kept in 1..50_usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = Store::memory(kept).unwrap();
            let mut past = vec![BTreeMap::new()];
            for (bird, eggs, leaves) in steps {
                let key = ["avocet", "dunlin", "godwit", "knot"][bird];
                let mut state: BTreeMap<String, u64> = past.last().cloned().unwrap_or_default();
                if leaves && state.remove(key).is_some() {
                    delete(&store, key).await;
                } else {
                    put(&store, key, eggs).await;
                    state.insert(key.to_owned(), eggs);
                }
                past.push(state);
            }
            let newest = past.len() - 1;
            for (revision, state) in past.iter().enumerate() {
                match store.view_at(&PLACE.into(), revision as u64) {
                    Ok(view) => prop_assert_eq!(&eggs(&view), state),
                    Err(_) => prop_assert!(newest - revision > kept, "revision {} of {} is kept", revision, newest),
                }
            }
            Ok(())
        })?;
    }
}
