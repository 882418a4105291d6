//! What a peer says of itself: the preamble of a connection without TLS (first byte even), and the member that a certificate names (odd).

use identity::Member;
use tunnel::Preamble;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    if first % 2 == 1 {
        if let Ok(member) = Member::of_certificate(rest) {
            assert_eq!(member.to_string().parse(), Ok(member));
        }
        return;
    }
    let mut left = rest;
    if let Ok(preamble) = Preamble::read(&mut left) {
        // What was accepted is what would have been sent, and what follows was left alone.
        assert_eq!(preamble.encode(), rest[..rest.len() - left.len()]);
    }
}
