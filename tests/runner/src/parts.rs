//! What a run consists of: every part with its command, what it costs, and in which kind of run it takes part.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::programs::{Found, Program};

/// The part that builds; its log is cargo's list of what it built.
pub const BUILD: &str = "build";

/// How long a part may take before it is ended and counts as failed, in seconds.
const LIMIT: u64 = 20 * 60;
/// The same for the parts of `make test-all`.
const LONG_LIMIT: u64 = 90 * 60;

/// Test programs of which every test is a part of its own: each test has its own lab, and waits more than it computes.
const SPLIT: [&str; 1] = ["e2e"];

/// The beginnings of the names of parts that take long, with about how many seconds they take beside others: the longest
/// begin first.
const LONG: [(&str, u32); 20] = [
    ("e2e: faults", 200),
    ("e2e: setting", 140),
    ("e2e: claims", 130),
    ("lab suite", 120),
    ("e2e: deaths", 110),
    ("e2e: drain", 100),
    ("e2e: lacks", 100),
    ("controller scenarios", 90),
    ("e2e: life", 90),
    ("kube-rs", 80),
    ("e2e: migration_network", 80),
    ("e2e: crowd", 70),
    ("e2e: intruders", 70),
    ("handler suite", 65),
    ("e2e: ", 60),
    ("virt-launcher guest", 45),
    ("kubectl", 40),
    ("ipam suite", 30),
    ("workloads suite", 30),
    ("kubelet agent", 30),
];

/// The faults of `tests/e2e/tests/e2e/faults.rs`, each a part of `make test-all`.
const FAULTS: [&str; 9] = [
    "SourceHandler",
    "TargetHandler",
    "TargetLauncher",
    "TargetQemu",
    "Controllers",
    "Network",
    "FullPool",
    "Certificate",
    "HandlersStop",
];

/// How long `make test-all` searches with every fuzz target, in seconds.
const SEARCH: &str = "30";

/// One process of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Unique, and also the name of the log.
    pub name: String,
    /// The line of the table that counts it.
    pub row: String,
    pub command: Vec<OsString>,
    pub directory: PathBuf,
    pub environment: Vec<(String, OsString)>,
    /// About how many seconds it takes; 0: not long.
    pub expected: u32,
    /// After so many seconds it is ended, and has failed.
    pub limit: u64,
    /// Whether it has mounts of its own, which go with its last process.
    pub own_mounts: bool,
    /// Whether it need not be run again when an earlier run of the same record passed it.
    pub may_be_resumed: bool,
}

impl Part {
    fn new(name: &str, directory: &Path, command: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            row: name.to_owned(),
            command: command.iter().map(OsString::from).collect(),
            directory: directory.to_owned(),
            environment: Vec::new(),
            expected: LONG.iter().find(|(long, _)| name.starts_with(long)).map_or(0, |(_, seconds)| *seconds),
            limit: LIMIT,
            own_mounts: false,
            may_be_resumed: true,
        }
    }

    fn with(mut self, variable: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((variable.to_owned(), value.into()));
        self
    }

    fn of_row(mut self, row: &str) -> Self {
        row.clone_into(&mut self.row);
        self
    }
}

/// What needs no test program, and what builds them.
///
/// clippy is the compiler of the build: it checks our crates and compiles them, so they are read once.
pub fn preparation(root: &Path) -> Vec<Part> {
    let build = [
        "cargo",
        "build",
        "--locked",
        "--workspace",
        "--all-targets",
        "--message-format=json-render-diagnostics",
    ];
    let lints = "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__";
    let parts = vec![
        Part::new(BUILD, root, &build)
            .with("RUSTC_WORKSPACE_WRAPPER", "clippy-driver")
            .with("CLIPPY_ARGS", lints),
        Part::new("set-up of virtual machines", root, &["tools/setup", "vm"]),
        Part::new("format", root, &["cargo", "fmt", "--all", "--check"]),
        Part::new("shellcheck", root, &["make", "--no-print-directory", "shellcheck"]),
        Part::new("build of kube-rs' tests", root, &["tests/kube-rs/run", "--build"]),
    ];
    // What they make may be gone since an earlier run.
    parts.into_iter().map(|part| Part { may_be_resumed: false, ..part }).collect()
}

/// Every test program that was built, and the scripts; with `all`, also what takes long.
pub fn tests(root: &Path, found: &Found, all: bool, seed: u64) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for test in &found.tests {
        let name = test.name();
        if SPLIT.contains(&name.as_str()) {
            for single in test.list()? {
                parts.push(of_program(test, &format!("{name}: {single}"), &["--exact", &single], found));
            }
        } else {
            let row = if test.is_unit { "unit tests" } else { name.as_str() };
            parts.push(of_program(test, &name, &[], found).of_row(row));
        }
    }
    let godwit = found.program("godwit")?;
    let with_server = |name: &str, script: &str| {
        let command = ["tools/with-apiserver", "sh", "-c", script];
        Part::new(name, root, &command).with("GODWIT_BIN", godwit)
    };
    parts.push(with_server("kubectl", r#"tests/kubectl/run "$KUBECONFIG""#));
    parts.push(with_server("kube-rs", r#"tests/kube-rs/run "$KUBECONFIG""#));
    parts.push(Part::new("launcher-image", root, &["tests/launcher-image"]));
    if all {
        parts.extend(long_ones(root, found, seed)?);
    }
    // The longest first: one that begins last would be waited for alone.
    parts.sort_by_key(|part| std::cmp::Reverse(part.expected));
    Ok(parts)
}

/// What `make test-all` has besides.
fn long_ones(root: &Path, found: &Found, seed: u64) -> Result<Vec<Part>> {
    let lab = found.test("e2e")?;
    let mut parts = Vec::new();
    let trial = |name: String, test: &str| {
        let mut part = of_program(lab, &name, &[test], found).with("GODWIT_SEED", seed.to_string());
        part.limit = LONG_LIMIT;
        part
    };
    for fault in FAULTS {
        let part = trial(format!("fault: {fault}"), "faults");
        parts.push(
            part.with("GODWIT_FAULTS", "1000").with("GODWIT_FAULT", fault).of_row("faults, all moments"),
        );
    }
    parts.push(trial("deaths, all of them".to_owned(), "deaths").with("GODWIT_DEATHS", "1000"));
    parts.push(trial("crowd of twenty".to_owned(), "crowd").with("GODWIT_VMS", "20"));
    parts.push(trial("ten migrations".to_owned(), "claims").with("GODWIT_MOVES", "10"));
    let crash = of_program(found.test("apiserver crash")?, "apiserver, fifty kills", &[], found);
    parts.push(crash.with("GODWIT_CRASH", format!("10000,50,{seed}")));
    let mut search = Part::new("fuzz search", root, &["tools/fuzz", SEARCH]);
    search = search.with("FUZZ_SEED", seed.to_string());
    search.limit = LONG_LIMIT;
    parts.push(search);
    Ok(parts)
}

/// A test program, run as cargo would.
fn of_program(test: &Program, name: &str, arguments: &[&str], found: &Found) -> Part {
    let mut part = Part::new(name, &test.package, &[]);
    part.command = std::iter::once(test.executable.as_os_str().to_owned())
        .chain(arguments.iter().map(OsString::from))
        .collect();
    part.own_mounts = true;
    part.environment.clone_from(&found.environment);
    part.with("CARGO_MANIFEST_DIR", &test.package)
}
