//! What a connection without TLS says first: where it wants to go, and by what right.
//!
//! ```text
//! "godwit" 0x00 version(1)   length(1) migration UID   length(1) channel   length(1) token
//! ```
//!
//! The channel is two bytes, the highest first; the token is its 32 bytes. Whoever reads it reads not one byte more than it
//! has, because what follows belongs to the guest. The listener answers with one byte, [`ACCEPTED`], once the destination is
//! connected; a refusal is a closed connection, which tells a stranger nothing.

use std::io::Read;

use crate::route::{Channel, Migration, Route};
use crate::token::Token;

const MAGIC: [u8; 8] = *b"godwit\0\x01";

/// The listener's answer, in TLS and without: the destination is connected. Connections are dialled one after the other, each
/// when the one before has been answered, so that they arrive in the order in which they were made.
pub(crate) const ACCEPTED: u8 = 1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preamble {
    pub route: Route,
    pub token: Token,
}

#[derive(Debug, thiserror::Error)]
pub enum PreambleError {
    #[error("it does not begin as a connection of this version does")]
    Magic,
    #[error("its {field} is not what it must be")]
    Field { field: &'static str },
    #[error("it ends early, or cannot be read")]
    Read(#[source] std::io::Error),
}

impl Preamble {
    pub fn encode(&self) -> Vec<u8> {
        let channel = self.route.channel.0.to_be_bytes();
        let mut bytes = MAGIC.to_vec();
        for field in [self.route.migration.as_str().as_bytes(), &channel, self.token.bytes()] {
            // None is longer than 63 bytes: see `Migration` and `Token`.
            bytes.push(u8::try_from(field.len()).unwrap_or(u8::MAX));
            bytes.extend_from_slice(field);
        }
        bytes
    }

    pub fn read(from: &mut impl Read) -> Result<Self, PreambleError> {
        let mut magic = [0; MAGIC.len()];
        from.read_exact(&mut magic).map_err(PreambleError::Read)?;
        if magic != MAGIC {
            return Err(PreambleError::Magic);
        }
        let mut buffer = [0; 255];
        let migration = field(from, &mut buffer)?;
        let migration = std::str::from_utf8(migration).ok().and_then(|uid| Migration::new(uid).ok());
        let migration = migration.ok_or(PreambleError::Field { field: "migration" })?;
        let channel = <[u8; 2]>::try_from(field(from, &mut buffer)?);
        let channel = channel.map_err(|_| PreambleError::Field { field: "channel" })?;
        let token = <[u8; Token::LENGTH]>::try_from(field(from, &mut buffer)?);
        let token = token.map_err(|_| PreambleError::Field { field: "token" })?;
        let route = Route::new(migration, Channel(u16::from_be_bytes(channel)));
        Ok(Self { route, token: Token::from_bytes(token) })
    }
}

fn field<'a>(from: &mut impl Read, buffer: &'a mut [u8; 255]) -> Result<&'a [u8], PreambleError> {
    let mut length = [0];
    from.read_exact(&mut length).map_err(PreambleError::Read)?;
    let value = &mut buffer[..usize::from(length[0])];
    from.read_exact(value).map_err(PreambleError::Read)?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn preamble(uid: &str, channel: u16, token: [u8; 32]) -> Preamble {
        let route = Route::new(Migration::new(uid).unwrap(), Channel(channel));
        Preamble { route, token: Token::from_bytes(token) }
    }

    proptest! {
        #[test]
        fn it_is_read_as_it_was_written_and_not_a_byte_more(
            uid in "[a-z0-9]{1,63}", channel: u16, token: [u8; 32], guest: Vec<u8>,
        ) {
            let written = preamble(&uid, channel, token);
            let wire = [written.encode(), guest.clone()].concat();
            let mut rest = wire.as_slice();
            prop_assert_eq!(Preamble::read(&mut rest).unwrap(), written);
            prop_assert_eq!(rest, guest.as_slice());
        }

        #[test]
        fn a_cut_one_is_refused(token: [u8; 32], cut in 0..60_usize) {
            let wire = preamble("5f0c", 49152, token).encode();
            let cut = cut.min(wire.len() - 1);
            prop_assert!(Preamble::read(&mut &wire[..cut]).is_err());
        }
    }

    #[test]
    fn other_versions_and_misshapen_fields_are_refused() {
        let good = preamble("5f0c", 7, [9; 32]).encode();
        let changed = |index: usize, value: u8| {
            let mut wire = good.clone();
            wire[index] = value;
            Preamble::read(&mut wire.as_slice())
        };
        assert!(Preamble::read(&mut good.as_slice()).is_ok());
        assert!(matches!(changed(0, b'G'), Err(PreambleError::Magic)));
        assert!(matches!(changed(7, 2), Err(PreambleError::Magic)));
        assert!(matches!(changed(9, b'.'), Err(PreambleError::Field { field: "migration" })));
        assert!(matches!(changed(8, 0), Err(PreambleError::Field { field: "migration" })));
        assert!(matches!(changed(13, 3), Err(PreambleError::Field { field: "channel" })));
        assert!(changed(16, 31).is_err());
    }
}
