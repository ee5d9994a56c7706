//! The extractor for what an outer layer has put into the extensions, such as a user.
//! What a client wrote itself is read by `header.rs` and `route.rs`.

use std::{any, fmt, marker::PhantomData};

use http::request::Parts;
use tollgate_core::Key;

use super::extractor::{Extraction, KeyError, KeyExtractor};

/// Finds the key in an extension of the request, such as a user or a tenant.
///
/// An outer layer, such as the authentication, inserts a `T`. Implement `From<T>` for [`Key`], or
/// use [`key_fn`](super::key_fn) if only a part of `T` is the key.
///
/// The response to a request without a `T` is 500, and the mistake is logged once. Otherwise nobody
/// would notice that the outer layer is missing and that nothing is limited. If some requests have
/// no `T`, such as anonymous ones, use [`optional`](Self::optional).
///
/// A client cannot write extensions. The key is as trustworthy as the layer that inserts it.
///
/// ```
/// use http::Request;
/// use tollgate::Key;
/// use tollgate_tower::{KeyExtractor, key::FromExtension};
///
/// #[derive(Clone)]
/// struct UserId(u64);
///
/// impl From<UserId> for Key {
///     fn from(UserId(id): UserId) -> Self {
///         Key::new(("user", id))
///     }
/// }
///
/// let (parts, ()) = Request::builder().extension(UserId(7)).body(()).unwrap().into_parts();
/// let key = FromExtension::<UserId>::new().extract(&parts).unwrap();
/// assert_eq!(key, Some(Key::from(("user", 7_u64))));
/// ```
#[doc(alias = "Extension")]
pub struct FromExtension<T> {
    is_optional: bool,
    of: PhantomData<fn() -> T>,
}

impl<T> FromExtension<T> {
    /// Finds an extension of type `T` that every request has.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            is_optional: false,
            of: PhantomData,
        }
    }

    /// Finds an extension of type `T` that some requests do not have.
    ///
    /// To requests without a `T`, the response is 400, unless [`or`](KeyExtractor::or) finds
    /// another key or [`or_exempt`](KeyExtractor::or_exempt) lifts the limit.
    #[must_use]
    pub const fn optional() -> Self {
        Self {
            is_optional: true,
            of: PhantomData,
        }
    }
}

/// Makes a key of an extension. Every type that can be cloned, and for which `From<T>` of [`Key`] is
/// implemented, has it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not become the key of a request",
    label = "`FromExtension` cannot make a key of a `{Self}`",
    note = "implement `Clone` for it, and `From<{Self}>` for `tollgate::Key`; or use `key_fn(|parts| …)` where a part of it is the key"
)]
pub trait ExtensionKey: Clone + Send + Sync + 'static {
    /// Returns the key.
    fn into_key(self) -> Key;
}

#[diagnostic::do_not_recommend]
impl<T: Clone + Into<Key> + Send + Sync + 'static> ExtensionKey for T {
    fn into_key(self) -> Key {
        self.into()
    }
}

impl<T: ExtensionKey> KeyExtractor for FromExtension<T> {
    fn extract(&self, parts: &Parts) -> Extraction {
        match parts.extensions.get::<T>() {
            Some(value) => Ok(Some(value.clone().into_key())),
            None if self.is_optional => Err(KeyError::missing(
                "the request does not identify its sender",
            )),
            None => Err(KeyError::misconfigured(format!(
                "the request has no extension of type `{}`: the layer that inserts it must be outside the rate limit",
                any::type_name::<T>()
            ))),
        }
    }
}

impl<T> Clone for FromExtension<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for FromExtension<T> {}

impl<T> Default for FromExtension<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for FromExtension<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FromExtension<{}>", any::type_name::<T>())
    }
}
