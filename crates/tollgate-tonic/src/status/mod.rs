//! Builds the status of a denied call.
//! When a call is denied is decided in `tollgate_tower`, or by the handler that asks here.

mod grpc_status;
mod template;

use tollgate::{Decision, Error, reservation::GrowthError};
use tonic::Status;

pub use grpc_status::GrpcStatus;

/// Returns the status of a decision, for a handler that checks a limiter itself.
///
/// A denied decision gives `RESOURCE_EXHAUSTED` with `RetryInfo`, `QuotaFailure` and `ErrorInfo` in
/// the details. An allowed decision gives `OK`, which a handler must not return as an error: check
/// [`is_denied`](Decision::is_denied) first. [`GrpcStatus::status`] is the same with options.
///
/// ```
/// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tonic::{error_status, status};
/// use tonic::{Code, Status};
/// use tonic_types::StatusExt;
///
/// async fn export(limiter: &Limiter, tenant: &str, rows: u64) -> Result<(), Status> {
///     let decision = limiter.check(tenant).cost(Cost::new(rows)).await.map_err(|error| error_status(&error))?;
///     if decision.is_denied() {
///         return Err(status(&decision));
///     }
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("rows", Quota::per_hour(100)));
/// assert!(export(&limiter, "acme", 80).await.is_ok());
///
/// let denied = export(&limiter, "acme", 80).await.unwrap_err();
/// assert_eq!(denied.code(), Code::ResourceExhausted);
/// assert!(denied.get_details_retry_info().unwrap().retry_delay.unwrap().as_secs() >= 2_100);
///
/// let too_large = export(&limiter, "acme", 101).await.unwrap_err();
/// assert_eq!(too_large.get_details_error_info().unwrap().reason, "COST_EXCEEDS_LIMIT");
/// # }
/// ```
#[must_use]
pub fn status(decision: &Decision) -> Status {
    GrpcStatus::new().status(decision)
}

/// Returns the status of a check that failed, so that there is no decision.
///
/// | [kind](Error::kind) of the error | status |
/// |---|---|
/// | [`CostExceedsBurst`](tollgate::ErrorKind::CostExceedsBurst) | `RESOURCE_EXHAUSTED`, without `RetryInfo` |
/// | [`KeyLevels`](tollgate::ErrorKind::KeyLevels), [`CrossSlot`](tollgate::ErrorKind::CrossSlot) | `INTERNAL` |
/// | any other | `UNAVAILABLE` |
///
/// Write the text of the error to the log: the status does not contain it.
/// [`GrpcStatus::error_status`] is the same with options.
///
/// ```
/// use tollgate::{Error, ErrorKind};
/// use tollgate_tonic::error_status;
///
/// let status = error_status(&Error::new(ErrorKind::Unavailable, "redis at 10.0.0.7 does not answer"));
/// assert_eq!(status.code(), tonic::Code::Unavailable);
/// assert_eq!(status.message(), "rate limiter unavailable");
/// ```
#[must_use]
pub fn error_status(error: &Error) -> Status {
    GrpcStatus::new().error_status(error)
}

/// Returns the status of a stream whose reservation does not grow further.
///
/// A denied slice gives the status of its decision, as [`status`] does: `RESOURCE_EXHAUSTED` with
/// `RetryInfo`. A slice that nobody decided gives that of its error, as [`error_status`] does, and a
/// reservation that was settled before the end of its stream `INTERNAL`.
/// [`GrpcStatus::growth_status`] is the same with options, and
/// [`messages::metered`](crate::messages::metered()) ends a stream with it.
///
/// ```
/// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tonic::growth_status;
/// use tonic::Code;
/// use tonic_types::StatusExt;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// let limiter = Limiter::new(MemoryStore::new(), Policy::window_from_first_hit("messages", Quota::per_hour(4)));
/// let reservation = limiter.reserve("acme", Cost::ZERO).growing(Cost::new(2)).await?;
/// reservation.growth().take(4).await.unwrap();
/// let status = growth_status(&reservation.growth().take(1).await.unwrap_err());
/// assert_eq!(status.code(), Code::ResourceExhausted);
/// assert!(status.get_details_retry_info().unwrap().retry_delay.unwrap().as_secs() > 3_000);
/// # Ok(()) }
/// ```
#[must_use]
pub fn growth_status(error: &GrowthError) -> Status {
    GrpcStatus::new().growth_status(error)
}

#[cfg(test)]
mod tests;
