//! What a part says of its tests: how many passed and failed. Pure.

/// Tests of one part, as its output counts them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub passed: u64,
    pub failed: u64,
}

impl Counts {
    /// Reads the closing line of an output: libtest's, or `N passed, N failed` of a script. `None`: there is no such line.
    /// Lines before the last are those of programs that a test has started.
    ///
    /// Tests that libtest ignores are the helpers of other tests here (`not a test: …`), or are named by the part that
    /// needs what they need; they count nowhere.
    pub fn read(output: &str) -> Option<Self> {
        output.lines().rev().find_map(|line| Self::of_libtest(line).or_else(|| Self::of_script(line)))
    }

    /// `test result: ok. 3 passed; 0 failed; 1 ignored; …`
    fn of_libtest(line: &str) -> Option<Self> {
        let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let mut counts = counts.split("; ");
        let passed = number(counts.next()?, " passed")?;
        Some(Self { passed, failed: number(counts.next()?, " failed")? })
    }

    /// `3 passed, 0 failed`
    fn of_script(line: &str) -> Option<Self> {
        let (passed, failed) = line.split_once(", ")?;
        Some(Self { passed: number(passed, " passed")?, failed: number(failed, " failed")? })
    }
}

fn number(text: &str, unit: &str) -> Option<u64> {
    text.strip_suffix(unit)?.parse().ok()
}

/// A test that could not run on this machine.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NotRun {
    pub test: String,
    pub reason: String,
}

impl NotRun {
    /// From the lines `TEST<tab>REASON` that tests write by `testkit::not_run`.
    pub fn read(lines: &str) -> Vec<Self> {
        let pairs = lines.lines().filter_map(|line| line.split_once('\t'));
        pairs.map(|(test, reason)| Self { test: test.to_owned(), reason: reason.to_owned() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_closing_line_counts() {
        let output = "running 2 tests\ntest a ... ok\n\
            test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\
            test result: FAILED. 1 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\
            the end\n";
        assert_eq!(Counts::read(output), Some(Counts { passed: 1, failed: 3 }));
        assert_eq!(Counts::read("14 passed, 1 failed\n"), Some(Counts { passed: 14, failed: 1 }));
    }

    #[test]
    fn other_lines_count_nothing() {
        for output in ["", "error: could not compile", "x passed, 1 failed", "1 passed, 2 failed, 3 skipped"]
        {
            assert_eq!(Counts::read(output), None, "{output:?}");
        }
    }

    #[test]
    fn what_was_not_run_has_a_reason() {
        let read = NotRun::read("auth::roles\tthe server evaluates no roles\nhalf a line");
        let expected =
            NotRun { test: "auth::roles".to_owned(), reason: "the server evaluates no roles".to_owned() };
        assert_eq!(read, [expected]);
    }
}
