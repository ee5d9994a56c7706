//! Limits calls in interceptors of tonic, for places where a layer does not fit.
//! The layers are those of `tollgate_tower`; `lib.rs` gives them gRPC statuses.

#[cfg(feature = "async-interceptor")]
mod asynchronous;
mod keyed_limiter;
mod synchronous;

#[cfg(feature = "async-interceptor")]
pub use asynchronous::{AsyncRateLimitInterceptor, InterceptFuture};
pub use synchronous::{RateLimitInterceptor, StoreNotInProcess};
