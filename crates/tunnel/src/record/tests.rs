//! The record layer against itself, with keys of our own making. That it is TLS which comes out, real rustls says in
//! `tests/interoperation.rs`.

use std::io::Read as _;

use proptest::prelude::*;
use tokio_rustls::rustls::crypto::cipher::{AeadKey, Iv};

use super::*;

/// Keys that count upwards: both sides get the same ones.
struct Counting(u8, u8);

fn secrets(seed: u8) -> (u64, ConnectionTrafficSecrets) {
    (0, ConnectionTrafficSecrets::Aes256Gcm { key: AeadKey::from([seed; 32]), iv: Iv::new([seed; 12]) })
}

impl Keys for Counting {
    fn next_sending(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        self.0 += 1;
        Ok(secrets(self.0))
    }

    fn next_receiving(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        self.1 += 1;
        Ok(secrets(self.1))
    }

    fn keep_ticket(&mut self, ticket: &[u8]) -> Result<(), rustls::Error> {
        if ticket == b"good" { Ok(()) } else { Err(rustls::Error::DecryptError) }
    }
}

fn pair() -> (Outgoing, Incoming) {
    let keys = || -> SharedKeys { Arc::new(Mutex::new(Counting(1, 1))) };
    (Outgoing::new(secrets(1), keys()).unwrap(), Incoming::new(secrets(1), keys(), &[]).unwrap())
}

/// Sends all of `bytes` in batches as a socket might give them.
fn wire(outgoing: &mut Outgoing, mut bytes: &[u8], batch: usize) -> Vec<u8> {
    let mut wire = Vec::new();
    while !bytes.is_empty() {
        wire.extend(outgoing.renew_key().unwrap().unwrap_or_default());
        let length = bytes.take(batch as u64).read_vectored(&mut outgoing.gaps()).unwrap();
        wire.extend(outgoing.seal(length).unwrap());
        outgoing.grow_if_filled_by(length);
        bytes = &bytes[length..];
    }
    wire.extend(outgoing.close().unwrap());
    wire
}

/// Receives `wire` in pieces of `step` bytes, to the end or to an error.
fn plain(incoming: &mut Incoming, mut wire: &[u8], step: usize) -> Result<(Vec<u8>, bool), RecordError> {
    let mut plain = Vec::new();
    loop {
        while let Some(received) = incoming.open()? {
            match received {
                Received::Data(range) => plain.extend(incoming.plain(range)),
                Received::Closed => return Ok((plain, true)),
                Received::Alert(alert) => panic!("alert {alert}"),
            }
        }
        let room = incoming.room();
        let length = room.len().min(step).min(wire.len());
        room[..length].copy_from_slice(&wire[..length]);
        incoming.received(length);
        wire = &wire[length..];
        if length == 0 {
            return Ok((plain, false));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn bytes_come_out_as_they_went_in_however_they_are_cut(
        length in 0..600_000_usize, batch in 1..300_000_usize, step in 1..300_000_usize, seed: u8,
    ) {
        let (batch, step) = (batch.max(length / 64), step.max(length / 64));
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().step_by(7).skip(seed.into()).take(length).collect();
        let (mut outgoing, mut incoming) = pair();
        let wire = wire(&mut outgoing, &bytes, batch);
        let (plain, closed) = plain(&mut incoming, &wire, step).unwrap();
        prop_assert!(closed);
        prop_assert!(plain == bytes);
    }

    #[test]
    fn one_flipped_bit_anywhere_is_noticed(position: prop::sample::Index, bit in 0..8_u8) {
        let (mut outgoing, mut incoming) = pair();
        let mut wire = wire(&mut outgoing, &vec![7; 40_000], 40_000);
        let position = position.index(wire.len());
        wire[position] ^= 1 << bit;
        // A longer length may also leave the reader waiting for bytes that never come, which ends as a truncation.
        let outcome = plain(&mut incoming, &wire, usize::MAX);
        prop_assert!(!matches!(outcome, Ok((_, true))));
    }
}

#[test]
fn records_cannot_be_left_out_or_repeated() {
    let (mut outgoing, _) = pair();
    let records: Vec<Vec<u8>> = (0..3).map(|number| outgoing.data(&[number]).unwrap().to_vec()).collect();
    let read = |order: &[usize]| {
        let wire: Vec<u8> = order.iter().flat_map(|index| records[*index].clone()).collect();
        plain(&mut pair().1, &wire, usize::MAX)
    };
    assert!(read(&[0, 1, 2]).is_ok());
    for order in [&[1_usize, 0][..], &[0, 0], &[0, 2]] {
        assert!(matches!(read(order), Err(RecordError::Tag)), "{order:?}");
    }
}

#[test]
fn keys_are_renewed_on_the_way_and_nobody_notices() {
    let (mut outgoing, mut incoming) = pair();
    outgoing.key_life = 3 * BATCH as u64;
    let bytes: Vec<u8> = (0..4_000_000_u32).map(|index| index.to_le_bytes()[1]).collect();
    let wire = wire(&mut outgoing, &bytes, 10_000);
    assert!(plain(&mut incoming, &wire, 100_000).unwrap().0 == bytes);
    assert!(outgoing.cipher.sequence() < 3 * BATCH as u64);
    let renewed = |keys: &SharedKeys| {
        let next = keys.lock().unwrap().next_sending().unwrap().1;
        match next {
            ConnectionTrafficSecrets::Aes256Gcm { key, .. } => key.as_ref()[0],
            _ => 0,
        }
    };
    assert!(renewed(&outgoing.keys) > 10);
}

#[test]
fn what_this_side_never_sends_is_refused() {
    let refused = |kind: u8, bytes: &[u8]| {
        let (mut outgoing, mut incoming) = pair();
        let wire = outgoing.small(kind, bytes).unwrap().to_vec();
        plain(&mut incoming, &wire, usize::MAX).err()
    };
    let handshakes: [&[u8]; 5] = [
        &[24, 0, 0, 1, 1],
        &[24, 0, 0, 1, 0, 24, 0, 0, 1, 0],
        &[4, 0, 0],
        &[4, 0, 0, 9, b'g'],
        &[13, 0, 0, 0],
    ];
    let others: [(u8, &[u8]); 2] = [(20, &[1]), (ALERT, &[1])];
    for (kind, bytes) in handshakes.map(|bytes| (HANDSHAKE, bytes)).into_iter().chain(others) {
        assert!(matches!(refused(kind, bytes), Some(RecordError::Kind)), "{kind} {bytes:?}");
    }
    assert!(refused(HANDSHAKE, b"\x04\0\0\x04good").is_none());
    assert!(refused(HANDSHAKE, b"\x04\0\0\x04good\x18\0\0\x01\0").is_none());
    assert!(matches!(refused(HANDSHAKE, b"\x04\0\0\x03bad"), Some(RecordError::Ticket(_))));
    let long = [DATA, 3, 3, 0xff, 0xff];
    assert!(matches!(plain(&mut pair().1, &long, 5), Err(RecordError::Length)));
    let unsealed = [HANDSHAKE, 3, 3, 0, 1, 0];
    assert!(matches!(plain(&mut pair().1, &unsealed, 6), Err(RecordError::Kind)));
}
