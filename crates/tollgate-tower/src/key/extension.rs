use std::{any, fmt, marker::PhantomData};

use http::request::Parts;
use tollgate::Key;

use super::{Extraction, KeyError, KeyExtractor};

/// What an earlier layer left in the request's extensions: a user, a tenant.
///
/// `T` says which; it becomes the [`Key`] by itself, so give it an `impl From<T> for Key`. Where
/// only a part of `T` counts, use [`key_fn`](super::key_fn).
///
/// The layer that inserts it must be outside this one. Without a `T` the request is answered with
/// 500, and the log says so: a limit that nobody is subject to would not be noticed. If anonymous
/// requests are to pass or to have another limit, insert nothing and use
/// [`optional`](Self::optional).
///
/// An attacker cannot write extensions; what the earlier layer believes is what counts.
///
/// ```
/// use http::Request;
/// use tollgate::Key;
/// use tollgate_tower::{KeyExtractor, key::Extension};
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
/// let key = Extension::<UserId>::new().extract(&parts).unwrap();
/// assert_eq!(key, Some(Key::from(("user", 7_u64))));
/// ```
pub struct Extension<T> {
    is_optional: bool,
    of: PhantomData<fn() -> T>,
}

impl<T> Extension<T> {
    /// The extension of type `T`, which every request has.
    #[must_use]
    pub const fn new() -> Self {
        Self { is_optional: false, of: PhantomData }
    }

    /// The extension of type `T`, which is missing where the client did not say who it is: then
    /// [`or`](KeyExtractor::or) and [`or_exempt`](KeyExtractor::or_exempt) apply, or 400.
    #[must_use]
    pub const fn optional() -> Self {
        Self { is_optional: true, of: PhantomData }
    }
}

impl<T> KeyExtractor for Extension<T>
where
    T: Clone + Into<Key> + Send + Sync + 'static,
{
    fn extract(&self, parts: &Parts) -> Extraction {
        match parts.extensions.get::<T>() {
            Some(value) => Ok(Some(value.clone().into())),
            None if self.is_optional => Err(KeyError::missing("the request does not say who sends it")),
            None => Err(KeyError::misconfigured(format!(
                "the request has no extension of type `{}`: the layer that inserts it must be outside the rate limit",
                any::type_name::<T>()
            ))),
        }
    }
}

impl<T> Clone for Extension<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Extension<T> {}

impl<T> Default for Extension<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Extension<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extension<{}>", any::type_name::<T>())
    }
}
