//! What a gRPC client is told.

mod details;

use std::{borrow::Cow, fmt};

use http::Response;
use tollgate::{Decision, Error};
use tollgate_tower::{
    Rejection, Respond,
    key::{KeyError, KeyErrorKind},
    rejection::{Empty, Reason},
};
use tonic::{Code, Status};

use crate::form::Form;

/// The status of a decision: what a handler that asked the limiter itself answers when denied.
///
/// Denied, it is `RESOURCE_EXHAUSTED` with `RetryInfo`, `QuotaFailure` and `ErrorInfo`. Of an
/// allowed decision it is `OK`, which is no error to return: ask
/// [`is_denied`](Decision::is_denied) first. [`GrpcStatus`] has the options.
///
/// ```
/// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tonic::{error_status, status};
/// use tonic::{Code, Status};
/// use tonic_types::StatusExt;
///
/// async fn export(limiter: &Limiter, tenant: &str, rows: u32) -> Result<(), Status> {
///     let decision = limiter.check_cost(tenant, Cost::new(rows)).await.map_err(|error| error_status(&error))?;
///     if decision.is_denied() {
///         return Err(status(&decision));
///     }
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("rows", Quota::per_minute(100)));
/// assert!(export(&limiter, "acme", 80).await.is_ok());
///
/// let denied = export(&limiter, "acme", 80).await.unwrap_err();
/// assert_eq!(denied.code(), Code::ResourceExhausted);
/// assert!(denied.get_details_retry_info().unwrap().retry_delay.unwrap().as_secs() >= 35);
///
/// let never = export(&limiter, "acme", 101).await.unwrap_err();
/// assert_eq!(never.get_details_error_info().unwrap().reason, "COST_EXCEEDS_LIMIT");
/// # }
/// ```
#[must_use]
pub fn status(decision: &Decision) -> Status {
    GrpcStatus::new().status(decision)
}

/// The status of a check without a decision: `UNAVAILABLE`, or `RESOURCE_EXHAUSTED` without a time
/// to come back when the cost can never fit.
///
/// The error's own text is for the log and stays out of it.
#[must_use]
pub fn error_status(error: &Error) -> Status {
    GrpcStatus::new().error_status(error)
}

/// Answers gRPC calls with a status, all other requests as `H` does.
///
/// | reason | code | details | pushback |
/// |---|---|---|---|
/// | denied | `RESOURCE_EXHAUSTED`, or [another](Self::code) | `RetryInfo`, `QuotaFailure`, `ErrorInfo` `RATE_LIMIT_EXCEEDED` | the wait |
/// | cost never fits | the same | `ErrorInfo` `COST_EXCEEDS_LIMIT` | −1 |
/// | missing key | `INVALID_ARGUMENT` | | |
/// | the service is set up wrongly | `INTERNAL`, the hint is in the log | | |
/// | unavailable | `UNAVAILABLE` | `ErrorInfo` `LIMITER_UNAVAILABLE` | |
///
/// The HTTP status is 200 and everything stands in one frame (Trailers-Only): a client that has
/// seen response headers has committed to the call and would not retry.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tonic::GrpcStatus;
/// use tonic::Code;
/// use tonic_types::StatusExt;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// let answer = GrpcStatus::new().domain("greeter.example.com").subject("project:42").pushback();
///
/// let limiter = Limiter::new(MemoryStore::new(), Policy::window_from_first_hit("hourly", Quota::per_hour(1)));
/// assert!(limiter.check("acme").await?.is_allowed());
/// let denied = answer.status(&limiter.check("acme").await?);
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
    code: Code,
    domain: Cow<'static, str>,
    subject: Option<Cow<'static, str>>,
    pushback: bool,
    http: H,
}

impl GrpcStatus {
    /// The status with the default options.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            code: Code::ResourceExhausted,
            domain: Cow::Borrowed("tollgate"),
            subject: None,
            pushback: false,
            http: Empty,
        }
    }
}

impl<H> GrpcStatus<H> {
    /// The code of a denial, `RESOURCE_EXHAUSTED` by default. `UNAVAILABLE` is for limits that shed
    /// load, where another replica may well serve an immediate retry.
    #[must_use]
    pub fn code(mut self, code: Code) -> Self {
        self.code = code;
        self
    }

    /// The domain of `ErrorInfo`, by which a client tells our reasons from others': the name of your
    /// service. `tollgate` by default.
    #[must_use]
    pub fn domain(mut self, domain: impl Into<Cow<'static, str>>) -> Self {
        self.domain = domain.into();
        self
    }

    /// The subject of each violation in `QuotaFailure`, what kind of caller is limited: `clientip`,
    /// `project:42`. By default it is the policy's name; the key is never told.
    #[must_use]
    pub fn subject(mut self, subject: impl Into<Cow<'static, str>>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Tells retrying clients in `grpc-retry-pushback-ms` (gRFC A6) how long to wait: the exact
    /// time, rounded up; −1, do not retry, when the cost can never fit.
    ///
    /// It is off by default because it takes the back-off out of the clients' hands: all that were
    /// denied together come back together.
    #[must_use]
    pub fn pushback(mut self) -> Self {
        self.pushback = true;
        self
    }

    /// Answers what is no gRPC call as `http` does, `Problem` of tollgate-tower for example; by
    /// default with the HTTP status alone. For gRPC and HTTP on one port.
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    /// use tollgate_tonic::{GrpcStatus, key::PeerIp};
    /// use tollgate_tower::{HeaderFormat, rejection::Problem};
    /// use tonic::service::Routes;
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("burst", Quota::per_second(5)));
    /// let layer = tollgate_tonic::builder(limiter, PeerIp::new())
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
        GrpcStatus { code: self.code, domain: self.domain, subject: self.subject, pushback: self.pushback, http }
    }

    /// [`status`] with these options.
    #[must_use]
    pub fn status(&self, decision: &Decision) -> Status {
        if decision.is_allowed() { Status::ok("") } else { self.denied(decision) }
    }

    /// [`error_status`] with these options.
    #[must_use]
    pub fn error_status(&self, error: &Error) -> Status {
        match error.kind() {
            tollgate::ErrorKind::CostExceedsBurst => self.cost_never_fits(),
            _ => self.unavailable(),
        }
    }

    /// The same for gRPC calls, where there are no others.
    pub(crate) fn without_http(&self) -> GrpcStatus {
        let Self { code, domain, subject, pushback, http: _ } = self;
        GrpcStatus { code: *code, domain: domain.clone(), subject: subject.clone(), pushback: *pushback, http: Empty }
    }

    /// Whether the call may go on.
    pub(crate) fn judge(&self, answer: Result<Decision, Error>) -> Result<(), Status> {
        match answer {
            Ok(decision) if decision.is_allowed() => Ok(()),
            Ok(decision) => Err(self.denied(&decision)),
            Err(error) => Err(self.error_status(&error)),
        }
    }

    /// The status of a call whose key was not found, where the middleware does not log why.
    pub(crate) fn keyless_and_logged(&self, error: &KeyError) -> Status {
        if error.kind() == KeyErrorKind::Misconfigured {
            tracing::error!(hint = %error, "a call cannot be rate limited");
        }
        self.keyless(error)
    }

    fn keyless(&self, error: &KeyError) -> Status {
        match error.kind() {
            KeyErrorKind::Missing => Status::invalid_argument(error.to_string()),
            _ => Status::internal("internal error"),
        }
    }

    fn of(&self, reason: Reason<'_>) -> Status {
        match reason {
            Reason::Denied(decision) => self.denied(decision),
            Reason::CostNeverFits(_) => self.cost_never_fits(),
            Reason::MissingKey(error) => self.keyless(error),
            _ => self.unavailable(),
        }
    }
}

impl<B: Default, H: Respond<B>> Respond<B> for GrpcStatus<H> {
    fn respond(&self, rejection: &Rejection<'_>) -> Response<B> {
        let Some(form) = Form::of(&rejection.request().headers) else { return self.http.respond(rejection) };
        form.trailers_only(self.of(rejection.reason()))
    }
}

impl Default for GrpcStatus {
    fn default() -> Self {
        Self::new()
    }
}

impl<H> fmt::Debug for GrpcStatus<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcStatus")
            .field("code", &self.code)
            .field("domain", &self.domain)
            .field("pushback", &self.pushback)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
