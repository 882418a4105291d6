//! Logs in the format of the container runtime interface: `TIME stdout|stderr F|P TEXT`. Pure.
//!
//! It owns what a caller may ask of a log, and which bytes that comes to. The text comes from containers: whatever cannot be
//! read as a line of a log is passed on as it is.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::query::{self, pairs};

/// What a caller asks of a log.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogOptions {
    pub follow: bool,
    pub previous: bool,
    pub timestamps: bool,
    pub tail_lines: Option<usize>,
    pub limit_bytes: Option<usize>,
    pub since: Option<Timestamp>,
}

impl LogOptions {
    /// Reads a query; the error is for the caller.
    pub fn parse(query: &str, now: Timestamp) -> Result<Self, String> {
        let mut options = Self::default();
        for (name, value) in pairs(query) {
            let wrong = || format!("{name}={value:?} cannot be used");
            let flag = || query::flag(&value).ok_or_else(wrong);
            match name.as_str() {
                "follow" => options.follow = flag()?,
                "previous" => options.previous = flag()?,
                "timestamps" => options.timestamps = flag()?,
                "tailLines" => options.tail_lines = Some(value.parse().map_err(|_| wrong())?),
                "limitBytes" => options.limit_bytes = Some(value.parse().map_err(|_| wrong())?),
                "sinceSeconds" => {
                    let seconds: u32 = value.parse().map_err(|_| wrong())?;
                    options.since = Some(now - SignedDuration::from_secs(i64::from(seconds)));
                }
                "sinceTime" => options.since = Some(value.parse().map_err(|_| wrong())?),
                _ => {}
            }
        }
        Ok(options)
    }
}

/// Turns what a log holds into what a caller gets. It keeps what is left of a line that is not whole yet.
#[derive(Debug)]
pub struct Reader {
    options: LogOptions,
    unfinished: Vec<u8>,
    /// How many bytes may still be given.
    room: usize,
}

impl Reader {
    pub fn new(options: LogOptions) -> Self {
        let room = options.limit_bytes.unwrap_or(usize::MAX);
        Self { options, unfinished: Vec::new(), room }
    }

    /// Whether nothing more can come.
    pub fn is_full(&self) -> bool {
        self.room == 0
    }

    /// What was in the log when the caller came.
    pub fn first(&mut self, content: &[u8]) -> Vec<u8> {
        let lines = self.whole_lines(content);
        let wanted: Vec<&[u8]> =
            lines.split_inclusive(|byte| *byte == b'\n').filter(|line| self.is_wanted(line)).collect();
        let skipped = self.options.tail_lines.map_or(0, |tail| start_of_tail(&wanted, tail));
        self.given(wanted.get(skipped..).unwrap_or_default())
    }

    /// What came since.
    pub fn next(&mut self, content: &[u8]) -> Vec<u8> {
        let lines = self.whole_lines(content);
        let wanted: Vec<&[u8]> =
            lines.split_inclusive(|byte| *byte == b'\n').filter(|line| self.is_wanted(line)).collect();
        self.given(&wanted)
    }

    fn whole_lines(&mut self, content: &[u8]) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.unfinished);
        all.extend_from_slice(content);
        let end = all.iter().rposition(|byte| *byte == b'\n').map_or(0, |position| position + 1);
        self.unfinished = all.split_off(end);
        all
    }

    fn is_wanted(&self, line: &[u8]) -> bool {
        match (self.options.since, Line::parse(line)) {
            (Some(since), Some(line)) => line.time().is_none_or(|time| time >= since),
            _ => true,
        }
    }

    fn given(&mut self, lines: &[&[u8]]) -> Vec<u8> {
        let mut text = Vec::new();
        for line in lines {
            match Line::parse(line) {
                Some(line) => {
                    if self.options.timestamps {
                        text.extend_from_slice(line.stamp);
                        text.push(b' ');
                    }
                    text.extend_from_slice(line.text);
                    if !line.partial {
                        text.push(b'\n');
                    }
                }
                None => text.extend_from_slice(line),
            }
        }
        text.truncate(self.room);
        self.room -= text.len();
        text
    }
}

/// Where the last `count` lines of a container begin; one of its lines may be several of the log's.
fn start_of_tail(lines: &[&[u8]], count: usize) -> usize {
    let mut left = count;
    for (position, line) in lines.iter().enumerate().rev() {
        let ends_a_line = !Line::parse(line).is_some_and(|line| line.partial);
        // What was cut off at the end counts as a line too.
        if ends_a_line || position + 1 == lines.len() {
            if left == 0 {
                return position + 1;
            }
            left -= 1;
        }
    }
    0
}

/// One line of the log.
pub struct Line<'a> {
    stamp: &'a [u8],
    pub is_error: bool,
    /// The container's own line goes on.
    pub partial: bool,
    pub text: &'a [u8],
}

impl<'a> Line<'a> {
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let (stamp, stream, tag, text) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let known = matches!(stream, b"stdout" | b"stderr") && matches!(tag, b"F" | b"P");
        known.then_some(Self { stamp, is_error: stream == b"stderr", partial: tag == b"P", text })
    }

    fn time(&self) -> Option<Timestamp> {
        std::str::from_utf8(self.stamp).ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use proptest::prelude::*;

    use super::*;

    const LOG: &str = "2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stderr P tw\n2026-01-01T00:00:02Z stderr F o\n2026-01-01T00:00:03Z stdout F three\n";

    fn read(query: &str) -> String {
        let now = "2026-01-01T00:00:04Z".parse().unwrap();
        let mut reader = Reader::new(LogOptions::parse(query, now).unwrap());
        String::from_utf8(reader.first(LOG.as_bytes())).unwrap()
    }

    #[test]
    fn a_caller_gets_what_it_asks_for() {
        let cases = [
            ("", "one\ntwo\nthree\n"),
            ("tailLines=0", ""),
            ("tailLines=1", "three\n"),
            ("tailLines=2", "two\nthree\n"),
            ("tailLines=9", "one\ntwo\nthree\n"),
            ("sinceSeconds=1", "three\n"),
            ("sinceTime=2026-01-01T00%3A00%3A02Z", "two\nthree\n"),
            ("limitBytes=5", "one\nt"),
            ("timestamps=true&tailLines=1", "2026-01-01T00:00:03Z three\n"),
        ];
        for (query, expected) in cases {
            assert_eq!(read(query), expected, "{query}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let parse = |query| LogOptions::parse(query, Timestamp::UNIX_EPOCH);
        assert!(parse("tailLines=-1").unwrap_err().contains("tailLines"));
        assert!(parse("sinceTime=yesterday").unwrap_err().contains("sinceTime"));
        assert!(parse("follow=perhaps").is_err());
        assert!(parse("follow=true&container=x").unwrap().follow);
    }

    proptest! {
        /// However a log reaches the reader, the caller gets the same.
        #[test]
        fn pieces_do_not_matter(cuts in proptest::collection::vec(0..LOG.len(), 0..6)) {
            let mut cuts = cuts;
            cuts.push(LOG.len());
            cuts.sort_unstable();
            let mut reader = Reader::new(LogOptions::default());
            let (mut from, mut text) = (0, Vec::new());
            for cut in cuts {
                text.extend(reader.next(&LOG.as_bytes()[from..cut]));
                from = cut;
            }
            prop_assert_eq!(String::from_utf8(text).unwrap(), "one\ntwo\nthree\n");
        }

        /// No log makes the reader fail, whatever a container or a disk did to it.
        #[test]
        fn any_bytes_are_read(log in proptest::collection::vec(any::<u8>(), 0..200), tail in 0_usize..4) {
            let options = LogOptions { tail_lines: Some(tail), ..LogOptions::default() };
            let _ = Reader::new(options).first(&log);
        }
    }
}
