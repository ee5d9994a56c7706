//! The trait of responders, the simplest ones, and the headers that are added to what they return.
//! Problem documents are in `problem.rs`.

use std::{fmt, sync::Arc};

use http::{HeaderMap, HeaderValue, Response, header};

use super::reason::{Reason, Rejection};
use crate::headers::{
    HeaderWriter, MissingHeaders, RATELIMIT_POLICY, RETRY_AFTER_MS, ResponseDetails, number_value,
    round_up_to_millis,
};

/// Builds the response to a request that the middleware rejects.
///
/// Implement it to reject requests in the format of your service, or wrap a closure in
/// [`respond_fn`]. `B` is the body type of the inner service, because a rejection has the same type
/// as a response of the service.
///
/// ```
/// use http::Response;
/// use tollgate_tower::{Rejection, Respond};
///
/// struct PlainText;
///
/// impl Respond<String> for PlainText {
///     fn respond(&self, rejection: &Rejection<'_>) -> Response<String> {
///         let mut response = Response::new(rejection.reason().as_str().to_owned());
///         *response.status_mut() = rejection.status();
///         response
///     }
/// }
/// # fn is_responder<R: Respond<String>>(_: R) {}
/// # is_responder(PlainText);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot respond with a body of type `{B}`",
    label = "cannot build a `{B}`",
    note = "`Problem`, the default, needs a body that is `From<String>`; `Empty` needs one that is `Default`; `respond_fn(|rejection| …)` makes any",
    note = "or give the inner service such a body, with `MapResponseBodyLayer::new(axum::body::Body::new)` of tower-http",
    note = "on a tonic server, use `tollgate_tonic::layer(limiter, key)`"
)]
pub trait Respond<B>: Send + Sync + 'static {
    /// Builds the response.
    ///
    /// The middleware adds `Retry-After`, `Cache-Control` and the rate limit headers, unless the
    /// response has them already.
    fn respond(&self, rejection: &Rejection<'_>) -> Response<B>;

    /// Returns whether the middleware adds `Retry-After` and `Cache-Control` to this response. The
    /// default is `true`.
    ///
    /// Return `false` when the protocol of the client has other fields for the wait, as gRPC has.
    /// The rate limit headers do not depend on this method.
    fn adds_retry_after(&self, rejection: &Rejection<'_>) -> bool {
        let _ = rejection;
        true
    }
}

impl<B, R: Respond<B> + ?Sized> Respond<B> for Arc<R> {
    fn respond(&self, rejection: &Rejection<'_>) -> Response<B> {
        (**self).respond(rejection)
    }

    fn adds_retry_after(&self, rejection: &Rejection<'_>) -> bool {
        (**self).adds_retry_after(rejection)
    }
}

/// Responds with the status and an empty body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Empty;

#[diagnostic::do_not_recommend]
impl<B: Default> Respond<B> for Empty {
    fn respond(&self, rejection: &Rejection<'_>) -> Response<B> {
        let mut response = Response::new(B::default());
        *response.status_mut() = rejection.status();
        response
    }
}

/// Creates a responder from a closure.
///
/// ```
/// use http::{Request, Response};
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{RateLimitLayer, key::Global, respond_fn};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let service = service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) });
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("all", Quota::per_day(1)));
/// let layer = RateLimitLayer::builder(limiter, Global)
///     .respond_with(respond_fn(|rejection| {
///         let mut response = Response::new(format!("rejected: {}", rejection.reason().as_str()));
///         *response.status_mut() = rejection.status();
///         response
///     }))
///     .build();
///
/// let service = layer.layer(service);
/// assert_eq!(service.clone().oneshot(Request::new(())).await.unwrap().status(), 200);
/// let response = service.oneshot(Request::new(())).await.unwrap();
/// assert_eq!(response.into_body(), "rejected: denied");
/// # }
/// ```
///
/// In axum, the closure may return `(rejection.status(), text).into_response()`.
pub const fn respond_fn<F, B>(function: F) -> RespondFn<F>
where
    F: Fn(&Rejection<'_>) -> Response<B> + Send + Sync + 'static,
{
    RespondFn(function)
}

/// Builds responses by a closure. [`respond_fn`] creates it.
#[derive(Clone, Copy)]
pub struct RespondFn<F>(F);

impl<F, B> Respond<B> for RespondFn<F>
where
    F: Fn(&Rejection<'_>) -> Response<B> + Send + Sync + 'static,
{
    fn respond(&self, rejection: &Rejection<'_>) -> Response<B> {
        (self.0)(rejection)
    }
}

impl<F> fmt::Debug for RespondFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RespondFn(..)")
    }
}

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Adds the headers that the responder has not set. `Retry-After` and `Cache-Control` are added on
/// request.
pub(crate) fn add_headers(
    rejection: &Rejection<'_>,
    writer: Option<&HeaderWriter>,
    details: &ResponseDetails,
    adds_retry_after: bool,
    headers: &mut HeaderMap,
) {
    let mut missing = MissingHeaders::of(headers);
    if adds_retry_after && let Some(seconds) = rejection.retry_after_seconds() {
        missing.add(header::RETRY_AFTER, number_value(seconds));
    }
    match (rejection.reason(), writer) {
        (Reason::Denied(decision), Some(writer)) => {
            if adds_retry_after {
                missing.add(header::CACHE_CONTROL, NO_STORE);
                add_millis(rejection, writer, &mut missing);
            }
            writer
                .update(decision, rejection.states().iter().copied(), details)
                .add_missing_to(&mut missing);
        }
        (Reason::Blocked | Reason::NoPermit(_), _) if adds_retry_after => {
            missing.add(header::CACHE_CONTROL, NO_STORE);
        }
        (Reason::CostNeverFits(_), Some(writer)) => {
            if let Some(policies) = writer.policies() {
                missing.add(RATELIMIT_POLICY, policies.clone());
            }
        }
        (Reason::MissingKey(error), _) => {
            if let Some(challenge) = error.challenge() {
                missing.add(header::WWW_AUTHENTICATE, challenge.clone());
            }
        }
        (Reason::Unavailable(error), Some(writer)) => {
            writer.mark_degraded(error.kind(), &mut missing);
        }
        _ => {}
    }
}

/// Adds the wait in milliseconds, where a format has it.
fn add_millis(rejection: &Rejection<'_>, writer: &HeaderWriter, missing: &mut MissingHeaders<'_>) {
    if writer.has_millis()
        && let Some(retry_after) = rejection.retry_after()
    {
        missing.add(
            RETRY_AFTER_MS,
            number_value(round_up_to_millis(retry_after).max(1)),
        );
    }
}
