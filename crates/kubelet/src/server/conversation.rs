//! Somebody at the other end of a WebSocket talks to a container: `exec` and `attach`.
//!
//! ```text
//!   client ══ API server ══ agent ── listen ──► standard input, size of the terminal
//!                                 ◄─ speak ──── standard output, standard error; at last, how it ended
//! ```
//!
//! Both directions go on their own, so a command that does not read does not keep what it writes from the client.
//!
//! Invariant: the command lives no longer than the connection. It is dropped, and with that killed, when the client says good-bye,
//! when the connection breaks, and when the client is not heard for a while.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use http::header::{SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message, Utf8Bytes};

use super::channels::{self, Outcome, STDERR, STDOUT, Said, VERSIONS};
use super::{Body, Refusal};
use crate::error::chain;
use crate::runtime::{Input, Output, Terminal};

/// How often the client is asked whether it is there.
const PULSE: Duration = Duration::from_secs(10);
/// How long a client may be silent; whoever is there answers when asked.
const SILENCE: Duration = Duration::from_mins(1);
/// How long the client may take to say good-bye. What it still sends meanwhile must be read, or the last words to it could be lost.
const GOOD_BYE: Duration = Duration::from_secs(5);
/// Nobody types, or pastes, that much in one message.
const LONGEST: usize = 4 << 20;
/// What a terminal takes for the end of input.
const END_OF_TRANSMISSION: u8 = 4;

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// What a client is joined with.
pub struct Talk {
    pub stdin: Option<Input>,
    pub stdout: Option<Output>,
    pub stderr: Option<Output>,
    pub terminal: Option<Terminal>,
    /// Resolves when there is nothing more to expect but what is still in the streams. Dropped, it ends what it waits for.
    pub outcome: Pin<Box<dyn Future<Output = Outcome> + Send>>,
}

/// Judges the request for another protocol: the answer that accepts it, and the connection that follows.
pub fn accept(request: &mut Request<Incoming>) -> Result<(Response<Body>, OnUpgrade), Refusal> {
    let bad = |why: String| (StatusCode::BAD_REQUEST, why);
    let wanted = request.headers().get(UPGRADE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !wanted.eq_ignore_ascii_case("websocket") {
        let versions = VERSIONS.join(", ");
        let wanted = if wanted.is_empty() { "plain HTTP" } else { wanted };
        return Err(bad(format!(
            "{wanted} is not spoken here, only WebSocket ({versions}), as kubectl does from version 1.31 on"
        )));
    }
    let mut response = create_response_with_body(request, || Empty::new().boxed_unsync())
        .map_err(|cause| bad(format!("this is no WebSocket handshake: {}", chain(&cause))))?;
    let offered = request.headers().get_all(SEC_WEBSOCKET_PROTOCOL);
    let version = channels::choose(offered.iter().filter_map(|value| value.to_str().ok()))
        .ok_or_else(|| bad(format!("none of these protocols is offered: {}", VERSIONS.join(", "))))?;
    response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(version));
    Ok((response, hyper::upgrade::on(request)))
}

/// Talks until the command or the connection ends.
pub async fn run(connection: OnUpgrade, talk: Talk) {
    let connection = match connection.await {
        Ok(connection) => TokioIo::new(connection),
        Err(cause) => return tracing::debug!(cause = chain(&cause), "a caller left before the conversation"),
    };
    let config = WebSocketConfig::default().max_message_size(Some(LONGEST)).max_frame_size(Some(LONGEST));
    let socket = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
    let (to, from) = socket.split();
    let Talk { stdin, stdout, stderr, terminal, outcome } = talk;
    let mut listening = std::pin::pin!(listen(from, stdin, terminal));
    let said = tokio::select! {
        () = &mut listening => return,
        said = speak(to, stdout, stderr, outcome) => said,
    };
    match said {
        // Whether the client says good-bye or not, it was told everything.
        Ok(()) => drop(tokio::time::timeout(GOOD_BYE, listening).await),
        Err(cause) => tracing::debug!(cause = chain(&cause), "a conversation was cut"),
    }
}

/// Passes on what the client says, until it says no more.
async fn listen(mut from: SplitStream<Socket>, mut stdin: Option<Input>, terminal: Option<Terminal>) {
    // The time that standard input takes does not count: nothing is heard meanwhile, whoever speaks.
    while let Ok(Some(Ok(message))) = tokio::time::timeout(SILENCE, from.next()).await {
        let payload = match message {
            Message::Binary(payload) => payload,
            Message::Text(payload) => Bytes::from(payload),
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
        };
        match Said::parse(&payload) {
            Said::Input(bytes) => {
                if let Some(input) = &mut stdin
                    && input.write_all(&bytes).await.is_err()
                {
                    // The command reads no more; that is its own affair.
                    stdin = None;
                }
            }
            Said::InputEnds => {
                if let (Some(mut input), Some(_)) = (stdin.take(), &terminal) {
                    // A terminal cannot be half closed. One that is gone needs no end.
                    let _ = input.write_all(&[END_OF_TRANSMISSION]).await;
                }
            }
            Said::Size { rows, columns } => {
                if let Some(Err(cause)) = terminal.as_ref().map(|terminal| terminal.resize(rows, columns)) {
                    tracing::debug!(%cause, "a terminal keeps its size");
                }
            }
            Said::Nothing => {}
        }
    }
}

/// Tells the client what comes, and at last how it ended.
async fn speak(
    mut to: SplitSink<Socket, Message>,
    mut stdout: Option<Output>,
    mut stderr: Option<Output>,
    mut outcome: Pin<Box<dyn Future<Output = Outcome> + Send>>,
) -> Result<(), tungstenite::Error> {
    let (mut out, mut err) = (vec![0; 32 * 1024], vec![0; 32 * 1024]);
    let mut pulse = tokio::time::interval(PULSE);
    let mut ended = None;
    while ended.is_none() || stdout.is_some() || stderr.is_some() {
        let said = tokio::select! {
            how = &mut outcome, if ended.is_none() => {
                ended = Some(how);
                continue;
            }
            count = read(&mut stdout, &mut out), if stdout.is_some() => (STDOUT, &out[..count]),
            count = read(&mut stderr, &mut err), if stderr.is_some() => (STDERR, &err[..count]),
            _ = pulse.tick() => {
                to.send(Message::Ping(Bytes::new())).await?;
                continue;
            }
        };
        if let (channel, bytes @ [_, ..]) = said {
            to.send(Message::Binary(channels::message(channel, bytes))).await?;
        }
    }
    // Dropped first: whatever it was, it is over when the client learns of it.
    drop(outcome);
    let last = ended.unwrap_or(Outcome::Success).message();
    to.feed(Message::Binary(last)).await?;
    // Clients take any other code, and none, for a failure.
    let normal = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
    to.send(Message::Close(Some(normal))).await
}

/// What comes next of a stream. A stream that ends is none from then on.
async fn read(stream: &mut Option<Output>, buffer: &mut [u8]) -> usize {
    let Some(source) = stream else { return 0 };
    match source.read(buffer).await {
        Ok(count) if count > 0 => return count,
        Ok(_) => {}
        // The far end of a terminal is closed: that is how a terminal ends.
        Err(cause) if cause.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {}
        Err(cause) if cause.kind() == io::ErrorKind::BrokenPipe => {}
        Err(cause) => tracing::debug!(%cause, "an output cannot be read any more"),
    }
    *stream = None;
    0
}
