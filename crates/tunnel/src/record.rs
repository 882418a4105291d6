//! The record layer of TLS 1.3, for bulk: many records at once, sealed and opened where they lie.
//!
//! rustls makes the handshake and the keys; from then on bytes pass here, because its own record layer allocates for every
//! record and copies it twice. Plaintext is read from a socket straight into the gaps between record headers, sealed in place, and
//! the whole row of records leaves with one call; the other side does the same backwards.
//!
//! Invariants: a key is replaced long before it has sealed as many records as AES-GCM allows; nothing is handed on before its tag
//! was checked. What this side never sends it does not accept either: handshake messages in pieces, requests for a key update, and
//! whatever else TLS has.

use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_rustls::rustls::client::ClientConnectionData;
use tokio_rustls::rustls::kernel::KernelConnection;
use tokio_rustls::rustls::server::ServerConnectionData;
use tokio_rustls::rustls::{self, ConnectionTrafficSecrets};

use crate::cipher::{Cipher, HEADER, TAG};

/// Plaintext of one record.
const PAYLOAD: usize = 1 << 14;
/// A full record as this side makes them: header, plaintext, one byte that says what it is, tag.
const RECORD: usize = HEADER + PAYLOAD + 1 + TAG;
/// What the other side may add to the plaintext at most.
const EXPANSION: usize = 256;
/// The longest record that may come.
const LONGEST: usize = HEADER + PAYLOAD + EXPANSION;
/// Records in one call of the kernel. Fewer cost more calls; more do not fit the cache between one call and the next.
pub(crate) const BATCH: usize = 16;
/// Records under one key. AES-GCM allows 2^24.5.
const KEY_LIFE: u64 = 1 << 24;

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
const CLOSE_NOTIFY: u8 = 0;
pub(crate) const ACCESS_DENIED: u8 = 49;
const WARNING: u8 = 1;
const FATAL: u8 = 2;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
/// A key update that does not ask for one in return.
const RENEWAL: [u8; 5] = [KEY_UPDATE, 0, 0, 1, 0];

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("a record could not be authenticated")]
    Tag,
    #[error("a record is longer than TLS allows")]
    Length,
    #[error("a record is not of a kind that may come now")]
    Kind,
    #[error("the key cannot be used")]
    Key,
    #[error("the next key could not be derived")]
    NextKey(#[source] rustls::Error),
    #[error("what was given for resuming the session cannot be used")]
    Ticket(#[source] rustls::Error),
}

/// What is left of the handshake: derives the next keys of a session; both directions share it.
pub(crate) trait Keys: Send {
    fn next_sending(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error>;
    fn next_receiving(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error>;
    /// Keeps what the other side gave for resuming the session.
    fn keep_ticket(&mut self, ticket: &[u8]) -> Result<(), rustls::Error>;
}

impl Keys for KernelConnection<ClientConnectionData> {
    fn next_sending(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        self.update_tx_secret()
    }

    fn next_receiving(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        self.update_rx_secret()
    }

    fn keep_ticket(&mut self, ticket: &[u8]) -> Result<(), rustls::Error> {
        self.handle_new_session_ticket(ticket)
    }
}

impl Keys for KernelConnection<ServerConnectionData> {
    fn next_sending(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        self.update_tx_secret()
    }

    fn next_receiving(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        self.update_rx_secret()
    }

    fn keep_ticket(&mut self, _: &[u8]) -> Result<(), rustls::Error> {
        Err(rustls::Error::General("a client gives no session tickets".to_owned()))
    }
}

pub(crate) type SharedKeys = Arc<Mutex<dyn Keys>>;

/// Seals the record whose plaintext of `length` bytes lies behind the header's place; says how long it became.
fn seal(cipher: &mut Cipher, record: &mut [u8], kind: u8, length: usize) -> Result<usize, RecordError> {
    let sealed = length + 1 + TAG;
    let [high, low] = u16::try_from(sealed).map_err(|_| RecordError::Length)?.to_be_bytes();
    let (header, body) = record.split_first_chunk_mut::<HEADER>().ok_or(RecordError::Length)?;
    *header = [DATA, 3, 3, high, low];
    let (plain, rest) = body.split_at_mut_checked(length + 1).ok_or(RecordError::Length)?;
    plain[length] = kind;
    let tag = cipher.seal(*header, plain)?;
    *rest.first_chunk_mut().ok_or(RecordError::Length)? = tag;
    Ok(HEADER + sealed)
}

/// Opens a whole record in place: what it is, and how long its plaintext is, which begins where its body did.
fn open(cipher: &mut Cipher, record: &mut [u8]) -> Result<(u8, usize), RecordError> {
    let (header, body) = record.split_first_chunk_mut::<HEADER>().ok_or(RecordError::Length)?;
    let plain = cipher.open(*header, body)?;
    // Behind the plaintext comes its kind, then padding of zeros.
    let kind = plain.iter().rposition(|byte| *byte != 0).ok_or(RecordError::Kind)?;
    if kind > PAYLOAD {
        return Err(RecordError::Length);
    }
    Ok((plain[kind], kind))
}

/// Records on their way out.
pub(crate) struct Outgoing {
    cipher: Cipher,
    keys: SharedKeys,
    key_life: u64,
    /// Places for full records, one behind the other: one of them, until a read fills it.
    records: Vec<u8>,
}

impl Outgoing {
    pub(crate) fn new(
        secrets: (u64, ConnectionTrafficSecrets),
        keys: SharedKeys,
    ) -> Result<Self, RecordError> {
        Ok(Self { cipher: Cipher::new(secrets)?, keys, key_life: KEY_LIFE, records: vec![0; RECORD] })
    }

    /// Where plaintext is to be read into, in this order.
    pub(crate) fn gaps(&mut self) -> [IoSliceMut<'_>; BATCH] {
        let mut records = self.records.chunks_exact_mut(RECORD);
        std::array::from_fn(|_| {
            IoSliceMut::new(records.next().map_or(&mut [], |record| &mut record[HEADER..HEADER + PAYLOAD]))
        })
    }

    /// Seals the first so many bytes of the gaps: what is to be sent.
    pub(crate) fn seal(&mut self, mut length: usize) -> Result<&[u8], RecordError> {
        let mut wire = 0;
        for record in self.records.chunks_exact_mut(RECORD) {
            if length == 0 {
                break;
            }
            let payload = length.min(PAYLOAD);
            wire += seal(&mut self.cipher, record, DATA, payload)?;
            length -= payload;
        }
        Ok(&self.records[..wire])
    }

    /// Seals a few bytes of data.
    pub(crate) fn data(&mut self, bytes: &[u8]) -> Result<&[u8], RecordError> {
        self.small(DATA, bytes)
    }

    /// Says that nothing follows.
    pub(crate) fn close(&mut self) -> Result<&[u8], RecordError> {
        self.small(ALERT, &[WARNING, CLOSE_NOTIFY])
    }

    /// Says that this is the end, and why.
    pub(crate) fn alert(&mut self, alert: u8) -> Result<&[u8], RecordError> {
        self.small(ALERT, &[FATAL, alert])
    }

    /// Makes room for more when all of it was used. Most lines move much in one direction only, and some in none.
    pub(crate) fn grow_if_filled_by(&mut self, length: usize) {
        if length == PAYLOAD && self.records.len() == RECORD {
            self.records.resize(BATCH * RECORD, 0);
        }
    }

    /// Takes the next key when this one has sealed enough: what must be sent before anything else.
    pub(crate) fn renew_key(&mut self) -> Result<Option<&[u8]>, RecordError> {
        if self.cipher.sequence() + (BATCH as u64) < self.key_life {
            return Ok(None);
        }
        let length = self.small(HANDSHAKE, &RENEWAL)?.len();
        let next = self.keys.lock().unwrap_or_else(PoisonError::into_inner).next_sending();
        self.cipher = Cipher::new(next.map_err(RecordError::NextKey)?)?;
        Ok(Some(&self.records[..length]))
    }

    fn small(&mut self, kind: u8, bytes: &[u8]) -> Result<&[u8], RecordError> {
        self.records[HEADER..].get_mut(..bytes.len()).ok_or(RecordError::Length)?.copy_from_slice(bytes);
        let length = seal(&mut self.cipher, &mut self.records, kind, bytes.len())?;
        Ok(&self.records[..length])
    }
}

/// What came in one record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Plaintext, to be had from [`Incoming::plain`].
    Data(Range<usize>),
    /// Nothing follows, and all was received.
    Closed,
    Alert(u8),
}

/// Records on their way in.
pub(crate) struct Incoming {
    cipher: Cipher,
    keys: SharedKeys,
    /// Room for one record of any kind, until it is filled once.
    bytes: Vec<u8>,
    /// What was received and not opened yet.
    pending: Range<usize>,
    /// Whether the other side has said that nothing follows.
    closed: bool,
}

impl Incoming {
    /// `received` is what came behind the handshake already.
    pub(crate) fn new(
        secrets: (u64, ConnectionTrafficSecrets),
        keys: SharedKeys,
        received: &[u8],
    ) -> Result<Self, RecordError> {
        let mut bytes = received.to_vec();
        bytes.resize(received.len().max(LONGEST), 0);
        Ok(Self { cipher: Cipher::new(secrets)?, keys, bytes, pending: 0..received.len(), closed: false })
    }

    /// Where to receive into. What was handed out before is overwritten: it must have been used.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        let filled = self.pending.end == self.bytes.len();
        self.bytes.copy_within(self.pending.clone(), 0);
        self.pending = 0..self.pending.len();
        // As for sending, most lines never need more.
        if filled && self.bytes.len() < (BATCH + 1) * LONGEST {
            self.bytes.resize((BATCH + 1) * LONGEST, 0);
        }
        &mut self.bytes[self.pending.end..]
    }

    pub(crate) fn received(&mut self, length: usize) {
        self.pending.end += length;
    }

    /// Opens the next record, if all of it is there.
    pub(crate) fn open(&mut self) -> Result<Option<Received>, RecordError> {
        while !self.closed {
            let pending = &mut self.bytes[self.pending.clone()];
            let Some(length) = whole_record(pending)? else {
                return Ok(None);
            };
            if pending[0] != DATA {
                return Err(RecordError::Kind);
            }
            let (kind, plain) = open(&mut self.cipher, &mut pending[..length])?;
            let start = self.pending.start + HEADER;
            self.pending.start += length;
            match (kind, &self.bytes[start..start + plain]) {
                (DATA, []) => {}
                (DATA, _) => return Ok(Some(Received::Data(start..start + plain))),
                (ALERT, [_, CLOSE_NOTIFY]) => self.closed = true,
                (ALERT, [_, alert]) => return Ok(Some(Received::Alert(*alert))),
                (HANDSHAKE, messages) => {
                    if let Some(next) = after_handshake(messages, &self.keys)? {
                        self.cipher = next;
                    }
                }
                _ => return Err(RecordError::Kind),
            }
        }
        Ok(Some(Received::Closed))
    }

    pub(crate) fn plain(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }
}

/// Messages of a handshake that is over: the cipher for what follows, if it is another.
fn after_handshake(mut messages: &[u8], keys: &SharedKeys) -> Result<Option<Cipher>, RecordError> {
    let mut keys = keys.lock().unwrap_or_else(PoisonError::into_inner);
    let mut next = None;
    while !messages.is_empty() {
        let (head, rest) = messages.split_first_chunk::<4>().ok_or(RecordError::Kind)?;
        let [kind, high, middle, low] = *head;
        let length = u32::from_be_bytes([0, high, middle, low]);
        let length = usize::try_from(length).map_err(|_| RecordError::Length)?;
        let (message, rest) = rest.split_at_checked(length).ok_or(RecordError::Kind)?;
        match (kind, message) {
            (NEW_SESSION_TICKET, ticket) => keys.keep_ticket(ticket).map_err(RecordError::Ticket)?,
            // What follows is under another key: nothing may follow in this record.
            (KEY_UPDATE, [0]) if rest.is_empty() => {
                next = Some(Cipher::new(keys.next_receiving().map_err(RecordError::NextKey)?)?);
            }
            _ => return Err(RecordError::Kind),
        }
        messages = rest;
    }
    Ok(next)
}

/// The length of the record that `bytes` begin with, if all of it is there.
pub(crate) fn whole_record(bytes: &[u8]) -> Result<Option<usize>, RecordError> {
    let Some([_, _, _, high, low]) = bytes.first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    if length > PAYLOAD + EXPANSION {
        return Err(RecordError::Length);
    }
    Ok((bytes.len() >= HEADER + length).then_some(HEADER + length))
}

#[cfg(test)]
#[path = "record/tests.rs"]
mod tests;
