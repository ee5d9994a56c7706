use http::request::Parts;

use super::{Extraction, KeyErrorKind, KeyExtractor};

/// Tries a second extractor when the first finds the key [missing](KeyErrorKind::Missing); see
/// [`KeyExtractor::or`].
///
/// ```
/// use tollgate_tower::{KeyExtractor, key::{Header, PeerIp}};
///
/// // Callers with an API key by that key, all others by address.
/// let key = Header::new("x-api-key").or(PeerIp::new());
/// # let _ = key;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<A, B> Or<A, B> {
    pub(super) const fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Or<A, B> {
    fn extract(&self, parts: &Parts) -> Extraction {
        match self.first.extract(parts) {
            Err(error) if error.kind() == KeyErrorKind::Missing => self.second.extract(parts),
            found => found,
        }
    }
}

/// Exempts the requests whose key is [missing](KeyErrorKind::Missing); see
/// [`KeyExtractor::or_exempt`].
#[derive(Clone, Copy, Debug)]
pub struct OrExempt<K> {
    inner: K,
}

impl<K> OrExempt<K> {
    pub(super) const fn new(inner: K) -> Self {
        Self { inner }
    }
}

impl<K: KeyExtractor> KeyExtractor for OrExempt<K> {
    fn extract(&self, parts: &Parts) -> Extraction {
        match self.inner.extract(parts) {
            Err(error) if error.kind() == KeyErrorKind::Missing => Ok(None),
            found => found,
        }
    }
}
