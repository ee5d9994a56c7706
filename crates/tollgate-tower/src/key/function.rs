//! The extractor that is a closure of the user, and what such a closure may return.
//! Combining extractors is in `extractor.rs`.

use std::fmt;

use http::request::Parts;
use tollgate_core::Key;

use super::extractor::{Extraction, KeyError, KeyExtractor};

/// Creates an extractor from a closure.
///
/// The closure returns a [`Key`], an `Option<Key>`, a `Result` with [`KeyError`], or an
/// [`Extraction`].
///
/// `None` means that the request has no key. The response is then 400, as with any other extractor,
/// unless [`or`](KeyExtractor::or) finds another key or [`or_exempt`](KeyExtractor::or_exempt)
/// lifts the limit. To exempt a request, return [`EXEMPT`](super::EXEMPT).
///
/// ```
/// use http::Request;
/// use tollgate::Key;
/// use tollgate_tower::{KeyExtractor, key::EXEMPT, key_fn};
///
/// let by_host = key_fn(|parts| Key::new(parts.uri.host().unwrap_or_default()));
/// let (parts, ()) = Request::get("http://example.com/").body(()).unwrap().into_parts();
/// assert_eq!(by_host.extract(&parts).unwrap(), Some(Key::new("example.com")));
///
/// let by_tenant = key_fn(|parts| parts.extensions.get::<u64>().map(|tenant| Key::new(*tenant)));
/// assert_eq!(by_tenant.extract(&parts).unwrap_err().to_string(), "the request has no key");
/// assert_eq!(by_tenant.or(by_host).extract(&parts).unwrap(), Some(Key::new("example.com")));
///
/// let only_writes = key_fn(|parts| if parts.method.is_safe() { EXEMPT } else { Ok(Some(Key::new("write"))) });
/// assert_eq!(only_writes.extract(&parts).unwrap(), None);
/// ```
pub const fn key_fn<F, O>(function: F) -> KeyFn<F>
where
    F: Fn(&Parts) -> O + Send + Sync + 'static,
    O: IntoExtraction,
{
    KeyFn(function)
}

/// Finds keys by a closure. [`key_fn`] creates it.
#[derive(Clone, Copy)]
pub struct KeyFn<F>(F);

impl<F, O> KeyExtractor for KeyFn<F>
where
    F: Fn(&Parts) -> O + Send + Sync + 'static,
    O: IntoExtraction,
{
    fn extract(&self, parts: &Parts) -> Extraction {
        (self.0)(parts).into_extraction()
    }
}

impl<F> fmt::Debug for KeyFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyFn(..)")
    }
}

/// Converts the result of a [`key_fn`] closure.
///
/// `Key`, `Option<Key>`, `Result<Key, KeyError>` and [`Extraction`] implement it.
#[diagnostic::on_unimplemented(
    message = "the closure of `key_fn` must return a `Key`, not `{Self}`",
    note = "it may return `Key`, `Option<Key>`, `Result<Key, KeyError>` or `Extraction`; `Key::new(…)` makes a key of text, numbers and addresses"
)]
pub trait IntoExtraction {
    /// Converts the result.
    ///
    /// # Errors
    ///
    /// Returns the error of the closure.
    fn into_extraction(self) -> Extraction;
}

impl IntoExtraction for Key {
    fn into_extraction(self) -> Extraction {
        Ok(Some(self))
    }
}

impl IntoExtraction for Option<Key> {
    /// Returns the error of a missing key for `None`.
    fn into_extraction(self) -> Extraction {
        self.map(Some)
            .ok_or_else(|| KeyError::missing("the request has no key"))
    }
}

impl IntoExtraction for Result<Key, KeyError> {
    fn into_extraction(self) -> Extraction {
        self.map(Some)
    }
}

impl IntoExtraction for Extraction {
    fn into_extraction(self) -> Extraction {
        self
    }
}
