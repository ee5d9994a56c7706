use std::{fmt, str, sync::Arc};

use sha2::{Digest, Sha256};

use crate::{Error, random};

/// Names a [`Reservation`](crate::Reservation) of a key.
///
/// A random id is the default. Choose the id of a request instead to charge a repeated request once. Do not take an id
/// from a client: a client that repeats an id is charged once for many requests.
///
/// The text of an id has 1 to 64 letters, digits and the signs `-`, `_`, `.`. Other bytes, and more of them, are
/// replaced by a digest: 160 bits of their SHA-256.
///
/// ```
/// use tollgate::ReservationId;
///
/// let id = ReservationId::try_new("order-4711")?;
/// assert_eq!(id.as_str(), "order-4711");
///
/// let id = ReservationId::try_new(b"any bytes: {}\0")?;
/// assert_eq!(id.as_str().len(), 40);
/// assert_eq!(ReservationId::try_new(id.as_str())?, id);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ReservationId(Arc<str>);

/// The most bytes of an id that is stored as it is.
const MAX_BYTES: usize = 64;

/// The bytes of a digest that are kept.
const DIGEST_BYTES: usize = 20;

impl ReservationId {
    /// Creates a random id of 128 bits.
    #[must_use]
    pub fn random() -> Self {
        Self(random::name().into())
    }

    /// Creates an id from any bytes.
    ///
    /// # Errors
    ///
    /// Fails with [`ErrorKind::Config`](crate::ErrorKind::Config) when there are no bytes. All requests without an id would
    /// share one reservation.
    pub fn try_new(id: impl AsRef<[u8]>) -> Result<Self, Error> {
        let id = id.as_ref();
        if id.is_empty() {
            return Err(Error::config("reservation id must have at least one byte, got none"));
        }
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
        match str::from_utf8(id) {
            Ok(text) if id.len() <= MAX_BYTES && id.iter().all(is_plain) => Ok(Self(text.into())),
            _ => {
                let digest = Sha256::digest(id);
                let hex: String = digest.iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect();
                Ok(Self(hex.into()))
            }
        }
    }

    /// Returns the text of the id. [`try_new`](Self::try_new) makes the same id of it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReservationId({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_any_length_and_bytes_are_one_short_word() {
        assert_eq!(
            ReservationId::try_new("").unwrap_err().to_string(),
            "reservation id must have at least one byte, got none"
        );
        let long = vec![b'x'; 1_000_000];
        let ids = [&b"a"[..], &long[..64], &long[..65], &long, b"{}", b"a b", b"a:b", b"\0", b"\xff", b"a:r1", b"\r\n"];
        let mut texts = Vec::new();
        for id in ids {
            let id = ReservationId::try_new(id).unwrap();
            assert!((1..=MAX_BYTES).contains(&id.as_str().len()), "{id}");
            assert!(id.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
            assert_eq!(ReservationId::try_new(id.as_str()).unwrap(), id);
            assert!(!texts.contains(&id), "{id}");
            texts.push(id);
        }
        assert_eq!(texts[1].as_str().len(), 64);
    }

    #[test]
    fn random_ids_differ() {
        let [one, two] = [ReservationId::random(), ReservationId::random()];
        assert_ne!(one, two);
        assert_eq!(one.as_str().len(), 32);
    }
}
