//! The handshake: rustls decides, this file carries its messages over a blocking socket until the keys are there.
//!
//! rustls is shown one record at a time, and nothing behind the last one of the handshake: what follows is the guest's, and belongs to
//! `record`. Every wait ends at the deadline, however slowly the other side talks.

use std::io::{self, Read, Write as _};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls_pki_types::{CertificateDer, ServerName};
use socket2::Socket;
use tokio_rustls::rustls::client::{ClientConfig, ClientConnectionData, UnbufferedClientConnection};
use tokio_rustls::rustls::server::{ServerConfig, ServerConnectionData, UnbufferedServerConnection};
use tokio_rustls::rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, UnbufferedConnectionCommon, UnbufferedStatus,
};
use tokio_rustls::rustls::{self, ExtractedSecrets, HandshakeKind};

use crate::error::HandshakeError;
use crate::hello::PROTOCOL;
use crate::record::{Incoming, Outgoing, SharedKeys, whole_record};

/// All that the other side may say in a handshake, its certificates included.
const LONGEST: usize = 64 << 10;

/// A finished handshake: the keys in use, and the certificate that the other side showed.
pub(crate) struct Session {
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
    pub(crate) certificate: CertificateDer<'static>,
    /// What is still to be sent, together with whatever comes next: nobody waits for it.
    pub(crate) unsent: Vec<u8>,
    /// Whether an earlier session went on. Nobody has looked at the certificate's dates then: reading the member from it does.
    pub(crate) resumed: bool,
}

/// A socket that is read until a deadline.
pub(crate) struct Timed<'a> {
    pub(crate) socket: &'a Socket,
    pub(crate) deadline: Instant,
}

impl Timed<'_> {
    fn remaining(&self) -> io::Result<Duration> {
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(remaining) }
    }

    fn send(&self, bytes: &[u8]) -> Result<(), HandshakeError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let sent = self.remaining().and_then(|remaining| {
            self.socket.set_write_timeout(Some(remaining))?;
            let mut socket = self.socket;
            socket.write_all(bytes)
        });
        sent.map_err(failed)
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.remaining()?))?;
        let mut socket = self.socket;
        socket.read(buffer)
    }
}

/// Whether a read or write ended because its time was up.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

fn failed(error: io::Error) -> HandshakeError {
    if is_timeout(&error) { HandshakeError::Timeout } else { HandshakeError::Ended(error) }
}

/// The listening side; `received` begins with the first message of the other.
pub(crate) fn accept(
    config: Arc<ServerConfig>,
    socket: &mut Timed<'_>,
    received: Vec<u8>,
) -> Result<Session, HandshakeError> {
    let mut connection = UnbufferedServerConnection::new(config).map_err(HandshakeError::Tls)?;
    let ends = drive(&mut *connection, socket, received)?;
    let peer = Peer::of(&connection)?;
    let (secrets, keys) = connection.dangerous_into_kernel_connection().map_err(HandshakeError::Tls)?;
    session(secrets, Arc::new(Mutex::new(keys)), ends, peer)
}

/// The dialling side.
pub(crate) fn connect(
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    socket: &mut Timed<'_>,
) -> Result<Session, HandshakeError> {
    let mut connection = UnbufferedClientConnection::new(config, name).map_err(HandshakeError::Tls)?;
    let mut ends = drive(&mut *connection, socket, Vec::new())?;
    // The listening side waits for this to know who is there.
    socket.send(&std::mem::take(&mut ends.unsent))?;
    let peer = Peer::of(&connection)?;
    let (secrets, keys) = connection.dangerous_into_kernel_connection().map_err(HandshakeError::Tls)?;
    session(secrets, Arc::new(Mutex::new(keys)), ends, peer)
}

/// What the handshake found out about the other side.
struct Peer {
    certificate: CertificateDer<'static>,
    resumed: bool,
}

impl Peer {
    fn of<Side>(connection: &UnbufferedConnectionCommon<Side>) -> Result<Self, HandshakeError> {
        if connection.alpn_protocol() != Some(PROTOCOL) {
            return Err(HandshakeError::Protocol);
        }
        let shown = connection.peer_certificates().and_then(<[_]>::first);
        let certificate = shown.ok_or(HandshakeError::Unexpected)?.clone().into_owned();
        Ok(Self { certificate, resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed) })
    }
}

fn session(
    secrets: ExtractedSecrets,
    keys: SharedKeys,
    Ends { behind, unsent }: Ends,
    Peer { certificate, resumed }: Peer,
) -> Result<Session, HandshakeError> {
    Ok(Session {
        outgoing: Outgoing::new(secrets.tx, Arc::clone(&keys)).map_err(HandshakeError::Keys)?,
        incoming: Incoming::new(secrets.rx, keys, &behind).map_err(HandshakeError::Keys)?,
        certificate,
        unsent,
        resumed,
    })
}

trait Process<Side> {
    fn process<'c, 'i>(&'c mut self, records: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Side>;
}

impl Process<ClientConnectionData> for UnbufferedConnectionCommon<ClientConnectionData> {
    fn process<'c, 'i>(
        &'c mut self,
        records: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, ClientConnectionData> {
        self.process_tls_records(records)
    }
}

impl Process<ServerConnectionData> for UnbufferedConnectionCommon<ServerConnectionData> {
    fn process<'c, 'i>(
        &'c mut self,
        records: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, ServerConnectionData> {
        self.process_tls_records(records)
    }
}

enum Next {
    Go,
    MoreInput,
    Done,
    Failed(HandshakeError),
}

/// What a handshake leaves on the way.
struct Ends {
    /// Received behind it.
    behind: Vec<u8>,
    /// Its last words.
    unsent: Vec<u8>,
}

/// Runs the handshake to its end. What is to be sent leaves when the other side must answer it, in one piece: every piece wakes
/// someone there.
fn drive<Side>(
    connection: &mut UnbufferedConnectionCommon<Side>,
    socket: &mut Timed<'_>,
    mut input: Vec<u8>,
) -> Result<Ends, HandshakeError>
where
    UnbufferedConnectionCommon<Side>: Process<Side>,
{
    let mut output = Vec::new();
    // How much of the input rustls has been shown.
    let mut shown = 0;
    loop {
        let UnbufferedStatus { discard, state } = connection.process(&mut input[..shown]);
        let next = match state {
            Ok(ConnectionState::EncodeTlsData(message)) => encode(message, &mut output),
            Ok(ConnectionState::TransmitTlsData(transmit)) => {
                transmit.done();
                Next::Go
            }
            Ok(ConnectionState::BlockedHandshake) => Next::MoreInput,
            Ok(ConnectionState::WriteTraffic(_)) => Next::Done,
            Ok(_) => Next::Failed(HandshakeError::Unexpected),
            Err(error) => Next::Failed(HandshakeError::Tls(error)),
        };
        input.drain(..discard);
        shown -= discard;
        match next {
            Next::Go => {}
            // A server may send before it knows who is there. This one does not.
            Next::Done if !connection.is_handshaking() => return Ok(Ends { behind: input, unsent: output }),
            Next::Done | Next::MoreInput => shown += next_record(socket, &mut input, shown, &mut output)?,
            Next::Failed(error) => {
                say_why(connection, socket, &mut input[..shown]);
                return Err(error);
            }
        }
    }
}

fn encode<Side>(mut message: EncodeTlsData<'_, Side>, output: &mut Vec<u8>) -> Next {
    let start = output.len();
    loop {
        match message.encode(&mut output[start..]) {
            Ok(length) => {
                output.truncate(start + length);
                return Next::Go;
            }
            Err(EncodeError::InsufficientSize(needed)) => output.resize(start + needed.required_size, 0),
            Err(EncodeError::AlreadyEncoded) => return Next::Failed(HandshakeError::Unexpected),
        }
    }
}

/// The length of the record that follows what was shown; receives until all of it is there, for which the other side must have been
/// told all.
fn next_record(
    socket: &mut Timed<'_>,
    input: &mut Vec<u8>,
    shown: usize,
    output: &mut Vec<u8>,
) -> Result<usize, HandshakeError> {
    let mut piece = [0; 8192];
    loop {
        if let Some(length) = whole_record(&input[shown..]).map_err(HandshakeError::Keys)? {
            return Ok(length);
        }
        socket.send(&std::mem::take(output))?;
        let length = match socket.read(&mut piece) {
            Ok(0) => return Err(HandshakeError::Ended(io::ErrorKind::UnexpectedEof.into())),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(failed(error)),
        };
        input.extend_from_slice(&piece[..length]);
        if input.len() > LONGEST {
            return Err(HandshakeError::Unexpected);
        }
    }
}

/// Sends the alert that rustls made of a failure, so that the other side can say more than "it broke".
///
/// rustls is asked once: it hands out what it has to say before it looks at its input. Asked again it would read on, and what broke
/// the handshake would break it a second time, which rustls does not expect. It needs the input all the same: where messages that
/// it has not handled yet lie is remembered by their place in it.
fn say_why<Side>(connection: &mut UnbufferedConnectionCommon<Side>, socket: &mut Timed<'_>, input: &mut [u8])
where
    UnbufferedConnectionCommon<Side>: Process<Side>,
{
    let mut output = Vec::new();
    if let Ok(ConnectionState::EncodeTlsData(message)) = connection.process(input).state {
        // What cannot be encoded is not sent.
        let _ = encode(message, &mut output);
    }
    // The handshake has failed already; that the other side does not hear why changes nothing.
    let _ = socket.send(&output);
}

/// Whether a handshake failed because of the certificate's dates.
pub(crate) fn is_expired(error: &rustls::Error) -> bool {
    use rustls::CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    let rustls::Error::InvalidCertificate(problem) = error else {
        return false;
    };
    matches!(problem, Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use identity::{Authority, Identity, Subject};

    use super::*;
    use crate::credentials::{Credentials, Mode};
    use crate::record::Received;

    /// Shakes hands over a pair of sockets, and carries a word from the server to the client: whether each side resumed.
    fn shake(credentials: &Credentials, name: &str) -> [bool; 2] {
        let (here, there) = UnixStream::pair().unwrap();
        let (here, there) = (Socket::from(here), Socket::from(there));
        let Mode::Tls { server, client } = &*credentials.mode() else { panic!("no TLS") };
        let (server, client, name) = (server.clone(), client.clone(), name.to_owned());
        let deadline = Instant::now() + Duration::from_secs(20);
        let serving = thread::spawn(move || {
            let mut session = accept(server, &mut Timed { socket: &there, deadline }, Vec::new()).unwrap();
            (&there).write_all(&session.unsent).unwrap();
            (&there).write_all(session.outgoing.data(b"word").unwrap()).unwrap();
            session.resumed
        });
        let mut timed = Timed { socket: &here, deadline };
        let mut session = connect(client, name.try_into().unwrap(), &mut timed).unwrap();
        let word = loop {
            if let Some(received) = session.incoming.open().unwrap() {
                break received;
            }
            let length = timed.read(session.incoming.room()).unwrap();
            session.incoming.received(length);
        };
        assert!(matches!(word, Received::Data(range) if session.incoming.plain(range.clone()) == b"word"));
        [serving.join().unwrap(), session.resumed]
    }

    #[test]
    fn a_handshake_that_breaks_breaks_once() {
        let authority = Authority::generate("authority", Duration::from_hours(1)).unwrap();
        let subject = Subject { common_name: "node".into(), ..Subject::default() };
        let identity: Identity = authority.issue(&subject, Duration::from_hours(1)).unwrap();
        let credentials = Credentials::tls(&identity, &[authority.certificate()]).unwrap();
        let said = include_bytes!("../../../fuzz/corpus/hello/one-alert-only");
        assert!(!crate::fuzzing::serve(&credentials, said));
    }

    #[test]
    fn a_session_is_resumed_for_the_same_channel_and_the_same_credentials_only() {
        let authority = Authority::generate("authority", Duration::from_hours(1)).unwrap();
        let subject = Subject { common_name: "node".into(), ..Subject::default() };
        let identity: Identity = authority.issue(&subject, Duration::from_hours(1)).unwrap();
        let credentials = Credentials::tls(&identity, &[authority.certificate()]).unwrap();
        let [one, other] = ["49152.one.migration", "49152.other.migration"];
        assert_eq!(shake(&credentials, one), [false, false]);
        assert_eq!(shake(&credentials, one), [true, true]);
        assert_eq!(shake(&credentials, one), [true, true], "and a resumed one can be resumed");
        assert_eq!(shake(&credentials, other), [false, false]);
        credentials.replace_with_tls(&identity, &[authority.certificate()]).unwrap();
        assert_eq!(shake(&credentials, one), [false, false]);
    }
}
