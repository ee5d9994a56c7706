//! Keys that a store sees as a keyed digest.
//! Secrets that a server is signed in with are in `credentials.rs` beside the root.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::{Buffer, Key, hex};
use crate::key::KeyParts;

/// A secret for [`Key::secret`](crate::Key::secret) and [`Key::digest`](crate::Key::digest).
///
/// Generate 32 random bytes once, store them with the other secrets of the deployment, and use the
/// same bytes in all replicas. Replacing the secret makes all its keys fresh, because their digests
/// change. `Debug` does not show the secret.
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

    /// Returns the [digest](Key::digest) of the key with this [encoded](Key::encoded) text.
    ///
    /// ```
    /// use tollgate::{Key, KeySecret};
    ///
    /// let secret = KeySecret::new(b"32 random bytes, from the configuration");
    /// let key = Key::new("tenant 42").child("ann");
    /// assert_eq!(secret.digest("tenant%2042>ann"), key.digest(&secret));
    /// ```
    #[must_use]
    pub fn digest(&self, encoded: &str) -> [u8; 32] {
        self.digest_of(encoded.as_bytes())
    }

    fn digest_of(&self, key: &[u8]) -> [u8; 32] {
        let mut mac = self.mac();
        // A prefix that keeps this digest apart from the one in the store.
        mac.update(b"digest of a key\0");
        mac.update(key);
        mac.finalize().into_bytes().into()
    }

    /// Returns an HMAC that has read no input yet.
    fn mac(&self) -> Hmac<Sha256> {
        self.0.clone()
    }
}

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySecret(..)")
    }
}

impl Key {
    /// Creates a key from an API key, a token or another secret.
    ///
    /// The store receives only a keyed digest of `part`: 160 bits of its HMAC-SHA-256 with
    /// `secret`.
    ///
    /// ```
    /// use tollgate::{Key, KeySecret};
    ///
    /// let pepper = KeySecret::new(b"from the deployment's own configuration");
    /// let key = Key::secret("sk_live_51H8", &pepper);
    /// assert_eq!(key, Key::secret("sk_live_51H8", &pepper));
    /// assert_ne!(key, Key::secret("sk_live_51H8", &KeySecret::new(b"another deployment")));
    /// assert!(!key.encoded().contains("sk_live"));
    /// ```
    #[must_use]
    pub fn secret(part: impl AsRef<[u8]>, secret: &KeySecret) -> Self {
        let mut mac = secret.mac();
        mac.update(part.as_ref());
        let mut text = Buffer::new();
        text.push(b'~');
        for &byte in &mac.finalize().into_bytes()[..20] {
            text.extend_from_slice(&hex(byte));
        }
        Self::from_text(&text)
    }

    /// Returns a keyed digest of the key: its HMAC-SHA-256 with `secret`.
    ///
    /// Show the digest to a client in place of the key. A plain hash does not hide an address: all
    /// addresses can be tried. [`Key::secret`] stores another digest.
    ///
    /// ```
    /// use tollgate::{Key, KeySecret};
    ///
    /// let secret = KeySecret::new(b"32 random bytes, from the configuration");
    /// let key = Key::new("192.0.2.7");
    /// assert_eq!(key.digest(&secret), Key::new("192.0.2.7").digest(&secret));
    /// assert_ne!(key.digest(&secret), Key::new("192.0.2.8").digest(&secret));
    /// ```
    #[must_use]
    pub fn digest(&self, secret: &KeySecret) -> [u8; 32] {
        secret.digest_of(self.as_bytes())
    }
}
