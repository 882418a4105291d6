//! The processes of a lab, as the machine sees them.
//!
//! The lab's own run the lab's copy of the program, and are known by that file. All others are below them.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;

use serde::Serialize;

use crate::{Error, Lab};

/// A process of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    /// What it is, in the lab's words, or its command.
    pub role: String,
    /// The node that it runs on; none: on the fabric or outside.
    pub node: Option<String>,
}

/// What `/proc` says of one process.
struct Entry {
    parent: i32,
    command: Vec<String>,
    ours: bool,
}

/// Every process of the lab, parents before their children.
pub fn list(lab: &Lab) -> Result<Vec<Process>, Error> {
    let program = std::fs::metadata(lab.program()).map(|program| (program.dev(), program.ino())).ok();
    let mut entries = BTreeMap::new();
    let listing = std::fs::read_dir("/proc").map_err(Error::file("listing", "/proc".as_ref()))?;
    for pid in listing.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        // A process that ends while we look is not there.
        entries.extend(look(pid, program).map(|entry| (pid, entry)));
    }
    let mut found = Vec::new();
    let tops = entries
        .iter()
        .filter(|(_, entry)| {
            entry.ours && !entries.get(&entry.parent).is_some_and(|parent| parent.ours && is_internal(parent))
        })
        .filter(|(_, entry)| is_internal(entry));
    for (pid, _) in tops {
        descend(*pid, None, &entries, &mut found);
    }
    Ok(found)
}

/// A person's own `godwit lab …` runs the same file, if they call the lab's copy; it is no part of the lab.
fn is_internal(entry: &Entry) -> bool {
    entry.command.get(1).is_some_and(|word| word == "lab")
        && entry.command.get(2).is_some_and(|word| word == "internal")
}

fn descend(pid: i32, node: Option<&str>, entries: &BTreeMap<i32, Entry>, found: &mut Vec<Process>) {
    let Some(entry) = entries.get(&pid) else { return };
    let (role, own_node) = role(entry);
    let node = own_node.or_else(|| node.map(str::to_owned));
    found.push(Process { pid, parent: entry.parent, role, node: node.clone() });
    for child in entries.iter().filter(|(_, child)| child.parent == pid).map(|(child, _)| *child) {
        descend(child, node.as_deref(), entries, found);
    }
}

/// What a process is, and the node that begins with it.
fn role(entry: &Entry) -> (String, Option<String>) {
    let words: Vec<_> = entry.command.iter().map(String::as_str).collect();
    match words.as_slice() {
        [_, "lab", "internal", "node-init", _, node, ..] => ("node init".into(), Some((*node).to_owned())),
        [_, "lab", "internal", "control-plane", _, cluster, ..] => {
            (format!("control plane of {cluster}"), None)
        }
        [_, "lab", "internal", "init", ..] => ("lab init".into(), None),
        [_, "lab", "internal", role, ..] => ((*role).to_owned(), None),
        [] => ("(ending)".into(), None),
        [program, ..] => (program.rsplit('/').next().unwrap_or(program).to_owned(), None),
    }
}

fn look(pid: i32, program: Option<(u64, u64)>) -> Option<Entry> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let command = command
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let own = std::fs::metadata(format!("/proc/{pid}/exe")).map(|own| (own.dev(), own.ino())).ok();
    Some(Entry { parent, command, ours: own.is_some() && own == program })
}
