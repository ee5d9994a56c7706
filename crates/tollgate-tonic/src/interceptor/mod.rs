//! Limits where an interceptor is all that fits.

#[cfg(feature = "async-interceptor")]
mod waiting;

use std::{fmt, sync::Arc};

use tollgate::{Key, Limiter};
use tollgate_tower::KeyExtractor;
use tonic::{Request, Status, service::Interceptor};

use crate::{GrpcStatus, key::Head};

#[cfg(feature = "async-interceptor")]
pub use waiting::{AsyncRateLimitInterceptor, InterceptFuture};

/// A rate limit as an interceptor of tonic: `GreeterServer::with_interceptor(greeter, interceptor)`.
///
/// **An interceptor of tonic is a synchronous function: it cannot wait for Redis.** So this one
/// works with a limiter that decides inside the process, and [`new`](Self::new) refuses any other.
/// It limits one replica; what all replicas share needs the [`layer`](crate::layer) or, with the
/// feature `async-interceptor`, `AsyncRateLimitInterceptor`.
///
/// | | layer | async interceptor | this |
/// |---|---|---|---|
/// | counts in Redis | yes | yes | **no** |
/// | knows which method is called (`key::Method`, `key::Service`, options per method) | yes | no | **no** |
/// | tells what is left in response metadata | yes | no | **no** |
/// | status with details and pushback | yes | yes | yes |
/// | fits `with_interceptor` | no | no | yes |
///
/// Use the layer wherever it fits; `tonic::service::LayerExt::named_layer` puts it around a single
/// service.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tonic::{RateLimitInterceptor, key::Metadata};
/// use tonic::{Code, Request, service::Interceptor};
///
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("burst", Quota::per_minute(1)));
/// let mut interceptor = RateLimitInterceptor::new(limiter, Metadata::new("x-api-key"))?;
///
/// let request = || {
///     let mut request = Request::new(());
///     request.metadata_mut().insert("x-api-key", "acme".parse().unwrap());
///     request
/// };
/// assert!(interceptor.call(request()).is_ok());
/// assert_eq!(interceptor.call(request()).unwrap_err().code(), Code::ResourceExhausted);
/// # Ok::<(), tollgate_tonic::WouldBlock>(())
/// ```
#[derive(Clone)]
pub struct RateLimitInterceptor {
    shared: Arc<Shared>,
}

/// What clones have in common.
struct Shared {
    limiter: Limiter,
    key: Box<dyn KeyExtractor>,
    answer: GrpcStatus,
}

impl RateLimitInterceptor {
    /// An interceptor that decides on the spot.
    ///
    /// # Errors
    ///
    /// The limiter's store has to be waited for.
    pub fn new(limiter: Limiter, key: impl KeyExtractor) -> Result<Self, WouldBlock> {
        Self::with_answer(limiter, key, GrpcStatus::new())
    }

    /// An interceptor whose denials look as `answer` says.
    ///
    /// # Errors
    ///
    /// The limiter's store has to be waited for.
    pub fn with_answer(limiter: Limiter, key: impl KeyExtractor, answer: GrpcStatus) -> Result<Self, WouldBlock> {
        if !limiter.is_in_process() {
            return Err(WouldBlock(()));
        }
        Ok(Self { shared: Arc::new(Shared { limiter, key: Box::new(key), answer }) })
    }
}

impl Interceptor for RateLimitInterceptor {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let (head, key) = self.shared.open(request)?;
        if let Some(key) = key {
            match self.shared.limiter.check(key).into_ready() {
                Ok(answer) => self.shared.judge(answer)?,
                Err(_) => {
                    tracing::error!(hint = %WouldBlock(()), "a call cannot be rate limited");
                    return Err(Status::internal("internal error"));
                }
            }
        }
        Ok(head.into_request())
    }
}

impl Shared {
    /// The head of a request and its key.
    fn open(&self, request: Request<()>) -> Result<(Head, Option<Key>), Status> {
        let (metadata, extensions, ()) = request.into_parts();
        let head = Head::new(metadata, extensions);
        match head.extract(&*self.key) {
            Ok(key) => Ok((head, key)),
            Err(error) => {
                if error.kind() == tollgate_tower::key::KeyErrorKind::Misconfigured {
                    tracing::error!(hint = %error, "a call cannot be rate limited");
                }
                Err(self.answer.keyless(&error))
            }
        }
    }

    fn judge(&self, answer: Result<tollgate::Decision, tollgate::Error>) -> Result<(), Status> {
        match answer {
            Ok(decision) if decision.is_allowed() => Ok(()),
            Ok(decision) => Err(self.answer.status(&decision)),
            Err(error) => Err(self.answer.error_status(&error)),
        }
    }
}

impl fmt::Debug for RateLimitInterceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitInterceptor").field("limiter", &self.shared.limiter).finish_non_exhaustive()
    }
}

/// The limiter's store has to be waited for, which an interceptor of tonic cannot do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WouldBlock(());

impl fmt::Display for WouldBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "an interceptor cannot wait for the store of this limiter: \
             put `tollgate_tonic::layer(limiter, key)` around the service, with `LayerExt::named_layer` for one of many, \
             or use `AsyncRateLimitInterceptor` (feature `async-interceptor`)",
        )
    }
}

impl std::error::Error for WouldBlock {}
