//! The secret that stands in for a certificate when TLS is disabled.
//!
//! A token belongs to one registration: it is made with it, given to the source by way of the API, valid for every connection of
//! that migration from the source's address, and worthless once the registration has ended. It is never logged.

use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;

use ring::rand::{SecureRandom as _, SystemRandom};
use subtle::ConstantTimeEq as _;

/// 256 random bits. Written as hexadecimal digits.
#[derive(Clone)]
pub struct Token([u8; Token::LENGTH]);

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("the system gave no random bytes")]
    Random,
    #[error("a token is {} hexadecimal digits", 2 * Token::LENGTH)]
    Form,
}

impl Token {
    pub const LENGTH: usize = 32;

    pub fn generate() -> Result<Self, TokenError> {
        let mut bytes = [0; Self::LENGTH];
        SystemRandom::new().fill(&mut bytes).map_err(|_| TokenError::Random)?;
        Ok(Self(bytes))
    }

    pub(crate) fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// For the one whom it is given to. Nothing else prints it.
    pub fn reveal(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

/// In constant time: how long a comparison takes tells nothing about where two tokens differ.
impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Token(…)")
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let mut bytes = [0; Self::LENGTH];
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return Err(TokenError::Form);
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            let (high, low) = digit(*high).zip(digit(*low)).ok_or(TokenError::Form)?;
            *byte = high << 4 | low;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_told_from_every_other_and_shown_only_on_demand() {
        let (one, two) = (Token::generate().unwrap(), Token::generate().unwrap());
        assert_ne!(one, two);
        assert_eq!(one.reveal().parse::<Token>().unwrap(), one);
        assert!(!format!("{one:?}").contains(&one.reveal()[..4]));
        for bad in ["", "00", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64), &"é".repeat(32)] {
            assert!(bad.parse::<Token>().is_err(), "{bad:?}");
        }
    }
}
