//! The trait of all extractors, how they are combined, and the errors of a request without a key.
//! Each extractor that reads something has a file of its own, such as `header.rs` and `peer.rs`.

use std::{borrow::Cow, fmt, sync::Arc};

use http::{HeaderValue, StatusCode, request::Parts};
use tollgate_core::Key;

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
    /// - [`KeyError::missing`]: the client did not send the key. The response is 400, or has
    ///   [another status](KeyError::with_status).
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
    /// [`Policy::at_branch(2)`](tollgate_core::Policy::at_branch) it limits the key of `other`. A key
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

    /// Sets the status of the response to a request without a key. The default is 400.
    ///
    /// For 401 use [`or_unauthorized`](Self::or_unauthorized): such a response needs a challenge. A
    /// responder that builds a response of its own finds the status in
    /// [`Rejection::status`](crate::Rejection::status).
    ///
    /// ```
    /// use http::{Request, StatusCode};
    /// use tollgate_tower::{KeyExtractor, key::Header};
    ///
    /// let key = Header::new("x-tenant").or_status(StatusCode::FORBIDDEN);
    /// let (parts, ()) = Request::new(()).into_parts();
    /// assert_eq!(key.extract(&parts).unwrap_err().status(), StatusCode::FORBIDDEN);
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the status is not one of 400 to 499.
    fn or_status(self, status: StatusCode) -> OrStatus<Self>
    where
        Self: Sized,
    {
        let refusal = KeyErrorStatus::new(status, None);
        OrStatus {
            inner: self,
            refusal,
        }
    }

    /// Answers a request without a key with 401 and this challenge, in the header
    /// `WWW-Authenticate` ([RFC 9110](https://www.rfc-editor.org/rfc/rfc9110#section-11.6.1)).
    ///
    /// [`Bearer`](super::Bearer) needs no such call: it does so itself.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    /// use tollgate_tower::{KeyExtractor, RateLimitLayer, key::Header};
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let service = service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) });
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("day", Quota::per_day(100)));
    /// let key = Header::new("x-api-key").or_unauthorized(r#"ApiKey realm="example""#);
    /// let service = RateLimitLayer::new(limiter, key).layer(service);
    ///
    /// let response = service.oneshot(Request::new(())).await.unwrap();
    /// assert_eq!(response.status(), 401);
    /// assert_eq!(response.headers()["www-authenticate"], r#"ApiKey realm="example""#);
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the challenge is empty, or has a character that is not visible ASCII or a space.
    fn or_unauthorized(self, challenge: &'static str) -> OrStatus<Self>
    where
        Self: Sized,
    {
        assert!(!challenge.is_empty(), "a challenge must name a scheme");
        let challenge = HeaderValue::from_static(challenge);
        OrStatus {
            inner: self,
            refusal: KeyErrorStatus::new(StatusCode::UNAUTHORIZED, Some(challenge)),
        }
    }
}

/// Marks the extractor of a `RateLimitLayer<K>`: it is `K` itself. No other type implements the
/// trait.
///
/// It is there for the error of the compiler, which says what to write where the type of a layer
/// names another extractor. See [types that you write down](crate::guide::types_to_write_down).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the extractor of a `RateLimitLayer<{K}>`",
    label = "the type of the layer names another extractor",
    note = "write the type `RateLimitLayer<{Self}>`, or keep `RateLimitLayer`, which is `RateLimitLayer<BoxedKey>`, and pass the extractor with `.boxed()` behind it"
)]
pub trait ExtractorOf<K> {
    /// Returns the extractor.
    fn into_extractor(self) -> K;
}

impl<K> ExtractorOf<K> for K {
    fn into_extractor(self) -> K {
        self
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

/// Sets the status of requests whose key is [missing](KeyErrorKind::Missing).
/// [`KeyExtractor::or_status`] and [`KeyExtractor::or_unauthorized`] create it.
#[derive(Clone, Debug)]
pub struct OrStatus<K> {
    inner: K,
    refusal: Arc<KeyErrorStatus>,
}

impl<K: KeyExtractor> KeyExtractor for OrStatus<K> {
    fn extract(&self, parts: &Parts) -> Extraction {
        self.inner.extract(parts).map_err(|error| match error.kind {
            KeyErrorKind::Missing => KeyError {
                refusal: Some(Arc::clone(&self.refusal)),
                ..error
            },
            _ => error,
        })
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
    /// `None` for the response of the kind.
    refusal: Option<Arc<KeyErrorStatus>>,
}

/// The status of the response to a request without a key, and its challenge.
#[derive(Debug)]
struct KeyErrorStatus {
    status: StatusCode,
    challenge: Option<HeaderValue>,
}

impl KeyErrorStatus {
    fn new(status: StatusCode, challenge: Option<HeaderValue>) -> Arc<Self> {
        assert!(
            status.is_client_error(),
            "the status of a missing key must be one of 400 to 499, got {status}"
        );
        Arc::new(Self { status, challenge })
    }
}

/// Says whether the client or the service has to correct a [`KeyError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyErrorKind {
    /// The client did not send the key, or sent an invalid one. The response is 400, or has the
    /// [status](KeyError::with_status) of the error.
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
            refusal: None,
        }
    }

    /// Creates the error of a request that no route matches, for an extractor whose key is the
    /// route. The client receives `message`.
    pub fn no_route(message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind: KeyErrorKind::NoRoute,
            message: message.into(),
            refusal: None,
        }
    }

    /// Creates the error of a service that is set up wrongly. The log receives `message`, which
    /// should say how to correct the setup.
    pub fn misconfigured(message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind: KeyErrorKind::Misconfigured,
            message: message.into(),
            refusal: None,
        }
    }

    /// Sets the status of the response, for an extractor that knows a better one than 400.
    ///
    /// It applies to a [missing](Self::missing) key. For the extractors of this module use
    /// [`KeyExtractor::or_status`].
    ///
    /// ```
    /// use http::StatusCode;
    /// use tollgate_tower::key::KeyError;
    ///
    /// let error = KeyError::missing("the trial has ended").with_status(StatusCode::PAYMENT_REQUIRED);
    /// assert_eq!(error.status(), StatusCode::PAYMENT_REQUIRED);
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the status is not one of 400 to 499.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.refusal = Some(KeyErrorStatus::new(status, None));
        self
    }

    /// Sets the status to 401, with this challenge.
    pub(super) fn with_challenge(mut self, challenge: HeaderValue) -> Self {
        self.refusal = Some(KeyErrorStatus::new(
            StatusCode::UNAUTHORIZED,
            Some(challenge),
        ));
        self
    }

    /// Returns the status of the response: 400 for a missing key, unless it has [another
    /// one](Self::with_status), 404 without a route, and 500 for a service that is set up wrongly.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match (self.kind, &self.refusal) {
            (KeyErrorKind::Missing, Some(refusal)) => refusal.status,
            (KeyErrorKind::Missing, None) => StatusCode::BAD_REQUEST,
            (KeyErrorKind::NoRoute, _) => StatusCode::NOT_FOUND,
            (KeyErrorKind::Misconfigured, _) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the challenge of a response with the status 401.
    pub(crate) fn challenge(&self) -> Option<&HeaderValue> {
        self.refusal.as_ref()?.challenge.as_ref()
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
