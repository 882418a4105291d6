//! What the kernel command line asks of the guest: words `godwit.NAME=VALUE`. Pure.
//!
//! A word that is not understood is an error, never ignored: a test that misspells an option must see it.

use std::net::SocketAddr;

use crate::memory::{Dirty, Fill, Pattern};

#[derive(Debug, Default, Clone, PartialEq)]
pub struct Options {
    /// `godwit.dirty=140:256`: MiB a second, MiB of working set.
    pub dirty: Option<Dirty>,
    /// `godwit.fill=300` or `godwit.fill=300:zero`.
    pub fill: Option<Fill>,
    /// `godwit.connect=10.0.0.1:7`, as often as wanted: tried until it works.
    pub connect: Vec<SocketAddr>,
    /// `godwit.poweroff`: power off right after booting. It shows that a machine runs at all.
    pub poweroff: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the kernel command line says {word:?}: {why}")]
pub struct BadOption {
    pub word: String,
    pub why: &'static str,
}

impl Options {
    /// Reads a command line. What is wrong with it is told beside what could be read.
    pub fn read(line: &str) -> (Self, Vec<BadOption>) {
        let mut options = Self::default();
        let mut bad = Vec::new();
        for word in line.split_whitespace().filter(|word| word.starts_with("godwit.")) {
            if let Err(why) = options.take(word) {
                bad.push(BadOption { word: word.to_owned(), why });
            }
        }
        (options, bad)
    }

    fn take(&mut self, word: &str) -> Result<(), &'static str> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match name {
            "godwit.dirty" => self.dirty = Some(dirty(value).ok_or("want MIB_PER_S:WORKING_SET_MIB")?),
            "godwit.fill" => self.fill = Some(fill(value).ok_or("want MIB or MIB:random or MIB:zero")?),
            "godwit.connect" => self.connect.push(value.parse().map_err(|_| "want ADDRESS:PORT")?),
            "godwit.poweroff" if value.is_empty() => self.poweroff = true,
            "godwit.poweroff" => return Err("it takes no value"),
            _ => return Err("there is no such option"),
        }
        Ok(())
    }
}

fn dirty(value: &str) -> Option<Dirty> {
    let (rate, set) = value.split_once(':')?;
    Some(Dirty { mib_per_s: rate.parse().ok()?, working_set_mib: set.parse().ok()? })
}

fn fill(value: &str) -> Option<Fill> {
    let (mib, pattern) = value.split_once(':').unwrap_or((value, "random"));
    let pattern = match pattern {
        "random" => Pattern::Random,
        "zero" => Pattern::Zero,
        _ => return None,
    };
    Some(Fill { mib: mib.parse().ok()?, pattern, seed: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_among_the_kernels_own() {
        let line = "console=ttyS0 quiet godwit.dirty=140:256 godwit.fill=300:zero godwit.connect=10.0.0.1:7 \
                    godwit.connect=[fd00::1]:7 godwit.poweroff\n";
        let (options, bad) = Options::read(line);
        assert_eq!(bad, []);
        assert_eq!(options.dirty, Some(Dirty { mib_per_s: 140, working_set_mib: 256 }));
        assert_eq!(options.fill, Some(Fill { mib: 300, pattern: Pattern::Zero, seed: None }));
        assert_eq!(options.connect, ["10.0.0.1:7".parse().unwrap(), "[fd00::1]:7".parse().unwrap()]);
        assert!(options.poweroff);
    }

    #[test]
    fn what_is_wrong_is_told_and_the_rest_is_kept() {
        let (options, bad) = Options::read("godwit.dirty=fast godwit.fil=3 godwit.fill=3");
        assert_eq!(options.fill.map(|fill| fill.mib), Some(3));
        let texts: Vec<String> = bad.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "the kernel command line says \"godwit.dirty=fast\": want MIB_PER_S:WORKING_SET_MIB",
                "the kernel command line says \"godwit.fil=3\": there is no such option"
            ]
        );
    }
}
