//! The agreement on a secret that every handshake begins with, also one that resumes a session: X25519, by AWS-LC, which took about
//! half as long for it as ring where both were measured (Zen 4). Everything else of a handshake is ring's.

use aws_lc_rs::agreement::{EphemeralPrivateKey, PublicKey, UnparsedPublicKey, X25519, agree_ephemeral};
use aws_lc_rs::rand::SystemRandom;
use tokio_rustls::rustls::crypto::{ActiveKeyExchange, SharedSecret, SupportedKxGroup};
use tokio_rustls::rustls::{Error, NamedGroup, PeerMisbehaved};

/// The group, as rustls wants it.
#[derive(Debug)]
pub(crate) struct Group;

impl SupportedKxGroup for Group {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let begin = || {
            let key = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new())?;
            let public = key.compute_public_key()?;
            Ok(Box::new(Begun { key, public }) as Box<dyn ActiveKeyExchange>)
        };
        begin().map_err(|aws_lc_rs::error::Unspecified| Error::FailedToGetRandomBytes)
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

/// This side's half, for one agreement.
struct Begun {
    key: EphemeralPrivateKey,
    public: PublicKey,
}

impl ActiveKeyExchange for Begun {
    fn complete(self: Box<Self>, theirs: &[u8]) -> Result<SharedSecret, Error> {
        let theirs = UnparsedPublicKey::new(&X25519, theirs);
        let refused = Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare);
        agree_ephemeral(self.key, theirs, refused, |secret| Ok(SharedSecret::from(secret)))
    }

    fn pub_key(&self) -> &[u8] {
        self.public.as_ref()
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

#[cfg(test)]
mod tests {
    use tokio_rustls::rustls::crypto::ring::kx_group;

    use super::*;

    #[test]
    fn both_libraries_come_to_the_same_secret_and_neither_takes_a_key_that_gives_it_away() {
        let (ours, rings): (&dyn SupportedKxGroup, _) = (&Group, kx_group::X25519);
        for (one, other) in [(ours, rings), (rings, ours)] {
            let (one, other) = (one.start().unwrap(), other.start().unwrap());
            let (mine, theirs) = (one.pub_key().to_vec(), other.pub_key().to_vec());
            let (here, there) = (one.complete(&theirs).unwrap(), other.complete(&mine).unwrap());
            assert_eq!(here.secret_bytes(), there.secret_bytes());
        }
        for (bad, why) in [(&[0; 32][..], "its secret is always zero"), (&[9; 31], "it is too short")] {
            for group in [ours, rings] {
                let refused = group.start().unwrap().complete(bad).map(|_| ());
                let misbehaved = Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare);
                assert_eq!(refused, Err(misbehaved), "{why}");
            }
        }
    }
}
