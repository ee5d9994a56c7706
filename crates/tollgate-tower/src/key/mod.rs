//! Who is limited: extractors that find the [`Key`] of a request.
//!
//! There is no default. Name the one that fits, and read what its page says an attacker can do if
//! it does not:
//!
//! | extractor | whose quota is spent |
//! |---|---|
//! | [`PeerIp`] | the other end of the connection's |
//! | [`ForwardedIp`] | the client's in front of your proxies |
//! | [`Header`] | whoever sends this value, an API key for example |
//! | [`Extension`] | what an earlier layer found out, a user for example |
//! | [`Method`], [`Path`], [`MatchedPath`] | the method's, path's or route's; mostly beside another |
//! | [`Global`] | everybody's together |
//! | [`key_fn`] | what a closure says |
//!
//! A tuple of extractors is the key joined of its parts. [`KeyExtractor::or`] tries a second one
//! when the request lacks what the first looks for, [`KeyExtractor::or_exempt`] lets such a request
//! pass.

mod combine;
mod error;
mod extension;
mod forwarded;
mod function;
mod header;
mod network;
mod peer;
mod route;

use std::sync::Arc;

use http::request::Parts;
use tollgate::Key;

pub use combine::{Or, OrExempt};
pub use error::{KeyError, KeyErrorKind};
pub use extension::Extension;
pub use forwarded::{ForwardedIp, Trusted};
pub use function::{IntoExtraction, KeyFn, key_fn};
pub use header::Header;
pub use network::{Network, NetworkError};
pub use peer::PeerIp;
#[cfg(feature = "axum")]
pub use route::MatchedPath;
pub use route::{Method, Path};

/// What an extractor finds: a key; `None` for a request that is exempt; or an error.
pub type Extraction = Result<Option<Key>, KeyError>;

/// Finds whose quota a request spends.
///
/// Implement it for what your service knows about its callers; for a closure there is [`key_fn`].
/// It looks at the head of the request only, so it is the same for axum, tonic and hyper, whatever
/// the body is, and `Arc<dyn KeyExtractor>` is one too.
///
/// ```
/// use http::{Request, request::Parts};
/// use tollgate::Key;
/// use tollgate_tower::{KeyExtractor, key::{Extraction, KeyError}};
///
/// /// The tenant that the authentication has found.
/// struct Tenant;
///
/// #[derive(Clone)]
/// struct User { tenant: u64, is_staff: bool }
///
/// impl KeyExtractor for Tenant {
///     fn extract(&self, parts: &Parts) -> Extraction {
///         match parts.extensions.get::<User>() {
///             Some(user) if user.is_staff => Ok(None),
///             Some(user) => Ok(Some(Key::new(user.tenant))),
///             None => Err(KeyError::misconfigured("the rate limit is not inside the authentication layer")),
///         }
///     }
/// }
///
/// let request = Request::builder().extension(User { tenant: 7, is_staff: false }).body(()).unwrap();
/// assert_eq!(Tenant.extract(&request.into_parts().0).unwrap(), Some(Key::new(7_u64)));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whose quota a request spends",
    label = "this is no key extractor",
    note = "choose one of `tollgate_tower::key`, wrap a closure in `key_fn(|parts| …)`, or implement `KeyExtractor`"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// The key of the request with this head; `None` exempts the request.
    ///
    /// # Errors
    ///
    /// [`KeyError::missing`] when the client left out what it should have sent (answered with 400),
    /// [`KeyError::misconfigured`] when the service is set up wrongly (500, and a line in the log).
    fn extract(&self, parts: &Parts) -> Extraction;

    /// This extractor, and `other` for requests that lack what this one looks for.
    ///
    /// A caller who may leave the first out chooses between the two, and has both quotas.
    fn or<K: KeyExtractor>(self, other: K) -> Or<Self, K>
    where
        Self: Sized,
    {
        Or::new(self, other)
    }

    /// This extractor, with requests that lack what it looks for exempt.
    fn or_exempt(self) -> OrExempt<Self>
    where
        Self: Sized,
    {
        OrExempt::new(self)
    }
}

/// One key for all requests: the limit is the service's own.
///
/// One caller can spend everybody's quota. Use it to protect what is behind, next to a limit per
/// caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Global;

impl Global {
    /// One key for all requests.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }
}

impl KeyExtractor for Global {
    fn extract(&self, _: &Parts) -> Extraction {
        Ok(Some(Key::new("all")))
    }
}

impl<K: KeyExtractor + ?Sized> KeyExtractor for Arc<K> {
    fn extract(&self, parts: &Parts) -> Extraction {
        (**self).extract(parts)
    }
}

impl<K: KeyExtractor + ?Sized> KeyExtractor for Box<K> {
    fn extract(&self, parts: &Parts) -> Extraction {
        (**self).extract(parts)
    }
}

macro_rules! tuple {
    ($($extractor:ident),+) => {
        impl<$($extractor: KeyExtractor),+> KeyExtractor for ($($extractor,)+) {
            #[allow(non_snake_case, reason = "the variables are named like their types")]
            fn extract(&self, parts: &Parts) -> Extraction {
                let ($($extractor,)+) = self;
                $(let Some($extractor) = $extractor.extract(parts)? else { return Ok(None) };)+
                Ok(Some(Key::from(($($extractor),+))))
            }
        }
    };
}

tuple!(A, B);
tuple!(A, B, C);
tuple!(A, B, C, D);

#[cfg(test)]
mod tests;
