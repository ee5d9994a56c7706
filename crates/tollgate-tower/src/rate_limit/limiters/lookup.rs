use std::{fmt, hash::Hash};

use http::request::Parts;
use tollgate::{Limited, Limiter, LimiterFuture, LimiterHandle, Selection, StoreFuture, TenantLimiters};

use crate::key::KeyError;

/// Looks up the limiter of a request.
pub(crate) trait Lookup: fmt::Debug + Send + Sync {
    /// Returns the limiter of a request. It is ready at once where nothing has to be fetched.
    fn limiter_for(&self, parts: &Parts) -> Result<LimiterFuture, KeyError>;
}

pub(super) fn ready(limiter: Limited) -> Result<LimiterFuture, KeyError> {
    Ok(StoreFuture::ready(Ok(limiter)))
}

impl Lookup for LimiterHandle {
    fn limiter_for(&self, _: &Parts) -> Result<LimiterFuture, KeyError> {
        ready(Limited::By(self.load()))
    }
}

/// Selects a limiter by a function.
pub(super) struct ByFunction<F> {
    pub(super) default: Limiter,
    pub(super) select: F,
}

impl<F> Lookup for ByFunction<F>
where
    F: Fn(&Parts) -> Selection + Send + Sync,
{
    fn limiter_for(&self, parts: &Parts) -> Result<LimiterFuture, KeyError> {
        let selected = (self.select)(parts).limiter(&self.default);
        ready(selected.map_err(|error| KeyError::misconfigured(error.to_string()))?)
    }
}

impl<F> fmt::Debug for ByFunction<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByFunction").field("default", &self.default).finish_non_exhaustive()
    }
}

/// Fetches the limits of the tenant that a function finds.
pub(super) struct ByTenant<T, F> {
    pub(super) tenants: TenantLimiters<T>,
    pub(super) find: F,
}

impl<T, F> Lookup for ByTenant<T, F>
where
    T: Clone + Eq + Hash + Send + Sync + 'static,
    F: Fn(&Parts) -> Option<T> + Send + Sync,
{
    fn limiter_for(&self, parts: &Parts) -> Result<LimiterFuture, KeyError> {
        match (self.find)(parts) {
            Some(tenant) => Ok(self.tenants.limiter_for(&tenant)),
            None => ready(Limited::By(self.tenants.default_limiter().clone())),
        }
    }
}

impl<T, F> fmt::Debug for ByTenant<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tenants.fmt(f)
    }
}
