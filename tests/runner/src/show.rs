//! What a person sees: a line when a part has ended, what runs meanwhile, and the table at the end.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::process;
use crate::record::Done;

/// How often what runs is printed where there is no terminal.
const REMARK: Duration = Duration::from_mins(1);
const WIDTH: usize = 100;

/// Shows a run while it goes on.
pub struct Progress {
    logs: PathBuf,
    terminal: bool,
    begin: Instant,
    said: Instant,
}

impl Progress {
    pub fn new(logs: &Path) -> Self {
        let now = Instant::now();
        Self { logs: logs.to_owned(), terminal: std::io::stdout().is_terminal(), begin: now, said: now }
    }

    pub fn logs(&self) -> &Path {
        &self.logs
    }

    pub fn ended(&mut self, done: &Done, number: usize, total: usize) {
        self.clear();
        let verdict = if done.succeeded { "ok    " } else { "FAILED" };
        let counts = done
            .counts
            .map_or_else(String::new, |(passed, failed)| format!("  {passed} passed, {failed} failed"));
        println!(
            "{}  {number:>3}/{total}  {verdict}  {:>6.1} s  {}{counts}",
            clock(self.begin.elapsed()),
            done.seconds,
            done.part
        );
        if !done.succeeded {
            println!("--- the end of {}", process::log(&self.logs, &done.part).display());
            println!("{}", process::end_of_log(&self.logs, &done.part));
            println!("---");
        }
        self.said = Instant::now();
    }

    /// What runs now.
    pub fn tick<'a>(&mut self, running: impl Iterator<Item = (&'a str, Duration)>) {
        if !self.terminal && self.said.elapsed() < REMARK {
            return;
        }
        let running: Vec<_> = running.map(|(name, time)| format!("{name} {} s", time.as_secs())).collect();
        if running.is_empty() {
            return;
        }
        let line = format!("{}  running: {}", clock(self.begin.elapsed()), running.join(", "));
        if self.terminal {
            let short: String = line.chars().take(WIDTH).collect();
            print!("\r\x1b[K{short}");
            // A terminal that cannot be written to must not end the run.
            let _ = std::io::stdout().flush();
        } else {
            println!("{line}");
            self.said = Instant::now();
        }
    }

    fn clear(&self) {
        if self.terminal {
            print!("\r\x1b[K");
        }
    }
}

fn clock(time: Duration) -> String {
    format!("{:>2}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

/// One line of the table.
#[derive(Debug, Default, PartialEq)]
struct Row {
    name: String,
    seconds: f64,
    counts: Option<(u64, u64)>,
    not_run: u64,
    failed_parts: u64,
}

/// Parts of one row together, the longest rows first.
fn rows(done: &[Done]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for part in done {
        let place = rows.iter().position(|row| row.name == part.row).unwrap_or_else(|| {
            rows.push(Row { name: part.row.clone(), ..Row::default() });
            rows.len() - 1
        });
        let row = &mut rows[place];
        row.seconds += part.seconds;
        row.not_run += part.not_run.len() as u64;
        row.failed_parts += u64::from(!part.succeeded);
        if let Some((passed, failed)) = part.counts {
            let (before, failed_before) = row.counts.unwrap_or_default();
            row.counts = Some((before + passed, failed_before + failed));
        }
    }
    rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    rows
}

/// Prints the table and what was not run, and says whether all of it counts as passed.
pub fn table(done: &[Done], spent: Duration, total: Duration) -> bool {
    let required = std::env::var("GODWIT_REQUIRE_ALL").is_ok_and(|value| value == "1");
    let (text, succeeded) = render(done, spent, total, required);
    print!("{text}");
    succeeded
}

fn render(done: &[Done], spent: Duration, total: Duration, required: bool) -> (String, bool) {
    let rows = rows(done);
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max("in all".len());
    let mut text = format!(
        "\n{:<width$}  {:>7}  {:>6}  {:>6}  {:>7}\n",
        "part", "seconds", "passed", "failed", "not run"
    );
    let mut line = |name: &str, seconds: f64, counts: Option<(u64, u64)>, not_run: u64| {
        let (passed, failed) =
            counts.map_or(("-".to_owned(), "-".to_owned()), |(p, f)| (p.to_string(), f.to_string()));
        // Writing to a String does not fail.
        let _ = writeln!(text, "{name:<width$}  {seconds:>7.0}  {passed:>6}  {failed:>6}  {not_run:>7}");
    };
    for row in &rows {
        // A part without tests of its own passes or fails as a whole.
        let counts = row.counts.or((row.failed_parts > 0).then_some((0, row.failed_parts)));
        line(&row.name, row.seconds, counts, row.not_run);
    }
    if !spent.is_zero() {
        line("packages", spent.as_secs_f64(), None, 0);
    }
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for row in &rows {
        let (row_passed, row_failed) = row.counts.unwrap_or((0, row.failed_parts));
        passed += row_passed;
        failed += row_failed.max(u64::from(row.failed_parts > 0));
        skipped += row.not_run;
    }
    line("in all", total.as_secs_f64(), Some((passed, failed)), skipped);
    let sum: f64 = done.iter().map(|part| part.seconds).sum();
    let _ = writeln!(
        text,
        "\nParts run beside each other: one after the other they would have taken {sum:.0} s."
    );
    let not_run = done.iter().flat_map(|part| part.not_run.iter().map(move |test| (&part.part, test)));
    for (number, (part, test)) in not_run.enumerate() {
        if number == 0 {
            let _ = writeln!(text, "\nNot run:");
        }
        let _ = writeln!(text, "  {part}: {}: {}", test.test, test.reason);
    }
    if required && skipped > 0 {
        let _ = writeln!(text, "\nGODWIT_REQUIRE_ALL=1: what was not run counts as failed.");
        failed += skipped;
        skipped = 0;
    }
    let _ = writeln!(text, "\n{passed} passed, {failed} failed, {skipped} skipped");
    (text, failed == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::NotRun;

    fn done(part: &str, row: &str, counts: Option<(u64, u64)>, succeeded: bool) -> Done {
        Done {
            part: part.to_owned(),
            row: row.to_owned(),
            seconds: 2.0,
            succeeded,
            counts,
            not_run: Vec::new(),
        }
    }

    #[test]
    fn rows_add_up_their_parts() {
        let parts = [
            done("a", "unit tests", Some((2, 0)), true),
            done("format", "format", None, true),
            done("b", "unit tests", Some((3, 1)), false),
        ];
        let rows = rows(&parts);
        assert_eq!(rows[0].name, "unit tests");
        assert_eq!((rows[0].counts, rows[0].failed_parts), (Some((5, 1)), 1));
        let (text, succeeded) = render(&parts, Duration::ZERO, Duration::ZERO, false);
        assert!(!succeeded && text.ends_with("\n5 passed, 1 failed, 0 skipped\n"), "{text}");
    }

    #[test]
    fn a_script_that_fails_without_tests_is_a_failure() {
        let (text, succeeded) =
            render(&[done("format", "format", None, false)], Duration::ZERO, Duration::ZERO, false);
        assert!(!succeeded && text.contains("\n0 passed, 1 failed, 0 skipped\n"), "{text}");
    }

    #[test]
    fn what_is_not_run_is_named_and_fails_where_all_is_required() {
        let mut part = done("apiserver suite", "apiserver suite", Some((4, 0)), true);
        part.not_run.push(NotRun { test: "auth::roles".to_owned(), reason: "no roles here".to_owned() });
        let (text, succeeded) = render(&[part.clone()], Duration::ZERO, Duration::ZERO, false);
        assert!(succeeded && text.contains("  apiserver suite: auth::roles: no roles here\n"), "{text}");
        assert!(text.ends_with("\n4 passed, 0 failed, 1 skipped\n"), "{text}");
        let (text, succeeded) = render(&[part], Duration::ZERO, Duration::ZERO, true);
        assert!(!succeeded && text.ends_with("\n4 passed, 1 failed, 0 skipped\n"), "{text}");
    }
}
