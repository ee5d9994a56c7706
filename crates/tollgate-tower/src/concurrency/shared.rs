//! What happens to one request: it waits for a permit, is rejected or admitted, and may be revoked.
//! The permit in the body is in `held.rs`. Who gets one next is decided in the core.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Response, request::Parts};
use http_body::Body;
use tollgate_core::{
    Error, ErrorKind, Key,
    permits::{ConcurrencyLimiter, Permit, PermitDenied},
};

use super::held::{self, HeldPermit, PermitBody, Watch};
use crate::{
    gate::GateOptions,
    headers::{HeaderUpdate, MissingHeaders, PermitHeaders},
    key::{KeyError, KeyExtractor},
    rejection::{Overload, Reason, Respond},
};

pub(super) type AcquireFuture =
    Pin<Box<dyn Future<Output = Result<Result<Permit, PermitDenied>, Error>> + Send>>;

/// Stores what all clones of a layer and all of its services share.
pub(super) struct Shared<K, R> {
    pub(super) limiter: ConcurrencyLimiter,
    pub(super) key: K,
    pub(super) gate: GateOptions<R>,
    /// A request without a permit is answered with 503 instead of 429.
    pub(super) is_unavailable: bool,
    pub(super) headers: Option<PermitHeaders>,
}

impl<K, R> Shared<K, R> {
    /// Returns the key of a request. `None` for one that is exempt.
    pub(super) fn key(&self, parts: &Parts) -> Result<Option<Key>, KeyError>
    where
        K: KeyExtractor,
    {
        if self.gate.is_exempt(parts) {
            Ok(None)
        } else {
            self.key.extract(parts)
        }
    }

    pub(super) fn acquire(&self, key: Key) -> AcquireFuture {
        let limiter = self.limiter.clone();
        Box::pin(async move { limiter.acquire(key).await })
    }

    /// Turns the outcome of an acquire into a permit, or into the response to a rejected request.
    pub(super) fn judge<B>(
        self: &Arc<Self>,
        outcome: Result<Result<Permit, PermitDenied>, Error>,
        parts: &Parts,
    ) -> Result<InFlight<K, R>, Response<B>>
    where
        R: Respond<B>,
    {
        match outcome {
            Ok(Ok(permit)) => {
                let remaining = u64::from(permit.limit()).saturating_sub(permit.in_flight());
                let headers = self
                    .headers
                    .as_ref()
                    .map_or(HeaderUpdate::EMPTY, |headers| headers.update(remaining));
                let (permit, watch) = held::hold(&self.limiter, permit);
                // A request whose permit is lost is answered after its head has gone to the
                // service.
                let revocation = watch.is_some().then(|| {
                    Box::new(Revocation {
                        shared: Arc::clone(self),
                        request: parts.clone(),
                    })
                });
                Ok(InFlight {
                    permit: Some(permit),
                    watch,
                    headers,
                    revocation,
                })
            }
            Ok(Err(denied)) => Err(self.deny(&denied, parts)),
            Err(error) => match error.kind() {
                ErrorKind::Config | ErrorKind::Unsupported | ErrorKind::NoRuntime => {
                    Err(self.reject_without_key(&KeyError::misconfigured(error.to_string()), parts))
                }
                _ => Err(self.reject(Reason::Unavailable(&error), parts)),
            },
        }
    }

    /// Rejects a request whose permit was lost while the service worked on it.
    fn reject_lost<B>(&self, parts: &Parts) -> Response<B>
    where
        R: Respond<B>,
    {
        let error = Error::new(
            ErrorKind::Unavailable,
            "the permit was lost before the service answered",
        );
        self.reject(Reason::Unavailable(&error), parts)
    }

    fn deny<B>(&self, denied: &PermitDenied, parts: &Parts) -> Response<B>
    where
        R: Respond<B>,
    {
        if self.is_unavailable {
            let in_flight = u32::try_from(denied.in_flight()).unwrap_or(u32::MAX);
            let overload = Overload::new(in_flight, denied.limit(), denied.retry_after());
            return self.reject(Reason::Overloaded(&overload), parts);
        }
        self.reject(Reason::NoPermit(denied), parts)
    }

    #[cold]
    pub(super) fn reject_without_key<B>(&self, error: &KeyError, parts: &Parts) -> Response<B>
    where
        R: Respond<B>,
    {
        self.gate
            .log_misconfiguration(error, "requests get no permits");
        self.reject(Reason::of_key_error(error), parts)
    }

    fn reject<B>(&self, reason: Reason<'_>, parts: &Parts) -> Response<B>
    where
        R: Respond<B>,
    {
        tracing::debug!(
            reason = reason.as_str(),
            limit = self.limiter.policy().name(),
            "rejected"
        );
        let mut response = self.gate.reject(reason, parts);
        if let (Some(headers), Reason::NoPermit(_) | Reason::Overloaded(_)) =
            (&self.headers, reason)
        {
            headers
                .update(0)
                .add_missing_to(&mut MissingHeaders::of(response.headers_mut()));
        }
        response
    }
}

/// Keeps what belongs to a request while the service works on it.
#[allow(
    missing_debug_implementations,
    reason = "only the skeleton of the layers sees it"
)]
pub struct InFlight<K, R> {
    /// `None` for a request that is exempt.
    permit: Option<HeldPermit>,
    watch: Option<Watch>,
    headers: HeaderUpdate,
    /// Answers a request whose permit is watched, when the permit is lost.
    revocation: Option<Box<Revocation<K, R>>>,
}

struct Revocation<K, R> {
    shared: Arc<Shared<K, R>>,
    request: Parts,
}

impl<K, R> InFlight<K, R> {
    /// Stands for a request that is exempt.
    pub(super) const EXEMPT: Self = Self {
        permit: None,
        watch: None,
        headers: HeaderUpdate::EMPTY,
        revocation: None,
    };

    /// Adds the headers to a response, and gives the permit to its body.
    pub(super) fn complete<B: Body>(
        &mut self,
        mut response: Response<B>,
    ) -> Response<PermitBody<B>> {
        self.headers.add_to(response.headers_mut());
        match self.permit.take() {
            Some(permit) => PermitBody::guard(response, permit, self.watch.take()),
            None => response.map(PermitBody::unguarded),
        }
    }

    /// Gives the permit of a request back whose service returned an error.
    pub(super) fn fail(&mut self) {
        (self.permit, self.watch) = (None, None);
    }

    /// Returns a rejection once the permit is lost.
    pub(super) fn poll_lost<B>(&mut self, cx: &mut Context<'_>) -> Poll<Response<B>>
    where
        R: Respond<B>,
    {
        if let Some(watch) = &mut self.watch
            && watch.poll_lost(cx).is_ready()
        {
            self.watch = None;
            if let Some(revocation) = self.revocation.take() {
                return Poll::Ready(revocation.shared.reject_lost(&revocation.request));
            }
        }
        Poll::Pending
    }
}
