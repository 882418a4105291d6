//! What the build made: programs and tests, as cargo lists them in its messages.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// A test program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    crate_name: String,
    target: String,
    /// Whether its tests stand beside the code that they test.
    pub is_unit: bool,
    pub executable: PathBuf,
    /// The directory of its package: tests run there.
    pub package: PathBuf,
}

impl Program {
    /// `handler suite`; `e2e` where the crate is all test; of unit tests, `handler unit tests`.
    pub fn name(&self) -> String {
        let Self { crate_name, target, .. } = self;
        if self.is_unit {
            format!("{target} unit tests")
        } else if crate_name == target {
            target.clone()
        } else {
            format!("{crate_name} {target}")
        }
    }

    /// The names of its tests.
    pub fn list(&self) -> Result<Vec<String>> {
        let output = Command::new(&self.executable).args(["--list", "--format", "terse"]).output();
        let output = output.with_context(|| format!("asking {} for its tests", self.executable.display()))?;
        if !output.status.success() {
            bail!("{} --list: {}", self.executable.display(), String::from_utf8_lossy(&output.stderr));
        }
        let text = String::from_utf8(output.stdout).context("the names of tests")?;
        Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }
}

/// Everything that a build made.
#[derive(Debug, Default)]
pub struct Found {
    pub tests: Vec<Program>,
    programs: Vec<(String, PathBuf)>,
    /// What tests are told of the programs.
    pub environment: Vec<(String, OsString)>,
}

impl Found {
    pub fn program(&self, name: &str) -> Result<&Path> {
        let found = self.programs.iter().find(|(program, _)| program == name);
        found.map(|(_, path)| path.as_path()).with_context(|| format!("the build made no program {name}"))
    }

    pub fn test(&self, name: &str) -> Result<&Program> {
        let found = self.tests.iter().find(|test| test.name() == name);
        found.with_context(|| format!("the build made no test program {name}"))
    }

    /// From the lines of cargo's messages; other lines are of no concern.
    fn of(messages: &str) -> Result<Self> {
        let mut found = Self::default();
        for line in messages.lines().filter(|line| line.starts_with('{')) {
            let message: Value = serde_json::from_str(line).context("a message of cargo")?;
            let Some(executable) = message["executable"].as_str() else { continue };
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let manifest = PathBuf::from(text(&message["manifest_path"]));
            let package = manifest.parent().context("the directory of a manifest")?.to_owned();
            let kind = text(&message["target"]["kind"][0]);
            let target = text(&message["target"]["name"]);
            if message["profile"]["test"] == true {
                let id = text(&message["package_id"]);
                let crate_name = package_name(&id);
                let is_unit = kind != "test";
                let executable = executable.into();
                found.tests.push(Program { crate_name, target, is_unit, executable, package });
            } else if kind == "bin" {
                found.programs.push((target, executable.into()));
            }
        }
        for (program, variable) in [
            ("godwit", "GODWIT_BIN"),
            ("virt-launcher", "GODWIT_LAUNCHER_BIN"),
            ("godwit-cni", "GODWIT_CNI_BIN"),
        ] {
            let path = found.program(program)?.as_os_str().to_owned();
            found.environment.push((variable.to_owned(), path));
        }
        Ok(found)
    }
}

/// Reads the messages that the build left in its log.
pub fn read(log: &Path) -> Result<Found> {
    let messages = std::fs::read_to_string(log).with_context(|| format!("reading {}", log.display()))?;
    Found::of(&messages)
}

/// The name in a package's identifier: `path+file:///a/crates/handler#0.1.0`, or `…/b#name@0.1.0`.
fn package_name(id: &str) -> String {
    let (path, version) = id.rsplit_once('#').unwrap_or((id, ""));
    let of_path = || path.rsplit('/').next().unwrap_or_default();
    version.split_once('@').map_or_else(of_path, |(name, _)| name).to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on stops")]
mod tests {
    use super::*;

    fn artifact(id: &str, kind: &str, target: &str, is_test: bool) -> String {
        serde_json::json!({
            "reason": "compiler-artifact", "package_id": id, "manifest_path": "/src/crates/x/Cargo.toml",
            "target": { "kind": [kind], "name": target }, "profile": { "test": is_test },
            "executable": format!("/target/debug/{target}"),
        })
        .to_string()
    }

    fn programs() -> String {
        ["godwit", "virt-launcher", "godwit-cni"]
            .map(|name| artifact(&format!("path+file:///src/bin/{name}#0.1.0"), "bin", name, false))
            .join("\n")
    }

    #[test]
    fn tests_and_programs_are_told_apart_and_named() {
        let handler = "path+file:///src/crates/handler#0.1.0";
        let lines = [
            programs(),
            "   Compiling handler v0.1.0".to_owned(),
            artifact(handler, "lib", "handler", true),
            artifact(handler, "test", "suite", true),
            artifact("path+file:///src/tests/e2e#0.1.0", "test", "e2e", true),
            artifact("path+file:///src/guest#test-guest@0.1.0", "bin", "guest-init", true),
        ];
        let found = Found::of(&lines.join("\n")).expect("messages of cargo");
        let names: Vec<_> = found.tests.iter().map(|test| (test.name(), test.is_unit)).collect();
        let expected = [
            ("handler unit tests", true),
            ("handler suite", false),
            ("e2e", false),
            ("guest-init unit tests", true),
        ];
        assert_eq!(names, expected.map(|(name, is_unit)| (name.to_owned(), is_unit)));
        assert_eq!(found.tests[0].package, Path::new("/src/crates/x"));
        assert_eq!(found.program("godwit").expect("a program"), Path::new("/target/debug/godwit"));
        assert_eq!(found.environment.len(), 3);
    }

    #[test]
    fn a_build_without_a_program_that_tests_start_is_an_error() {
        let error = Found::of(&artifact("path+file:///src/bin/godwit#0.1.0", "bin", "godwit", false));
        assert_eq!(error.unwrap_err().to_string(), "the build made no program virt-launcher");
    }
}
