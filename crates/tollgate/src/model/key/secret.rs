use std::fmt;

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Holds the secret that [`Key::secret`](crate::Key::secret) and [`Key::digest`](crate::Key::digest) use.
///
/// Generate 32 random bytes once, store them with the other secrets of the deployment, and use the
/// same bytes in all replicas. Replacing the secret makes all its keys fresh, because their digests
/// change. `Debug` does not show the secret.
///
/// ```
/// use tollgate::{Key, KeySecret};
///
/// let secret = KeySecret::new(b"32 random bytes, from the configuration");
/// assert_eq!(Key::secret("token", &secret), Key::secret("token", &secret));
/// ```
#[derive(Clone)]
pub struct KeySecret(Hmac<Sha256>);

impl KeySecret {
    /// Creates a secret from bytes of any length. 32 random bytes are recommended.
    #[must_use]
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        match Hmac::new_from_slice(bytes.as_ref()) {
            Ok(mac) => Self(mac),
            Err(_) => unreachable!("HMAC accepts a key of any length"),
        }
    }

    /// Returns an HMAC that has read no input yet.
    pub(super) fn mac(&self) -> Hmac<Sha256> {
        self.0.clone()
    }
}

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySecret(..)")
    }
}
