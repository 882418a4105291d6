//! Named namespaces, guards, and threads inside them.

use std::os::unix::fs::MetadataExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;

use net::{Error, Handle, Namespace};

use crate::fixture::{Fixture, ask};

fn inode(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().ino()
}

fn own() -> u64 {
    inode(Path::new("/proc/thread-self/ns/net"))
}

#[test]
fn a_namespace_is_made_listed_opened_and_deleted() {
    let fixture = Fixture::new();
    assert_eq!(fixture.namespaces.list().unwrap(), Vec::<String>::new());
    let made = fixture.namespace("b");
    fixture.namespace("a");
    assert_eq!(fixture.namespaces.list().unwrap(), ["a", "b"]);
    assert_eq!(inode(fixture.namespaces.open("b").unwrap().path()), inode(made.path()));
    assert_ne!(inode(made.path()), own());
    assert_eq!(ask(&made, "ip -j link show dev lo")[0]["operstate"], "DOWN");

    assert!(fixture.namespaces.create("a").unwrap_err().is_already_exists());
    assert!(fixture.namespaces.delete_if_exists("a").unwrap());
    assert!(!fixture.namespaces.delete_if_exists("a").unwrap());
    assert!(fixture.namespaces.delete("a").unwrap_err().is_not_found());
    assert!(fixture.namespaces.open("a").unwrap_err().is_not_found());
    assert_eq!(fixture.namespaces.list().unwrap(), ["b"]);
}

#[test]
fn a_namespace_that_another_tool_made_is_ours_too() {
    let fixture = Fixture::new();
    fixture.namespace("a");
    let path = fixture.namespaces.directory().join("theirs");
    std::fs::write(&path, "").unwrap();
    let made = Command::new("unshare").arg(format!("--net={}", path.display())).arg("true").status().unwrap();
    assert!(made.success());
    assert_eq!(fixture.namespaces.list().unwrap(), ["a", "theirs"]);
    let theirs = fixture.namespaces.ensure("theirs").unwrap();
    assert_eq!(theirs.run(own).unwrap(), inode(&path));
    fixture.namespaces.delete("theirs").unwrap();
    assert!(!path.exists());
}

#[test]
fn names_lead_nowhere_else() {
    let fixture = Fixture::new();
    for name in ["", ".", "..", "../a", "a/b", "/a", "a\0"] {
        assert!(matches!(fixture.namespaces.create(name), Err(Error::Invalid { .. })), "{name:?}");
        assert!(matches!(fixture.namespaces.delete_if_exists(name), Err(Error::Invalid { .. })), "{name:?}");
    }
}

#[test]
fn what_a_killed_creation_left_is_made_good_or_deleted() {
    let fixture = Fixture::new();
    fixture.namespace("a");
    for name in ["half", "other"] {
        std::fs::write(fixture.namespaces.directory().join(name), "").unwrap();
    }
    let error = fixture.namespaces.open("half").unwrap_err();
    assert!(!error.is_not_found() && !error.is_already_exists(), "{error}");
    assert!(fixture.namespaces.create("half").unwrap_err().is_already_exists());
    let half = fixture.namespaces.ensure("half").unwrap();
    assert_eq!(half.run(own).unwrap(), inode(half.path()));
    assert!(fixture.namespaces.delete_if_exists("other").unwrap());
}

#[test]
fn many_may_ensure_one_namespace_at_once() {
    let fixture = Fixture::new();
    let inodes: Vec<u64> = std::thread::scope(|scope| {
        let ensure = || inode(fixture.namespaces.ensure("a").unwrap().path());
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(ensure)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(inodes.iter().all(|inode| *inode == inodes[0]), "{inodes:?}");
    assert_eq!(fixture.namespaces.list().unwrap(), ["a"]);
}

#[test]
fn a_guard_deletes_on_drop_on_close_and_on_panic_but_not_when_told_to_keep() {
    let fixture = Fixture::new();
    drop(fixture.namespaces.create_guarded("dropped").unwrap());
    fixture.namespaces.create_guarded("closed").unwrap().close().unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let guard = fixture.namespaces.create_guarded("panicked").unwrap();
        assert_eq!(guard.name(), "someone else", "this panic is wanted");
    }));
    assert!(panicked.is_err());
    fixture.namespaces.create_guarded("kept").unwrap().keep();
    assert_eq!(fixture.namespaces.list().unwrap(), ["kept"]);
}

#[test]
fn work_runs_inside_and_the_caller_stays_outside() {
    let fixture = Fixture::new();
    let namespace = fixture.namespace("a");
    let before = own();
    assert_eq!(namespace.run(own).unwrap(), inode(namespace.path()));
    assert_eq!(own(), before);
    let panic = catch_unwind(AssertUnwindSafe(|| namespace.run(|| panic!("this panic is wanted"))));
    assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"this panic is wanted"));
    assert_eq!(own(), before);

    let within = namespace.run(|| Namespace::current().unwrap()).unwrap();
    assert_eq!(within.run(own).unwrap(), inode(namespace.path()));
    let mut child = namespace.run(|| Command::new("sleep").arg("60").spawn().unwrap()).unwrap();
    let of_child = Namespace::of_process(child.id()).and_then(|namespace| namespace.run(own));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(of_child.unwrap(), inode(namespace.path()));
}

#[test]
fn a_handle_needs_a_runtime_and_says_so() {
    let fixture = Fixture::new();
    let error = Handle::open(&fixture.namespace("a")).unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
}

#[tokio::test]
async fn a_namespace_ends_when_its_last_holder_is_dropped() {
    let fixture = Fixture::new();
    let (a, b) = fixture.pair().await;
    // The other end of a veth pair goes with the namespace of the first: that is how its end is seen.
    fixture.namespaces.delete("a").unwrap();
    assert!(b.find_link("eth0").await.unwrap().is_some(), "the handle still holds it");
    drop(a);
    for _ in 0..1000 {
        if b.find_link("eth0").await.unwrap().is_none() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("waited 10 s in vain for the namespace to end");
}

#[tokio::test]
async fn two_directories_with_the_same_names_do_not_disturb_each_other() {
    let (one, other) = (Fixture::new(), Fixture::new());
    let ((a, _b), (c, _d)) = tokio::join!(one.pair(), other.pair());
    a.delete_link("eth0").await.unwrap();
    assert!(a.find_link("eth0").await.unwrap().is_none());
    assert!(c.find_link("eth0").await.unwrap().is_some());
    one.namespaces.delete_all().unwrap();
    assert!(!one.directory().join("netns").exists());
    assert_eq!(other.namespaces.list().unwrap(), ["a", "b"]);
}
