//! Rules of the workspace that no compiler checks: the direction between layers, licences, crates that we do not take,
//! and documents that say what is there.

#![allow(clippy::expect_used, clippy::panic, reason = "a test says what it expects")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Licences that go with Apache-2.0 in a binary that we hand out. MPL binds the files that are under it, which we take as
/// they are; ours it leaves alone.
const LICENCES: [&str; 15] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MPL-2.0+",
    "NCSA",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    "MIT-0",
];

/// Crates under another licence, and why we take them nevertheless.
const EXCEPTIONS: [(&str, &str); 2] = [
    ("virt", "LGPL-2.1: linked dynamically, as the licence asks"),
    ("virt-sys", "LGPL-2.1: linked dynamically, as the licence asks"),
];

/// Crates that we do not take, and why.
const BANNED: [(&str, &str); 3] = [
    ("openssl", "TLS is rustls everywhere: one implementation, no C library to follow"),
    ("serde_yaml", "no longer kept; serde-saphyr reads YAML"),
    ("reqwest", "hyper is under everything already"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/testkit is two below the root")
        .to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|cause| panic!("{path}: {cause}"))
}

fn metadata() -> Value {
    let cargo = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version=1",
            "--locked",
            "--offline",
            "--filter-platform=x86_64-unknown-linux-gnu",
        ])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    serde_json::from_slice(&cargo.stdout).expect("cargo metadata is JSON")
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().expect("packages").iter()
}

fn name(package: &Value) -> &str {
    package["name"].as_str().expect("a package has a name")
}

/// The crate map of ARCHITECTURE.md: crate to layer.
fn documented_layers() -> BTreeMap<String, u32> {
    let text = read("ARCHITECTURE.md");
    let map = text.split("## Crates").nth(1).expect("ARCHITECTURE.md has a crate map");
    let map = map.split("### ").next().expect("text before the next heading");
    let rows = map.lines().filter_map(|line| {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let layer = cells.next()?.parse().ok()?;
        Some((cells.next()?.trim_matches('`').to_owned(), layer))
    });
    rows.collect()
}

#[test]
fn the_crate_map_is_the_workspace_and_dependencies_point_down() {
    let metadata = metadata();
    let layers = documented_layers();
    let members: BTreeMap<&str, &Value> = packages(&metadata)
        .filter(|package| package["source"].is_null())
        .map(|package| (name(package), package))
        .collect();
    let (documented, there): (BTreeSet<&str>, BTreeSet<&str>) =
        (layers.keys().map(String::as_str).collect(), members.keys().copied().collect());
    assert_eq!(documented, there, "the crate map in ARCHITECTURE.md and the workspace differ");
    for (crate_name, package) in &members {
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            // Tests may look up: only what ships must not.
            if dependency["kind"] == "dev" {
                continue;
            }
            let dependency = dependency["name"].as_str().expect("a dependency has a name");
            if let (Some(own), Some(other)) = (layers.get(*crate_name), layers.get(dependency)) {
                assert!(
                    other < own,
                    "{crate_name} (layer {own}) depends on {dependency} (layer {other}): dependencies point down"
                );
            }
        }
    }
}

#[test]
fn every_licence_is_one_that_we_accept() {
    for package in packages(&metadata()) {
        let licence = package["license"].as_str().unwrap_or_default().replace('/', " OR ");
        // Any alternative will do; within one, all parts must.
        let accepted = licence.split(" OR ").any(|alternative| {
            alternative.split(" AND ").all(|part| LICENCES.contains(&part.trim().trim_matches(['(', ')'])))
        });
        let excepted = EXCEPTIONS.iter().any(|(excepted, _)| *excepted == name(package));
        assert!(
            accepted || excepted,
            "{} has the licence {licence:?}, which is not on the list",
            name(package)
        );
    }
}

#[test]
fn banned_crates_are_not_used() {
    let metadata = metadata();
    let used: BTreeSet<&str> = metadata["resolve"]["nodes"]
        .as_array()
        .expect("nodes")
        .iter()
        .filter_map(|node| node["id"].as_str()?.rsplit('#').next()?.split('@').next())
        .collect();
    for (banned, why) in BANNED {
        assert!(
            !used.contains(banned),
            "{banned} is in the tree: {why}; cargo tree -i {banned} shows who wants it"
        );
    }
}

#[test]
fn documents_name_commands_that_exist() {
    let makefile = read("Makefile");
    let targets: BTreeSet<&str> =
        makefile.lines().filter_map(|line| line.split_once(':')).map(|(target, _)| target).collect();
    for document in ["README.md", "CONTRIBUTING.md"] {
        let text = read(document);
        let commands = text.split(['\n', '`']).map(str::trim).filter_map(|line| line.strip_prefix("make "));
        for target in commands.filter_map(|rest| rest.split_whitespace().next()) {
            assert!(
                targets.contains(target),
                "{document} says `make {target}`, which the Makefile does not know"
            );
        }
    }
    let ci = read(".ci/run");
    assert!(ci.contains("make test"), "CI runs what the README names");
}

#[test]
fn documents_name_files_that_exist() {
    for document in ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"] {
        let text = read(document);
        let mentioned =
            text.split('`').skip(1).step_by(2).map(|path| path.split("/**").next().unwrap_or(path));
        let ours = ["bin/", "crates/", "deploy/", "tests/", "tools/", "bench/", "fuzz/", "guest/"];
        for path in
            mentioned.filter(|path| ours.iter().any(|folder| path.starts_with(folder)) && !path.contains(' '))
        {
            assert!(root().join(path).exists(), "{document} mentions {path}, which is not there");
        }
    }
}

#[test]
fn ports_are_documented_where_they_are_used() {
    let ports = read("ARCHITECTURE.md").split("## Ports").nth(1).expect("a table of ports").to_owned();
    let program = read("bin/godwit/src/apiserver.rs");
    let default = program
        .split("default_value_t = ")
        .nth(1)
        .and_then(|rest| rest.split(',').next())
        .expect("a default port");
    assert!(ports.contains(&format!("| {default} |")), "ARCHITECTURE.md does not list port {default}");
}
