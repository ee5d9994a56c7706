//! The trait of all extractors, how they are combined, and the errors of a request without a key.
//! Each extractor that reads something has a file of its own.

use std::{borrow::Cow, fmt, sync::Arc};

use http::request::Parts;
use tollgate::Key;

/// The result of an extractor: a key, [`EXEMPT`], or an error.
pub type Extraction = Result<Option<Key>, KeyError>;

/// The result of an extractor that exempts the request from the limit. An extractor that finds no
/// key returns [`KeyError::missing`] instead.
pub const EXEMPT: Extraction = Ok(None);

/// Any extractor, without its type. [`KeyExtractor::boxed`] creates it. Clones share the extractor.
///
/// It is the default type parameter of a layer, so [`RateLimitLayer`](crate::RateLimitLayer)
/// without parameters is a complete type.
pub type BoxedKey = Arc<dyn KeyExtractor>;

/// Finds the key of a request.
///
/// Use an extractor of the [module](crate::key), wrap a closure in [`key_fn`](super::key_fn), or
/// implement the trait. An extractor reads only the head of a request, so it works with axum, tonic
/// and hyper, and with any body. `Arc<dyn KeyExtractor>` is an extractor too.
///
/// ```
/// use http::{Request, request::Parts};
/// use tollgate::Key;
/// use tollgate_tower::{KeyExtractor, key::{EXEMPT, Extraction, KeyError}};
///
/// /// Finds the tenant of the user that the authentication has inserted.
/// struct Tenant;
///
/// #[derive(Clone)]
/// struct User { tenant: u64, is_staff: bool }
///
/// impl KeyExtractor for Tenant {
///     fn extract(&self, parts: &Parts) -> Extraction {
///         match parts.extensions.get::<User>() {
///             Some(user) if user.is_staff => EXEMPT,
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
    message = "`{Self}` does not extract the key of a request",
    label = "not a key extractor",
    note = "choose one of `tollgate_tower::key`, wrap a closure in `key_fn(|parts| …)`, or implement `KeyExtractor`"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// Returns the key of the request with this head, or [`EXEMPT`].
    ///
    /// # Errors
    ///
    /// - [`KeyError::missing`]: the client did not send the key. The response is 400.
    /// - [`KeyError::no_route`]: the key is the route, and no route matches. The response is 404.
    /// - [`KeyError::misconfigured`]: the service is set up wrongly. The response is 500, and the
    ///   mistake is logged once.
    fn extract(&self, parts: &Parts) -> Extraction;

    /// Tries `other` when this extractor finds no key.
    ///
    /// A client that can omit the first key has both quotas: it chooses the key for each request.
    fn or<K: KeyExtractor>(self, other: K) -> Or<Self, K>
    where
        Self: Sized,
    {
        Or {
            first: self,
            second: other,
        }
    }

    /// Puts the key of `other` beside the key of this extractor, as a [branch](Key::with_branch).
    ///
    /// Use it to limit a request by two keys in one step, such as the address and the API key. A
    /// policy limits the key of this extractor. With
    /// [`Policy::at_branch(2)`](tollgate::Policy::at_branch) it limits the key of `other`. A key
    /// has up to four branches. A request that one of the extractors exempts is exempt.
    ///
    /// A tuple of extractors joins their keys into one key instead.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    /// use tollgate_tower::{KeyExtractor, RateLimitLayer, key::{Global, Header}};
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let limiter = Limiter::new(
    ///     MemoryStore::new(),
    ///     [
    ///         Policy::fixed_window("api-key", Quota::per_day(2)),
    ///         Policy::fixed_window("service", Quota::per_day(3)).at_branch(2),
    ///     ],
    /// );
    /// let service = RateLimitLayer::new(limiter, Header::new("x-api-key").with_branch(Global))
    ///     .layer(service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) }));
    /// let mut statuses = Vec::new();
    /// for api_key in ["acme", "acme", "acme", "other", "other"] {
    ///     let request = Request::builder().header("x-api-key", api_key).body(()).unwrap();
    ///     statuses.push(service.clone().oneshot(request).await.unwrap().status().as_u16());
    /// }
    /// assert_eq!(statuses, [200, 200, 429, 200, 429]);
    /// # }
    /// ```
    fn with_branch<K: KeyExtractor>(self, other: K) -> WithBranch<Self, K>
    where
        Self: Sized,
    {
        WithBranch {
            first: self,
            second: other,
        }
    }

    /// Erases the type of the extractor, so that a field or a list can hold layers with different
    /// extractors.
    ///
    /// Each request then takes one virtual call more.
    fn boxed(self) -> BoxedKey
    where
        Self: Sized,
    {
        Arc::new(self)
    }

    /// Exempts requests in which this extractor finds no key.
    ///
    /// **A client that can omit the key has no limit.**
    ///
    /// ```
    /// use http::Request;
    /// use tollgate_tower::{KeyExtractor, key::Header};
    ///
    /// // Only requests of jobs are limited.
    /// let key = Header::new("x-job").or_exempt();
    ///
    /// let (parts, ()) = Request::new(()).into_parts();
    /// assert_eq!(key.extract(&parts).unwrap(), None);
    /// ```
    fn or_exempt(self) -> OrExempt<Self>
    where
        Self: Sized,
    {
        OrExempt { inner: self }
    }
}

/// Tries a second extractor when the key of the first is [missing](KeyErrorKind::Missing).
/// [`KeyExtractor::or`] creates it.
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Or<A, B> {
    fn extract(&self, parts: &Parts) -> Extraction {
        match self.first.extract(parts) {
            Err(error) if error.kind() != KeyErrorKind::Misconfigured => self.second.extract(parts),
            found => found,
        }
    }
}

/// Puts the keys of two extractors side by side. [`KeyExtractor::with_branch`] creates it.
#[derive(Clone, Copy, Debug)]
pub struct WithBranch<A, B> {
    first: A,
    second: B,
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for WithBranch<A, B> {
    fn extract(&self, parts: &Parts) -> Extraction {
        let (Some(first), Some(second)) = (self.first.extract(parts)?, self.second.extract(parts)?)
        else {
            return EXEMPT;
        };
        Ok(Some(first.with_branch(second)))
    }
}

/// Exempts requests whose key is [missing](KeyErrorKind::Missing). [`KeyExtractor::or_exempt`]
/// creates it.
#[derive(Clone, Copy, Debug)]
pub struct OrExempt<K> {
    inner: K,
}

impl<K: KeyExtractor> KeyExtractor for OrExempt<K> {
    fn extract(&self, parts: &Parts) -> Extraction {
        match self.inner.extract(parts) {
            Err(error) if error.kind() != KeyErrorKind::Misconfigured => EXEMPT,
            found => found,
        }
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
                $(let Some($extractor) = $extractor.extract(parts)? else { return EXEMPT };)+
                Ok(Some(Key::from(($($extractor),+))))
            }
        }
    };
}

tuple!(A, B);
tuple!(A, B, C);
tuple!(A, B, C, D);

/// Reports that a request has no key.
///
/// The client receives the message of a [missing](Self::missing) key or [route](Self::no_route).
/// The message must not contain the value that the client sent.
#[derive(Clone, Debug)]
pub struct KeyError {
    kind: KeyErrorKind,
    message: Cow<'static, str>,
}

/// Says whether the client or the service has to correct a [`KeyError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyErrorKind {
    /// The client did not send the key, or sent an invalid one. The response is 400.
    Missing,
    /// The key is the route, and no route matches the request. The response is 404.
    NoRoute,
    /// The service is set up wrongly, so that no request can have a key. The response is 500, and
    /// the message is logged once.
    Misconfigured,
}

impl KeyError {
    /// Creates the error of a request without a valid key. The client receives `message`.
    pub fn missing(message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind: KeyErrorKind::Missing,
            message: message.into(),
        }
    }

    /// Creates the error of a request that no route matches, for an extractor whose key is the
    /// route. The client receives `message`.
    pub fn no_route(message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind: KeyErrorKind::NoRoute,
            message: message.into(),
        }
    }

    /// Creates the error of a service that is set up wrongly. The log receives `message`, which
    /// should say how to correct the setup.
    pub fn misconfigured(message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind: KeyErrorKind::Misconfigured,
            message: message.into(),
        }
    }

    /// Returns whether the client or the service has to correct the error.
    #[must_use]
    pub fn kind(&self) -> KeyErrorKind {
        self.kind
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for KeyError {}
