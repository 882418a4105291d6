//! Rules of the pod's network namespace, by the program `nft`: one transaction at a time, whole or not at all.

use std::io::{self, Write as _};
use std::process::{Command, Stdio};

/// The rules were not changed.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    #[error("running nft")]
    Io(#[from] io::Error),
    #[error("nft refused the rules: {said}")]
    Refused { said: String },
}

/// Applies a transaction. It blocks.
pub fn apply(rules: &str) -> Result<(), RulesError> {
    let mut nft = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    // It reads to the end before it does anything. One that ended before says why, which is more than that nobody reads.
    let written = nft.stdin.take().map_or(Ok(()), |mut input| input.write_all(rules.as_bytes()));
    let output = nft.wait_with_output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        return Err(RulesError::Refused { said });
    }
    Ok(written?)
}
