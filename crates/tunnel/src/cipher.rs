//! One direction's key: what seals and opens a record, with the number that makes each one different.
//!
//! Invariant: a nonce is never used twice, because the sequence number only grows.
//!
//! Two libraries, because the cipher is a large part of what a tunnel costs and neither has code made for every kind of processor: AWS-LC has
//! it for registers of 512 bits, ring for the x86 processors whose registers are narrower. Whether the wide ones gain anything is open: on
//! Zen 4 the whole tunnel was as fast with either.

use tokio_rustls::rustls::ConnectionTrafficSecrets;

use crate::record::RecordError;

pub(crate) const HEADER: usize = 5;
pub(crate) const TAG: usize = 16;
const NONCE: usize = 12;

pub(crate) struct Cipher {
    key: Box<dyn Key>,
    iv: [u8; NONCE],
    sequence: u64,
}

impl Cipher {
    pub(crate) fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Result<Self, RecordError> {
        let (suite, key, iv) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Suite::Aes128Gcm, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Suite::Aes256Gcm, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (Suite::Chacha20Poly1305, key, iv),
            _ => return Err(RecordError::Key),
        };
        let make = if has_wide_registers() { aws_lc_rs::key } else { ring::key };
        let key = make(suite, key.as_ref()).ok_or(RecordError::Key)?;
        let iv = iv.as_ref().try_into().map_err(|_| RecordError::Key)?;
        Ok(Self { key, iv, sequence })
    }

    /// The number of the next record.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Seals in place: the tag.
    pub(crate) fn seal(&mut self, header: [u8; HEADER], plain: &mut [u8]) -> Result<[u8; TAG], RecordError> {
        let nonce = self.nonce()?;
        self.key.seal(nonce, header, plain).ok_or(RecordError::Length)
    }

    /// Opens in place what ends with its tag: what was sealed.
    pub(crate) fn open<'a>(
        &mut self,
        header: [u8; HEADER],
        sealed: &'a mut [u8],
    ) -> Result<&'a mut [u8], RecordError> {
        let nonce = self.nonce()?;
        self.key.open(nonce, header, sealed).ok_or(RecordError::Tag)
    }

    fn nonce(&mut self) -> Result<[u8; NONCE], RecordError> {
        let mut nonce = self.iv;
        for (byte, number) in nonce[NONCE - 8..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        self.sequence = self.sequence.checked_add(1).ok_or(RecordError::Key)?;
        Ok(nonce)
    }
}

/// Whether AWS-LC has more than its code for old processors here.
fn has_wide_registers() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("avx512f")
        && std::is_x86_feature_detected!("avx512dq")
        && std::is_x86_feature_detected!("avx512bw")
        && std::is_x86_feature_detected!("avx512vl")
        && std::is_x86_feature_detected!("vaes")
        && std::is_x86_feature_detected!("vpclmulqdq");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[derive(Debug, Clone, Copy)]
enum Suite {
    Aes128Gcm,
    Aes256Gcm,
    Chacha20Poly1305,
}

/// A key of either library.
trait Key: Send {
    fn seal(&self, nonce: [u8; NONCE], header: [u8; HEADER], plain: &mut [u8]) -> Option<[u8; TAG]>;
    fn open<'a>(
        &self,
        nonce: [u8; NONCE],
        header: [u8; HEADER],
        sealed: &'a mut [u8],
    ) -> Option<&'a mut [u8]>;
}

/// Both have the same interface, which is ring's.
macro_rules! library {
    ($library:ident) => {
        mod $library {
            use ::$library::aead::{
                AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
            };

            use super::{HEADER, Key, NONCE, Suite, TAG};

            pub(super) fn key(suite: Suite, key: &[u8]) -> Option<Box<dyn Key>> {
                let algorithm = match suite {
                    Suite::Aes128Gcm => &AES_128_GCM,
                    Suite::Aes256Gcm => &AES_256_GCM,
                    Suite::Chacha20Poly1305 => &CHACHA20_POLY1305,
                };
                let key = UnboundKey::new(algorithm, key).ok()?;
                Some(Box::new(LessSafeKey::new(key)))
            }

            impl Key for LessSafeKey {
                fn seal(
                    &self,
                    nonce: [u8; NONCE],
                    header: [u8; HEADER],
                    plain: &mut [u8],
                ) -> Option<[u8; TAG]> {
                    let nonce = Nonce::assume_unique_for_key(nonce);
                    let tag = self.seal_in_place_separate_tag(nonce, Aad::from(header), plain).ok()?;
                    tag.as_ref().try_into().ok()
                }

                fn open<'a>(
                    &self,
                    nonce: [u8; NONCE],
                    header: [u8; HEADER],
                    sealed: &'a mut [u8],
                ) -> Option<&'a mut [u8]> {
                    let nonce = Nonce::assume_unique_for_key(nonce);
                    self.open_in_place(nonce, Aad::from(header), sealed).ok()
                }
            }
        }
    };
}

library!(aws_lc_rs);
library!(ring);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SUITES: [(Suite, usize); 3] =
        [(Suite::Aes128Gcm, 16), (Suite::Aes256Gcm, 32), (Suite::Chacha20Poly1305, 32)];

    proptest! {
        /// Two nodes with different processors understand each other, and either notices what was changed on the way.
        #[test]
        fn one_library_opens_what_the_other_sealed(
            key in any::<[u8; 32]>(),
            sequence in 0..u64::MAX,
            plain in prop::collection::vec(any::<u8>(), 0..20_000),
            spoilt in any::<prop::sample::Index>(),
        ) {
            let header = [23, 3, 3, 1, 2];
            for (suite, length) in SUITES {
                let keys = || [ring::key(suite, &key[..length]), aws_lc_rs::key(suite, &key[..length])];
                for (seals, opens) in keys().into_iter().zip(keys().into_iter().rev()) {
                    let cipher = |key: Option<_>| Cipher { key: key.unwrap(), iv: [3; NONCE], sequence };
                    let (mut seals, mut opens) = (cipher(seals), cipher(opens));
                    let mut sealed = plain.clone();
                    let tag = seals.seal(header, &mut sealed).unwrap();
                    sealed.extend(tag);
                    let mut changed = sealed.clone();
                    changed[spoilt.index(sealed.len())] ^= 1;
                    prop_assert!(matches!(opens.open(header, &mut changed), Err(RecordError::Tag)));
                    opens.sequence = sequence;
                    prop_assert_eq!(opens.open(header, &mut sealed).unwrap(), &plain[..]);
                }
            }
        }
    }
}
