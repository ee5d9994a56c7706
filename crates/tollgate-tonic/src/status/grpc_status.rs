//! The responder of this crate: its options, and which status each reason of a rejection gets.
//! The bytes of a status and of its details are made in `template.rs`.

use std::borrow::Cow;

use http::{Response, StatusCode};
use tollgate::{Decision, Error, ErrorKind, reservation::GrowthError};
use tollgate_tower::{
    Rejection, Respond,
    key::{KeyError, KeyErrorKind},
    rejection::{Empty, Reason},
};
use tonic::{Code, Status};

use super::template::StatusTemplate;
use crate::protocol::Protocol;

/// Answers rejected gRPC calls with a gRPC status, and all other rejected requests with `H`.
///
/// | reason | code | details | pushback |
/// |---|---|---|---|
/// | denied | `RESOURCE_EXHAUSTED`, or [another code](Self::code) | `RetryInfo`, `QuotaFailure`, `ErrorInfo` with `RATE_LIMIT_EXCEEDED` | the wait in milliseconds |
/// | [no permit](tollgate_tower::concurrency) | the same | `RetryInfo` with an estimate, `QuotaFailure`, `ErrorInfo` with `CONCURRENCY_LIMIT_EXCEEDED` | the wait in milliseconds |
/// | [blocked](tollgate::Decision::is_blocked): an amount of 0 | the same | `ErrorInfo` with `RATE_LIMIT_EXCEEDED` | −1 |
/// | cost never fits | the same | `ErrorInfo` with `COST_EXCEEDS_LIMIT` | −1 |
/// | [forbidden](tollgate_tower::rejection::Reason::Forbidden): a denied network | `PERMISSION_DENIED` | none | none |
/// | missing key | `INVALID_ARGUMENT`; `UNAUTHENTICATED`, `PERMISSION_DENIED` or `NOT_FOUND` where the extractor [sets](tollgate_tower::KeyExtractor::or_status) the status 401, 403 or 404; `UNIMPLEMENTED` when the key is the route and no route matches | none | none |
/// | the service is set up wrongly | `INTERNAL`; the log has the reason | none | none |
/// | unavailable | `UNAVAILABLE` | `ErrorInfo` with `LIMITER_UNAVAILABLE` | none |
/// | shed by a [limit by latency](https://docs.rs/tollgate-overload), or no permit of a limit that protects the service | `UNAVAILABLE` | `RetryInfo` with an estimate, `ErrorInfo` with `SERVICE_OVERLOADED` | the wait in milliseconds |
///
/// The HTTP status is 200, and the response is a single frame (Trailers-Only). A client that has
/// received response headers before the status counts the call as started, and does not retry it.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tonic::GrpcStatus;
/// use tonic::Code;
/// use tonic_types::StatusExt;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// let responder = GrpcStatus::new().domain("greeter.example.com").subject("project:42").pushback(true);
///
/// let limiter = Limiter::new(MemoryStore::new(), Policy::window_from_first_hit("hourly", Quota::per_hour(1)));
/// assert!(limiter.check("acme").await?.is_allowed());
/// let denied = responder.status(&limiter.check("acme").await?);
///
/// assert_eq!(denied.code(), Code::ResourceExhausted);
/// assert_eq!(denied.get_details_error_info().unwrap().domain, "greeter.example.com");
/// let failure = denied.get_details_quota_failure().unwrap();
/// assert_eq!(failure.violations[0].subject, "project:42");
/// assert_eq!(failure.violations[0].description, "hourly: 1 per 3600s");
/// assert!(denied.metadata().contains_key("grpc-retry-pushback-ms"));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct GrpcStatus<H = Empty> {
    template: StatusTemplate,
    has_retry_after: bool,
    http: H,
}

impl GrpcStatus {
    /// Creates a responder with the default options.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            template: StatusTemplate::new(),
            has_retry_after: false,
            http: Empty,
        }
    }
}

impl<H> GrpcStatus<H> {
    /// Sets the code of a denied call. The default is `RESOURCE_EXHAUSTED`.
    ///
    /// `UNAVAILABLE` suits a limit that protects one overloaded replica: another replica may accept
    /// an immediate retry.
    #[must_use]
    pub fn code(mut self, code: Code) -> Self {
        self.template.code = code;
        self
    }

    /// Sets the domain of `ErrorInfo`, usually the name of your service. The default is `tollgate`.
    ///
    /// The domain and the reason of `ErrorInfo` together identify the error for the client.
    #[must_use]
    pub fn domain(mut self, domain: impl Into<Cow<'static, str>>) -> Self {
        self.template.domain = domain.into();
        self
    }

    /// Sets the subject of each violation in `QuotaFailure`, for example `clientip` or
    /// `project:42`.
    ///
    /// The subject says what the limit applies to. The default is `policy:` and the name of the
    /// policy that denied the call, for example `policy:burst`. The status never contains the key.
    #[must_use]
    pub fn subject(mut self, subject: impl Into<Cow<'static, str>>) -> Self {
        self.template.subject = Some(subject.into());
        self
    }

    /// Sets whether the status has the entry `grpc-retry-pushback-ms` (gRFC A6). The default is
    /// `false`.
    ///
    /// A client with a retry policy waits as long as the entry says, instead of its own back-off.
    /// The value is the wait in milliseconds, rounded up. It is −1 (do not retry) when no wait
    /// helps: the call is blocked, or its cost can never fit.
    ///
    /// The entry overrides the random back-off of the clients, so clients that were denied together
    /// retry together. Turn it on only where that is acceptable.
    #[must_use]
    pub fn pushback(mut self, pushback: bool) -> Self {
        self.template.pushback = pushback;
        self
    }

    /// Sets whether a denied gRPC call carries the HTTP headers `retry-after` and
    /// `cache-control: no-store`. The default is `false`.
    ///
    /// gRPC clients read the wait from `RetryInfo`, or from the entry that
    /// [`pushback`](Self::pushback) adds. Turn the option on for a proxy that reads `retry-after`,
    /// for example a gateway that answers HTTP clients, or Envoy with
    /// `rate_limited_retry_back_off`.
    ///
    /// The option has no effect on a call that a denied [message](crate::messages) ends: such a
    /// call never carries the headers. Nor has it on a denied request that is not a gRPC call,
    /// which carries them by default.
    #[must_use]
    pub fn retry_after(mut self, retry_after: bool) -> Self {
        self.has_retry_after = retry_after;
        self
    }

    /// Sets the responder for requests that are not gRPC calls, for gRPC and HTTP on one port.
    ///
    /// The default is [`Empty`], which sends the HTTP status and an empty body.
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    /// use tollgate_tonic::{GrpcStatus, key::PeerIp};
    /// use tollgate_tower::{HeaderFormat, rejection::Problem};
    /// use tonic::service::Routes;
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("burst", Quota::per_second(5)));
    /// let layer = tollgate_tonic::builder(limiter, PeerIp)
    ///     .respond_with(GrpcStatus::new().or_http(Problem::new()))
    ///     .header_format(HeaderFormat::Ietf08)
    ///     .build();
    /// let app: Router = Routes::default() // .add_service(GreeterServer::new(greeter))
    ///     .into_axum_router()
    ///     .route("/", get(|| async { "hello" }))
    ///     .layer(layer);
    /// # let _ = app;
    /// ```
    #[must_use]
    pub fn or_http<H2>(self, http: H2) -> GrpcStatus<H2> {
        GrpcStatus {
            template: self.template,
            has_retry_after: self.has_retry_after,
            http,
        }
    }

    /// Returns the status of a decision, as the function [`status`](crate::status()) does, with
    /// these options.
    #[must_use]
    pub fn status(&self, decision: &Decision) -> Status {
        if decision.is_allowed() {
            Status::ok("")
        } else {
            self.template.denied(decision)
        }
    }

    /// Returns the status of a check that failed, as the function
    /// [`error_status`](crate::error_status) does, with these options.
    #[must_use]
    pub fn error_status(&self, error: &Error) -> Status {
        match error.kind() {
            ErrorKind::CostExceedsBurst => self.template.cost_never_fits(),
            ErrorKind::KeyLevels | ErrorKind::CrossSlot => Status::internal("internal error"),
            _ => self.template.unavailable(),
        }
    }

    /// Returns the status of a stream whose reservation does not grow further, as the function
    /// [`growth_status`](crate::growth_status) does, with these options.
    #[must_use]
    pub fn growth_status(&self, error: &GrowthError) -> Status {
        match error {
            GrowthError::Denied(denied) => self.template.denied(denied.decision()),
            GrowthError::Failed(error) => self.error_status(error),
            _ => Status::internal("internal error"),
        }
    }

    /// Returns a responder with the same options for gRPC calls only.
    pub(crate) fn without_http(&self) -> GrpcStatus {
        GrpcStatus {
            template: self.template.clone(),
            has_retry_after: self.has_retry_after,
            http: Empty,
        }
    }

    /// Returns `Ok` when a check allowed the call, and the status of the rejection otherwise.
    pub(crate) fn check_result(&self, result: Result<Decision, Error>) -> Result<(), Status> {
        match result {
            Ok(decision) if decision.is_allowed() => Ok(()),
            Ok(decision) => Err(self.template.denied(&decision)),
            Err(error) => Err(self.error_status(&error)),
        }
    }

    /// Returns the status of a call without a key, and logs a wrong set-up.
    ///
    /// For interceptors and handlers. In a layer, the middleware writes the log line.
    pub(crate) fn logged_key_error_status(&self, error: &KeyError) -> Status {
        if error.kind() == KeyErrorKind::Misconfigured {
            tracing::error!(hint = %error, "calls cannot be rate limited");
        }
        key_error_status(error)
    }

    fn rejection_status(&self, rejection: &Rejection<'_>) -> Status {
        match rejection.reason() {
            // The rejection may wait longer than the decision says: an outer layer, or
            // jitter.
            Reason::Denied(decision) => {
                let retry_after = rejection.retry_after().unwrap_or_default();
                self.template
                    .denied_for(decision, rejection.states(), retry_after)
            }
            Reason::NoPermit(denied) => self
                .template
                .no_permit(denied, rejection.retry_after().unwrap_or_default()),
            Reason::Blocked => self.template.blocked(),
            Reason::Forbidden => {
                Status::permission_denied("calls from this network are not served")
            }
            Reason::CostNeverFits(_) => self.template.cost_never_fits(),
            Reason::MissingKey(error) | Reason::Misconfigured(error) => key_error_status(error),
            Reason::Overloaded(_) => self
                .template
                .overloaded(rejection.retry_after().unwrap_or_default()),
            _ => self.template.unavailable(),
        }
    }
}

pub(super) fn key_error_status(error: &KeyError) -> Status {
    match error.kind() {
        KeyErrorKind::Missing => {
            let code = match error.status() {
                StatusCode::UNAUTHORIZED => Code::Unauthenticated,
                StatusCode::FORBIDDEN => Code::PermissionDenied,
                StatusCode::NOT_FOUND => Code::NotFound,
                _ => Code::InvalidArgument,
            };
            Status::new(code, error.to_string())
        }
        KeyErrorKind::NoRoute => Status::unimplemented(error.to_string()),
        _ => Status::internal("internal error"),
    }
}

impl<B: Default, H: Respond<B>> Respond<B> for GrpcStatus<H> {
    fn respond(&self, rejection: &Rejection<'_>) -> Response<B> {
        match Protocol::detect(&rejection.request().headers) {
            Some(protocol) => protocol.trailers_only(self.rejection_status(rejection)),
            None => self.http.respond(rejection),
        }
    }

    fn adds_retry_after(&self, rejection: &Rejection<'_>) -> bool {
        match Protocol::detect(&rejection.request().headers) {
            Some(_) => self.has_retry_after,
            None => self.http.adds_retry_after(rejection),
        }
    }
}

impl Default for GrpcStatus {
    fn default() -> Self {
        Self::new()
    }
}

tollgate::debug_fields! {
    GrpcStatus<H>: code = .template.code, domain = .template.domain, subject = .template.subject,
    pushback = .template.pushback, retry_after = .has_retry_after, ..
}
