//! HTTP/1.1, as much of it as one request after the other on one connection needs.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use httparse::{EMPTY_HEADER, Header, Status};

/// An answer of 500 objects is a few hundred kilobytes.
const ANSWER_MAX: usize = 16 << 20;
const HEADERS_MAX: usize = 64;
const PIECE: usize = 16 << 10;

/// A connection whose reads and writes wait no longer than they are told.
pub(super) trait Stream: Read + Write {
    fn wait_at_most(&self, time: Duration) -> io::Result<()>;
}

/// A request.
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    pub(super) host: &'a str,
    pub(super) path: &'a str,
    pub(super) token: Option<&'a str>,
    /// JSON, or nothing.
    pub(super) body: &'a [u8],
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    /// Nothing more is said on this connection.
    pub(super) last: bool,
}

impl Request<'_> {
    /// Sends it, and waits for the answer until the deadline.
    pub(super) fn exchange(&self, stream: &mut dyn Stream, deadline: Instant) -> io::Result<Answer> {
        stream.wait_at_most(left(deadline)?)?;
        stream.write_all(&self.written())?;
        stream.flush()?;
        Incoming { stream, deadline, text: Vec::new() }.answer()
    }

    fn written(&self) -> Vec<u8> {
        let Self { method, host, path, token, body } = self;
        let mut text = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\naccept: application/json\r\nuser-agent: godwit-ipam\r\n"
        );
        if let Some(token) = token {
            text.extend(["authorization: Bearer ", token, "\r\n"]);
        }
        if !body.is_empty() {
            let length = body.len().to_string();
            text.extend(["content-type: application/json\r\ncontent-length: ", &length, "\r\n"]);
        }
        text.push_str("\r\n");
        [text.as_bytes(), body].concat()
    }
}

/// What has come so far.
struct Incoming<'a> {
    stream: &'a mut dyn Stream,
    deadline: Instant,
    text: Vec<u8>,
}

/// How long a body is.
#[derive(Clone, Copy)]
enum Length {
    Known(usize),
    InChunks,
    UntilTheEnd,
}

impl Incoming<'_> {
    fn answer(mut self) -> io::Result<Answer> {
        let (status, length, mut last) = loop {
            let mut headers = [EMPTY_HEADER; HEADERS_MAX];
            let mut head = httparse::Response::new(&mut headers);
            if let Status::Complete(end) = head.parse(&self.text).map_err(malformed)? {
                let status = head.code.unwrap_or_default();
                let (length, last) = (length(status, head.headers)?, says_last(head.headers));
                self.text.drain(..end);
                break (status, length, last);
            }
            self.more()?;
        };
        let body = match length {
            Length::Known(length) => self.exactly(length)?,
            Length::InChunks => self.chunks()?,
            Length::UntilTheEnd => {
                last = true;
                while self.read()? > 0 {}
                self.text
            }
        };
        Ok(Answer { status, body, last })
    }

    fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        if length > ANSWER_MAX {
            return Err(too_long());
        }
        while self.text.len() < length {
            self.more()?;
        }
        let rest = self.text.split_off(length);
        Ok(std::mem::replace(&mut self.text, rest))
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let length = loop {
                match httparse::parse_chunk_size(&self.text) {
                    Ok(Status::Complete((end, length))) => {
                        self.text.drain(..end);
                        break usize::try_from(length).unwrap_or(usize::MAX);
                    }
                    Ok(Status::Partial) => self.more()?,
                    Err(_) => return Err(malformed("a chunk has no length")),
                }
            };
            if length == 0 {
                return self.trailer().map(|()| body);
            }
            if length > ANSWER_MAX - body.len() {
                return Err(too_long());
            }
            body.append(&mut self.exactly(length)?);
            if self.exactly(2)? != b"\r\n" {
                return Err(malformed("a chunk does not end where it says"));
            }
        }
    }

    /// Headers after the last chunk, which nobody asked for, and the empty line after them.
    fn trailer(&mut self) -> io::Result<()> {
        loop {
            let Some(end) = self.text.windows(2).position(|two| two == b"\r\n") else {
                self.more()?;
                continue;
            };
            self.text.drain(..end + 2);
            if end == 0 {
                return Ok(());
            }
        }
    }

    /// At least a byte more.
    fn more(&mut self) -> io::Result<()> {
        if self.read()? == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// How much more there is; 0: it has ended.
    fn read(&mut self) -> io::Result<usize> {
        if self.text.len() > ANSWER_MAX {
            return Err(too_long());
        }
        self.stream.wait_at_most(left(self.deadline)?)?;
        let before = self.text.len();
        self.text.resize(before + PIECE, 0);
        let read = loop {
            match self.stream.read(&mut self.text[before..]) {
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.text.truncate(before + read.as_ref().map_or(0, |read| *read));
        read
    }
}

fn length(status: u16, headers: &[Header<'_>]) -> io::Result<Length> {
    if value(headers, "transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked")) {
        return Ok(Length::InChunks);
    }
    if matches!(status, 204 | 304) {
        return Ok(Length::Known(0));
    }
    let Some(length) = value(headers, "content-length") else { return Ok(Length::UntilTheEnd) };
    let length = std::str::from_utf8(length).ok().and_then(|length| length.trim().parse().ok());
    length.map(Length::Known).ok_or_else(|| malformed("its length is no number"))
}

fn says_last(headers: &[Header<'_>]) -> bool {
    value(headers, "connection").is_some_and(|said| said.eq_ignore_ascii_case(b"close"))
}

fn value<'a>(headers: &[Header<'a>], name: &str) -> Option<&'a [u8]> {
    headers.iter().find(|header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
}

/// The time that is left; a deadline that has passed is an error as a late answer is.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn malformed(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn too_long() -> io::Error {
    malformed(format!("it is longer than {ANSWER_MAX} bytes"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says what it expects")]

    use proptest::prelude::*;

    use super::*;

    /// Answers in pieces of this size, and then ends.
    struct Told {
        text: io::Cursor<Vec<u8>>,
        piece: usize,
        heard: Vec<u8>,
    }

    impl Read for Told {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let most = self.piece.min(to.len());
            self.text.read(&mut to[..most])
        }
    }

    impl Write for Told {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.heard.write(text)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Stream for Told {
        fn wait_at_most(&self, _: Duration) -> io::Result<()> {
            Ok(())
        }
    }

    const GET: Request<'static> =
        Request { method: "GET", host: "h", path: "/p", token: Some("t"), body: b"" };

    fn told(text: &[u8], piece: usize) -> (io::Result<Answer>, Told) {
        let mut stream = Told { text: io::Cursor::new(text.to_vec()), piece, heard: Vec::new() };
        let answer = GET.exchange(&mut stream, Instant::now() + Duration::from_mins(1));
        (answer, stream)
    }

    fn kind(text: &[u8]) -> io::ErrorKind {
        told(text, 7).0.unwrap_err().kind()
    }

    #[test]
    fn a_request_says_who_asks_whom_for_what() {
        let (_, stream) = told(b"", 1);
        let expected = "GET /p HTTP/1.1\r\nhost: h\r\naccept: application/json\r\nuser-agent: godwit-ipam\r\nauthorization: Bearer t\r\n\r\n";
        assert_eq!(String::from_utf8(stream.heard).unwrap(), expected);
        let post = Request { method: "POST", token: None, body: b"{}", ..GET }.written();
        assert!(post.ends_with(b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}"));
    }

    #[test]
    fn an_answer_ends_where_it_says() {
        let rest = |text: &str| told(text.as_bytes(), 3).0.unwrap();
        let answer = rest("HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(answer, Answer { status: 204, body: Vec::new(), last: false });
        let answer = rest("HTTP/1.1 500 Oh\r\nConnection: Close\r\nContent-Length: 2\r\n\r\nnoxx");
        assert_eq!(answer, Answer { status: 500, body: b"no".to_vec(), last: true });
        let answer = rest("HTTP/1.0 200 OK\r\n\r\nall of it");
        assert_eq!(answer, Answer { status: 200, body: b"all of it".to_vec(), last: true });
        let answer = rest(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n1;x=y\r\nd\r\n0\r\nt: u\r\n\r\n",
        );
        assert_eq!(answer, Answer { status: 200, body: b"abcd".to_vec(), last: false });
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        assert_eq!(kind(b""), io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabc"), io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(b"SSH-2.0-x\r\n"), io::ErrorKind::InvalidData);
        assert_eq!(kind(b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n"), io::ErrorKind::InvalidData);
        let long = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", usize::MAX);
        assert_eq!(kind(long.as_bytes()), io::ErrorKind::InvalidData);
        let chunked = |rest: &str| format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{rest}");
        assert_eq!(kind(chunked("fffffffffffffff\r\n").as_bytes()), io::ErrorKind::InvalidData);
        assert_eq!(kind(chunked("x\r\n").as_bytes()), io::ErrorKind::InvalidData);
        assert_eq!(kind(chunked("1\r\nabc\r\n").as_bytes()), io::ErrorKind::InvalidData);
        let mut stream = Told { text: io::Cursor::default(), piece: 1, heard: Vec::new() };
        let late = GET.exchange(&mut stream, Instant::now());
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    proptest! {
        #[test]
        fn however_it_is_cut_a_body_arrives_whole(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8),
            piece in 1_usize..50,
            chunked: bool,
        ) {
            let body = parts.concat();
            let mut text = b"HTTP/1.1 200 OK\r\n".to_vec();
            if chunked {
                text.extend(b"transfer-encoding: chunked\r\n\r\n");
                for part in &parts {
                    text.extend(format!("{:x}\r\n", part.len()).as_bytes());
                    text.extend(part.iter().chain(b"\r\n"));
                }
                text.extend(b"0\r\n\r\n");
            } else {
                text.extend(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
                text.extend(&body);
            }
            let (answer, _) = told(&text, piece);
            prop_assert_eq!(answer.unwrap(), Answer { status: 200, body, last: false });
        }

        #[test]
        fn nothing_that_is_told_breaks_it(text: Vec<u8>, piece in 1_usize..50) {
            let _ = told(&[b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", &text[..]].concat(), piece);
            let _ = told(&text, piece);
        }
    }
}
