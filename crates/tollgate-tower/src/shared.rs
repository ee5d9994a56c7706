use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use http::{HeaderValue, request::Parts};
use tollgate::{CheckFuture, Cost, Key, Limiter};

use crate::{
    Dialect, KeyExtractor, Limits, fields,
    key::{KeyError, KeyErrorKind},
    metrics,
    settle::Settle,
    tiers::{Pick, Picker},
    wait,
    watch::Watch,
};

/// What all clones of a layer and of its services have in common.
pub(crate) struct Shared<K, R> {
    pub(crate) limits: Vec<Limit>,
    pub(crate) options: Options,
    pub(crate) responder: R,
    key: K,
    pick: Option<Picker>,
    watch: Watch,
    is_misconfigured: AtomicBool,
}

/// A limiter, and what every answer says of it.
pub(crate) struct Limit {
    pub(crate) limiter: Limiter,
    pub(crate) configured: Option<HeaderValue>,
    pub(crate) metrics: metrics::Limit,
    has_queue: bool,
}

/// What a builder leaves as it is unless told otherwise. Closures are erased: they are no part of
/// the layer's name.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) cost: Option<FromParts<Cost>>,
    pub(crate) exempt: Option<FromParts<bool>>,
    pub(crate) settle: Option<Settle>,
    pub(crate) wait: Option<Duration>,
    pub(crate) dialect: Dialect,
    pub(crate) is_for_browsers: bool,
    pub(crate) is_shadow: bool,
    pub(crate) exposes_decisions: bool,
}

type FromParts<T> = Box<dyn Fn(&Parts) -> T + Send + Sync>;

/// What is to be done with a request.
pub(crate) enum Asked {
    /// It passes without a decision.
    Exempt,
    /// Nobody knows whose quota it spends.
    Keyless(KeyError),
    Check(CheckFuture, Ticket),
}

/// What has to be remembered until there is a decision.
pub(crate) struct Ticket {
    /// Which limiter is asked.
    pub(crate) at: usize,
    /// Whose quota is spent, where something may be given back.
    pub(crate) key: Option<Box<Key>>,
    pub(crate) timer: metrics::Timer,
}

impl<K, R> Shared<K, R> {
    pub(crate) fn new(limits: Limits, options: Options, key: K, responder: R) -> Self {
        let limit = |limiter: Limiter| Limit {
            configured: fields::configured(options.dialect, limiter.policies()),
            has_queue: wait::has_queue(&limiter),
            limiter,
            metrics: metrics::Limit::default(),
        };
        Self {
            limits: limits.limiters.into_iter().map(limit).collect(),
            options,
            responder,
            key,
            pick: limits.pick,
            watch: Watch::default(),
            is_misconfigured: AtomicBool::new(false),
        }
    }

    /// Asks the limiter about a request.
    #[inline(always)]
    pub(crate) fn ask(&self, parts: &mut Parts) -> Asked
    where
        K: KeyExtractor,
    {
        let options = &self.options;
        if options.exempt.as_ref().is_some_and(|exempt| exempt(parts)) {
            return Asked::Exempt;
        }
        let at = match &self.pick {
            None => 0,
            Some(pick) => match pick(parts) {
                Ok(Pick::Limiter(at)) => at,
                Ok(Pick::Exempt) => return Asked::Exempt,
                Err(error) => return self.keyless(error),
            },
        };
        // A key is used where it lies: it is larger than what there is to do with it.
        let extraction = self.key.extract(parts);
        let key = match &extraction {
            Ok(Some(key)) => key,
            Ok(None) => return Asked::Exempt,
            Err(error) => return self.keyless(error.clone()),
        };
        let limiter = &self.limits[at].limiter;
        self.watch.pass(parts, key, limiter.policies());
        let cost = options.cost.as_ref().map_or(Cost::ONE, |cost| cost(parts));
        let ticket =
            Ticket { at, key: options.settle.as_ref().map(|_| Box::new(key.clone())), timer: metrics::Timer::start() };
        let check = match options.wait {
            Some(max) => wait::until_ready(limiter, key.clone(), cost, max),
            None if self.limits[at].has_queue => wait::through_queue(limiter, key.clone(), cost),
            None => limiter.check_key(key, cost),
        };
        Asked::Check(check, ticket)
    }

    #[cold]
    fn keyless(&self, error: KeyError) -> Asked {
        // Every request fails alike: one line says it.
        if error.kind() == KeyErrorKind::Misconfigured && !self.is_misconfigured.swap(true, Ordering::Relaxed) {
            tracing::error!(hint = %error, "requests cannot be rate limited");
        }
        if self.options.is_shadow { Asked::Exempt } else { Asked::Keyless(error) }
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limiter.fmt(f)
    }
}
