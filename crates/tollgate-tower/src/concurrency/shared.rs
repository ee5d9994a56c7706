use std::sync::atomic::{AtomicBool, Ordering};

use http::{Response, request::Parts};
use tollgate::{Acquired, ConcurrencyLimiter, Error, ErrorKind, Key, PermitDenied};

use super::{
    held,
    in_flight::{AcquireFuture, InFlight},
    layer::{ConcurrencyBuilder, Options},
};
use crate::{
    headers::{HeaderUpdate, MissingHeaders, PermitHeaders},
    key::{KeyError, KeyErrorKind, KeyExtractor},
    rejection::{Overload, Reason, Respond, reject},
};

/// Stores what all clones of a layer and all of its services share.
pub(super) struct Shared<K, R> {
    pub(super) limiter: ConcurrencyLimiter,
    key: K,
    options: Options,
    headers: Option<PermitHeaders>,
    responder: R,
    has_logged_misconfiguration: AtomicBool,
}

impl<K, R> Shared<K, R> {
    pub(super) fn new(builder: ConcurrencyBuilder<K, R>) -> Self {
        let ConcurrencyBuilder { limiter, key, options, responder } = builder;
        let headers = PermitHeaders::new(limiter.policy().name(), limiter.limit());
        let headers = options.has_headers.then_some(headers);
        Self { limiter, key, options, headers, responder, has_logged_misconfiguration: AtomicBool::new(false) }
    }

    /// Returns the key of a request. `None` for one that is exempt.
    pub(super) fn key(&self, parts: &Parts) -> Result<Option<Key>, KeyError>
    where
        K: KeyExtractor,
    {
        match &self.options.exempt {
            Some(exempt) if exempt(parts) => Ok(None),
            _ => self.key.extract(parts),
        }
    }

    pub(super) fn acquire(&self, key: Key) -> AcquireFuture {
        let limiter = self.limiter.clone();
        Box::pin(async move { limiter.acquire(key).await })
    }

    /// Turns the outcome of an acquire into a permit, or into the response to a rejected request.
    pub(super) fn judge<B>(&self, outcome: Result<Acquired, Error>, parts: &Parts) -> Result<InFlight, Response<B>>
    where
        R: Respond<B>,
    {
        match outcome {
            Ok(Acquired::Permit(permit)) => {
                let remaining = u64::from(permit.limit()).saturating_sub(permit.in_flight());
                let headers = self.headers.as_ref().map_or(HeaderUpdate::EMPTY, |headers| headers.update(remaining));
                let (permit, watch) = held::hold(&self.limiter, permit);
                // A request whose permit is lost is answered after its head has gone to the service.
                let request = watch.is_some().then(|| Box::new(parts.clone()));
                Ok(InFlight { permit: Some(permit), watch, headers, request })
            }
            Ok(Acquired::Denied(denied)) => Err(self.deny(&denied, parts)),
            Err(error) => match error.kind() {
                ErrorKind::Config | ErrorKind::Unsupported | ErrorKind::NoRuntime => {
                    Err(self.reject_without_key(&KeyError::misconfigured(error.to_string()), parts))
                }
                _ => Err(self.reject(Reason::Unavailable(&error), parts)),
            },
        }
    }

    /// Rejects a request whose permit was lost while the service worked on it.
    pub(super) fn reject_lost<B>(&self, parts: &Parts) -> Response<B>
    where
        R: Respond<B>,
    {
        let error = Error::new(ErrorKind::Unavailable, "the permit was lost before the service answered");
        self.reject(Reason::Unavailable(&error), parts)
    }

    fn deny<B>(&self, denied: &PermitDenied, parts: &Parts) -> Response<B>
    where
        R: Respond<B>,
    {
        if self.options.is_unavailable {
            let in_flight = u32::try_from(denied.in_flight()).unwrap_or(u32::MAX);
            let overload = Overload { in_flight, limit: denied.limit(), retry_after: denied.retry_after() };
            return self.reject(Reason::Overloaded(&overload), parts);
        }
        self.reject(Reason::NoPermit(denied), parts)
    }

    #[cold]
    pub(super) fn reject_without_key<B>(&self, error: &KeyError, parts: &Parts) -> Response<B>
    where
        R: Respond<B>,
    {
        // The mistake is the same for every request, so it is logged once.
        let is_misconfigured = error.kind() == KeyErrorKind::Misconfigured;
        if is_misconfigured && !self.has_logged_misconfiguration.swap(true, Ordering::Relaxed) {
            tracing::error!(hint = %error, "requests get no permits");
        }
        self.reject(Reason::MissingKey(error), parts)
    }

    fn reject<B>(&self, reason: Reason<'_>, parts: &Parts) -> Response<B>
    where
        R: Respond<B>,
    {
        tracing::debug!(reason = reason.as_str(), limit = self.limiter.policy().name(), "rejected");
        let Options { retry_jitter, labels, .. } = &self.options;
        let mut response = reject(&self.responder, reason, *retry_jitter, labels, parts);
        if let (Some(headers), Reason::NoPermit(_) | Reason::Overloaded(_)) = (&self.headers, reason) {
            headers.update(0).add_missing_to(&mut MissingHeaders::of(response.headers_mut()));
        }
        response
    }
}
