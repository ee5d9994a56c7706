use std::{fmt, sync::Arc};

use http::Response;

use super::{Completion, Rejection, accept::Form};

/// Writes the answer to a request that the middleware does not pass on.
///
/// Implement it, or wrap a closure in [`respond_fn`], to answer in the service's own format. `B`
/// is the body of the service inside: the answer must look like one of its responses.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot answer with a body of type `{B}`",
    label = "cannot make a `{B}`",
    note = "`Problem`, the default, needs a body that is `From<String>`; `Empty` needs one that is `Default`; `respond_fn(|rejection| …)` makes any",
    note = "or give the service inside such a body, with `MapResponseBodyLayer::new(axum::body::Body::new)` of tower-http"
)]
pub trait Respond<B>: Send + Sync + 'static {
    /// The answer. The middleware adds `Retry-After` and the `RateLimit` fields unless they are
    /// there.
    fn respond(&self, rejection: &Rejection<'_>) -> Response<B>;

    /// The answer with what the middleware adds. The responders of this crate need not make it anew for each who is denied.
    #[doc(hidden)]
    fn complete(&self, rejection: &Rejection<'_>, completion: &Completion<'_>) -> Response<B> {
        let mut response = self.respond(rejection);
        completion.fill_in(rejection, response.headers_mut());
        response
    }
}

impl<B, R: Respond<B> + ?Sized> Respond<B> for Arc<R> {
    fn respond(&self, rejection: &Rejection<'_>) -> Response<B> {
        (**self).respond(rejection)
    }

    fn complete(&self, rejection: &Rejection<'_>, completion: &Completion<'_>) -> Response<B> {
        (**self).complete(rejection, completion)
    }
}

/// Answers with the status and an empty body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Empty;

#[diagnostic::do_not_recommend]
impl<B: Default> Respond<B> for Empty {
    fn respond(&self, rejection: &Rejection<'_>) -> Response<B> {
        let mut response = Response::new(B::default());
        *response.status_mut() = rejection.status();
        response
    }

    fn complete(&self, rejection: &Rejection<'_>, completion: &Completion<'_>) -> Response<B> {
        completion.respond(rejection, Form::Empty, || (String::new(), None), |_| B::default())
    }
}

/// A responder made of a closure.
///
/// ```
/// use http::Response;
/// use tollgate_tower::respond_fn;
///
/// let responder = respond_fn(|rejection| {
///     let wait = rejection.retry_after_seconds().unwrap_or_default();
///     let mut response = Response::new(format!("not now, {wait} s"));
///     *response.status_mut() = rejection.status();
///     response
/// });
/// # let _ = responder;
/// ```
pub const fn respond_fn<F, B>(function: F) -> RespondFn<F>
where
    F: Fn(&Rejection<'_>) -> Response<B> + Send + Sync + 'static,
{
    RespondFn(function)
}

/// What [`respond_fn`] makes.
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
