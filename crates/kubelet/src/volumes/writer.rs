//! Publishes the files of a volume so that readers see all of the old ones or all of the new ones.
//!
//! ```text
//!   volume/name      -> ..data/name        what readers open
//!   volume/..data    -> ..0123456789abcdef switched by one rename
//!   volume/..0123456789abcdef/name         the files
//! ```
//!
//! It is the layout that programs for Kubernetes watch: they wait for `..data` to change.
//!
//! Invariant: `..data` leads to a whole set of files, or is not there. What a killed writer left is removed by the next.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::payload::{File, Payload};

const DATA: &str = "..data";
const NEXT: &str = "..data_next";

/// Makes the volume hold these files and no others; whether that changed anything. `group` may read them.
pub(super) fn publish(volume: &Path, payload: &Payload, group: Option<u32>) -> io::Result<bool> {
    let wanted = readable_by(payload, group);
    fs::create_dir_all(volume)?;
    let current = fs::read_link(volume.join(DATA)).ok();
    let changed = match &current {
        Some(set) => read(&volume.join(set))? != wanted,
        None => true,
    };
    let current = if changed { Some(switch(volume, &wanted, group)?) } else { current };
    link_names(volume, &wanted)?;
    remove_others(volume, current.as_deref())?;
    Ok(changed)
}

/// A group that volumes belong to can read what is in them.
fn readable_by(payload: &Payload, group: Option<u32>) -> BTreeMap<PathBuf, File> {
    let extra = if group.is_some() { 0o440 } else { 0 };
    let file = |file: &File| File { mode: file.mode | extra, content: file.content.clone() };
    payload.iter().map(|(path, content)| (path.into(), file(content))).collect()
}

/// Writes the files to a directory of their own and makes it the current one.
fn switch(volume: &Path, files: &BTreeMap<PathBuf, File>, group: Option<u32>) -> io::Result<PathBuf> {
    let set = PathBuf::from(format!("..{:016x}", fastrand::u64(..)));
    let directory = volume.join(&set);
    fs::create_dir(&directory)?;
    for (path, file) in files {
        let path = directory.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        written.write_all(&file.content)?;
        if group.is_some() {
            std::os::unix::fs::fchown(&written, None, group)?;
        }
        written.set_permissions(fs::Permissions::from_mode(file.mode))?;
    }
    let next = volume.join(NEXT);
    remove(&next)?;
    symlink(&set, &next)?;
    fs::rename(&next, volume.join(DATA))?;
    Ok(set)
}

/// The names that readers know: the first part of every path.
fn link_names(volume: &Path, files: &BTreeMap<PathBuf, File>) -> io::Result<()> {
    for name in names(files) {
        let (link, target) = (volume.join(&name), Path::new(DATA).join(&name));
        if fs::read_link(&link).ok().as_ref() != Some(&target) {
            remove(&link)?;
            symlink(&target, &link)?;
        }
    }
    let wanted = names(files);
    for entry in fs::read_dir(volume)? {
        let name = entry?.file_name();
        if !name.as_encoded_bytes().starts_with(b"..") && !wanted.contains(&name) {
            remove(&volume.join(name))?;
        }
    }
    Ok(())
}

fn names(files: &BTreeMap<PathBuf, File>) -> BTreeSet<OsString> {
    files.keys().filter_map(|path| Some(path.components().next()?.as_os_str().to_owned())).collect()
}

/// Removes sets of files that are not the current one.
fn remove_others(volume: &Path, current: Option<&Path>) -> io::Result<()> {
    for entry in fs::read_dir(volume)? {
        let name = entry?.file_name();
        let is_set = name.as_encoded_bytes().starts_with(b"..") && name != DATA;
        if is_set && current != Some(Path::new(&name)) {
            remove(&volume.join(name))?;
        }
    }
    Ok(())
}

/// The files of a set, by path.
fn read(set: &Path) -> io::Result<BTreeMap<PathBuf, File>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        let entries = match fs::read_dir(set.join(&directory)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let path = directory.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                directories.push(path);
            } else {
                let mode = entry.metadata()?.permissions().mode() & 0o7777;
                found.insert(path, File { mode, content: fs::read(entry.path())? });
            }
        }
    }
    Ok(found)
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says what it expects")]
    use std::sync::atomic::{AtomicBool, Ordering};

    use proptest::prelude::*;

    use super::*;

    fn payload(files: &[(&str, &str)]) -> Payload {
        let file = |content: &str| File { mode: 0o644, content: content.into() };
        files.iter().map(|(path, content)| ((*path).to_owned(), file(content))).collect()
    }

    fn visible(volume: &Path) -> Vec<String> {
        let names = fs::read_dir(volume).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| !name.starts_with("..")).collect();
        names.sort();
        names
    }

    #[test]
    fn files_appear_change_and_go() {
        let directory = tempfile::tempdir().unwrap();
        let volume = directory.path().join("volume");
        assert!(publish(&volume, &payload(&[("a", "1"), ("sub/b", "2")]), None).unwrap());
        assert!(!publish(&volume, &payload(&[("a", "1"), ("sub/b", "2")]), None).unwrap());
        assert_eq!(visible(&volume), ["a", "sub"]);
        assert_eq!(fs::read_to_string(volume.join("sub/b")).unwrap(), "2");
        let first = fs::read_link(volume.join("..data")).unwrap();
        assert!(publish(&volume, &payload(&[("a", "3"), ("c", "4")]), None).unwrap());
        assert_eq!(visible(&volume), ["a", "c"]);
        assert_eq!(fs::read_to_string(volume.join("a")).unwrap(), "3");
        assert!(!volume.join(first).exists());
        assert!(publish(&volume, &Payload::new(), None).unwrap());
        assert!(visible(&volume).is_empty());
    }

    #[test]
    fn modes_are_exact_and_a_group_can_read() {
        let directory = tempfile::tempdir().unwrap();
        let secret = Payload::from([("key".to_owned(), File { mode: 0o400, content: vec![] })]);
        let mode = |group| {
            publish(directory.path(), &secret, group).unwrap();
            fs::metadata(directory.path().join("key")).unwrap().permissions().mode() & 0o7777
        };
        assert_eq!(mode(None), 0o400);
        assert_eq!(mode(Some(107)), 0o440);
        let found = fs::metadata(directory.path().join("key")).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::gid(&found), 107);
    }

    #[test]
    fn a_reader_never_sees_half_a_set() {
        let directory = tempfile::tempdir().unwrap();
        let volume = directory.path();
        let set = |number: u32| {
            let text = number.to_string().repeat(5000);
            payload(&[("a", &text), ("b", &text)])
        };
        publish(volume, &set(0), None).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut seen = BTreeSet::new();
                while !done.load(Ordering::Relaxed) {
                    // A set that was just replaced may be gone before it is read: the reader looks again.
                    let Ok(current) = fs::canonicalize(volume.join("..data")) else { continue };
                    let both = (fs::read(current.join("a")), fs::read(current.join("b")));
                    if let (Ok(a), Ok(b)) = both {
                        assert_eq!(a, b);
                        seen.insert(a[0]);
                    }
                }
                seen.len()
            });
            for number in 0..500 {
                publish(volume, &set(number % 7), None).unwrap();
            }
            done.store(true, Ordering::Relaxed);
            assert!(reader.join().unwrap() > 1, "the reader saw changes");
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn whatever_was_there_becomes_what_is_wanted(
            before in proptest::collection::btree_map("[ab]/[cd]|[efg]", "[xy]{0,3}", 0..5),
            after in proptest::collection::btree_map("[ab]/[cd]|[efg]", "[xy]{0,3}", 0..5),
            debris in proptest::collection::vec("(\\.\\.)?[a-h]", 0..3),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let files = |map: &BTreeMap<String, String>| {
                payload(&map.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect::<Vec<_>>())
            };
            publish(directory.path(), &files(&before), None).unwrap();
            for name in debris {
                // What is there already stays.
                let _ = fs::create_dir(directory.path().join(name));
            }
            let changed = publish(directory.path(), &files(&after), None).unwrap();
            prop_assert_eq!(changed, before != after);
            let mut tops: Vec<_> =
                after.keys().map(|path| path.split('/').next().unwrap().to_owned()).collect();
            tops.dedup();
            prop_assert_eq!(visible(directory.path()), tops);
            for (path, text) in &after {
                prop_assert_eq!(&fs::read_to_string(directory.path().join(path)).unwrap(), text);
            }
            prop_assert!(!publish(directory.path(), &files(&after), None).unwrap());
        }
    }
}
