//! Godwit's CNI plugins in one file, as a runtime finds them: by the name that the program is called by.
//!
//! It owns the choice of the plugin, standard input and output, and the exit code; what a plugin does is its crate's. It
//! must never panic: a runtime reads the answer from standard output and has no other.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

/// Names under which addresses are given: our own, and that of the plugin whose place it can take.
const IPAM: [&str; 2] = ["godwit-ipam", "whereabouts"];

fn main() -> ExitCode {
    let called = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&called).file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !IPAM.contains(&name.as_str()) {
        eprintln!(
            "{name:?} is none of our plugins: install this file, or a link to it, as one of {IPAM:?} where CNI plugins are"
        );
        return ExitCode::FAILURE;
    }
    let mut input = Vec::new();
    if let Err(cause) = std::io::stdin().lock().read_to_end(&mut input) {
        eprintln!("standard input cannot be read: {cause}");
    }
    let answer = ipam::run(|key| std::env::var(key).ok(), &input);
    // A runtime that does not listen any more has nobody to tell.
    let _ = std::io::stdout().lock().write_all(answer.text.as_bytes());
    if answer.success { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
