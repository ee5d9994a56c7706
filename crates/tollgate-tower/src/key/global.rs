//! The extractor for a limit that all requests share.
//! A key of the method or the route is in `route.rs`.

use http::request::Parts;
use tollgate_core::Key;

use super::extractor::{Extraction, KeyExtractor};

/// Gives all requests the same key, so that the limit applies to the service as a whole.
///
/// **One client can spend the quota of all others.** Use it to protect a backend, together with a
/// limit per client.
///
/// ```
/// use http::Request;
/// use tollgate::Key;
/// use tollgate_tower::{KeyExtractor, key::Global};
///
/// let (parts, ()) = Request::new(()).into_parts();
/// assert_eq!(Global.extract(&parts).unwrap(), Some(Key::new("all")));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Global;

impl KeyExtractor for Global {
    fn extract(&self, _: &Parts) -> Extraction {
        Ok(Some(Key::new("all")))
    }
}
