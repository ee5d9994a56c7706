use std::fmt;

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// The key of the digests that stand for secrets: random, the same in all replicas, kept with the
/// deployment's other secrets.
#[derive(Clone)]
pub struct KeySecret(Hmac<Sha256>);

impl KeySecret {
    /// A secret of any length; 32 random bytes are right.
    #[must_use]
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        match Hmac::new_from_slice(bytes.as_ref()) {
            Ok(mac) => Self(mac),
            Err(_) => unreachable!("HMAC takes a key of any length"),
        }
    }

    /// The keyed digest, before anything was put in.
    pub(super) fn mac(&self) -> Hmac<Sha256> {
        self.0.clone()
    }
}

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySecret(..)")
    }
}
