//! Bytes through TLS: read in batches, sealed or opened in place, written in batches. Nothing is allocated on the way.

use std::io::{IoSlice, Read as _, Write as _};
use std::net::Shutdown;
use std::ops::Range;

use socket2::Socket;

use super::courtesy::Courtesy;
use super::{Joint, Wait};
use crate::error::Broken;
use crate::line::Line;
use crate::record::{Incoming, Outgoing, Received};

/// Pieces of plaintext that are written with one call. Full records come in fewer.
const PIECES: usize = 64;

impl Joint {
    /// From the unix socket to the other node.
    pub(crate) fn send_encrypted(&self, mut outgoing: Outgoing) -> Result<(), Broken> {
        let Self { line, near, far, .. } = self;
        let mut courtesy = Courtesy::default();
        let wait = Wait::on(near).map_err(Broken::Near)?;
        // Whether the last read left more behind, perhaps. Nothing was read yet, and from most lines nothing ever comes.
        let mut full = false;
        loop {
            let mut gaps = outgoing.gaps();
            let length = line.patiently(Broken::Near, || {
                if !full {
                    wait.for_bytes()?;
                }
                (&**near).read_vectored(&mut gaps)
            })?;
            full = length >= gaps[0].len();
            courtesy.moved(length);
            if length == 0 {
                write_all(line, far, outgoing.close()?)?;
                return far.shutdown(Shutdown::Write).map_err(Broken::Far);
            }
            write_all(line, far, outgoing.seal(length)?)?;
            self.sent(length);
            outgoing.grow_if_filled_by(length);
            if let Some(renewal) = outgoing.renew_key()? {
                write_all(line, far, renewal)?;
            }
        }
    }

    /// From the other node to the unix socket.
    pub(crate) fn receive_encrypted(&self, mut incoming: Incoming) -> Result<(), Broken> {
        let mut courtesy = Courtesy::default();
        loop {
            // What came behind the handshake, or behind the answer, is there already.
            if self.hand_on(&mut incoming)? {
                return self.near.shutdown(Shutdown::Write).map_err(Broken::Near);
            }
            courtesy.moved(receive(&self.line, &self.far, &mut incoming)?);
        }
    }

    /// Writes all that can be opened; says whether it was the last.
    pub(crate) fn hand_on(&self, incoming: &mut Incoming) -> Result<bool, Broken> {
        let mut pieces: [Range<usize>; PIECES] = [const { 0..0 }; PIECES];
        let mut count = 0;
        loop {
            let opened = incoming.open()?;
            if let Some(Received::Data(range)) = &opened {
                pieces[count] = range.clone();
                count += 1;
            }
            let more = matches!(opened, Some(Received::Data(_)));
            if count == PIECES || (!more && count > 0) {
                self.write_pieces(incoming, &pieces[..count])?;
                count = 0;
            }
            match opened {
                Some(Received::Data(_)) => {}
                Some(Received::Closed) => return Ok(true),
                Some(Received::Alert(alert)) => return Err(Broken::Alert(alert)),
                None => return Ok(false),
            }
        }
    }

    fn write_pieces(&self, incoming: &Incoming, pieces: &[Range<usize>]) -> Result<(), Broken> {
        let mut slices = [IoSlice::new(&[]); PIECES];
        for (slice, range) in slices.iter_mut().zip(pieces) {
            *slice = IoSlice::new(incoming.plain(range.clone()));
        }
        let mut rest = &mut slices[..pieces.len()];
        while !rest.is_empty() {
            let length = self.line.patiently(Broken::Near, || (&*self.near).write_vectored(rest))?;
            IoSlice::advance_slices(&mut rest, length);
            self.received(length);
        }
        Ok(())
    }
}

/// Receives once, however much is there, and says how much.
pub(crate) fn receive(line: &Line, far: &Socket, incoming: &mut Incoming) -> Result<usize, Broken> {
    let room = incoming.room();
    match line.patiently(Broken::Far, || (&*far).read(room))? {
        0 => Err(Broken::Truncated),
        length => {
            incoming.received(length);
            Ok(length)
        }
    }
}

pub(crate) fn write_all(line: &Line, to: &Socket, mut bytes: &[u8]) -> Result<(), Broken> {
    while !bytes.is_empty() {
        let length = line.patiently(Broken::Far, || (&*to).write(bytes))?;
        bytes = &bytes[length..];
    }
    Ok(())
}
