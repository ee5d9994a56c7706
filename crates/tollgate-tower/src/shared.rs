use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{Response, request::Parts};
use tollgate::{CheckFuture, Cost, Decision, Error, ErrorKind, Key, Limiter};

use crate::{
    HeaderFormat, KeyExtractor, LimiterSource, MetricLabels, Respond,
    account::Ledger,
    answer::Passed,
    fields::Wording,
    key::{KeyError, KeyErrorKind},
    metrics,
    rejection::Reason,
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
    pub(crate) labels: MetricLabels,
    key: K,
    pick: Option<Picker>,
    watch: Watch,
    is_misconfigured: AtomicBool,
}

/// How many limits there were.
static LIMITS: AtomicU64 = AtomicU64::new(0);

/// A limiter, and what every answer says of it.
pub(crate) struct Limit {
    /// No other limit of the process has it.
    pub(crate) number: u64,
    pub(crate) limiter: Limiter,
    pub(crate) wording: Wording,
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
    pub(crate) dialect: HeaderFormat,
    pub(crate) is_for_browsers: bool,
    pub(crate) is_shadow: bool,
    pub(crate) exposes_decisions: bool,
    pub(crate) labels: Option<MetricLabels>,
    pub(crate) rpc: Option<RpcOf>,
    pub(crate) accounts: Option<Accounts>,
}

type FromParts<T> = Box<dyn Fn(&Parts) -> T + Send + Sync>;

type RpcOf = Box<dyn for<'a> Fn(&'a Parts) -> Option<(&'a str, &'a str)> + Send + Sync>;

/// Which limiter an account spends from.
pub(crate) enum Accounts {
    /// The one that let the request pass.
    Same,
    /// The one at this place.
    At(usize),
}

/// What a call of a remote procedure is named in the log.
#[derive(Clone)]
pub(crate) struct Rpc<T> {
    pub(crate) service: Option<T>,
    pub(crate) method: Option<T>,
}

/// Names come from clients: the log takes no more of them.
const NAME_BYTES: usize = 128;

impl<T> Rpc<T> {
    pub(crate) const NONE: Self = Self { service: None, method: None };
}

impl<'a> Rpc<&'a str> {
    fn new((service, method): (&'a str, &'a str)) -> Self {
        Self { service: Some(cut(service)), method: Some(cut(method)) }
    }

    pub(crate) fn into_owned(self) -> Rpc<Box<str>> {
        Rpc { service: self.service.map(Box::from), method: self.method.map(Box::from) }
    }
}

impl Rpc<Box<str>> {
    pub(crate) fn as_deref(&self) -> Rpc<&str> {
        Rpc { service: self.service.as_deref(), method: self.method.as_deref() }
    }
}

fn cut(name: &str) -> &str {
    let end = (0..=NAME_BYTES.min(name.len())).rev().find(|&end| name.is_char_boundary(end));
    &name[..end.unwrap_or_default()]
}

/// What is to be done with a request.
pub(crate) enum Asked<B> {
    Passes(Passed),
    /// The service is not called.
    Refused(Response<B>),
    /// The store has to be waited for.
    Check(CheckFuture, Ticket),
}

/// What has to be remembered until there is a decision.
pub(crate) struct Ticket {
    /// Which limiter is asked.
    pub(crate) at: usize,
    /// Whose quota is spent, where something may be given back.
    pub(crate) key: Option<Box<Key>>,
    pub(crate) place: metrics::Place,
    pub(crate) timer: metrics::Timer,
}

impl<K, R> Shared<K, R> {
    pub(crate) fn new(limits: LimiterSource, options: Options, key: K, responder: R) -> Self {
        let labels = options.labels.clone().or(limits.labels).unwrap_or_default();
        let limit = |limiter: Limiter| Limit {
            number: LIMITS.fetch_add(1, Ordering::Relaxed),
            wording: Wording::new(options.dialect, limiter.policies(), options.is_for_browsers),
            has_queue: wait::has_queue(&limiter),
            limiter,
            metrics: metrics::Limit::new(&labels),
        };
        Self {
            limits: limits.limiters.into_iter().map(limit).collect(),
            labels,
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
    pub(crate) fn ask<B>(self: &Arc<Self>, parts: &mut Parts) -> Asked<B>
    where
        K: KeyExtractor,
        R: Respond<B>,
    {
        let options = &self.options;
        if options.exempt.as_ref().is_some_and(|exempt| exempt(parts)) {
            return Asked::Passes(Passed::EXEMPT);
        }
        let at = match &self.pick {
            None => 0,
            Some(pick) => match pick(parts) {
                Ok(Pick::Limiter(at)) => at,
                Ok(Pick::Exempt) => return Asked::Passes(Passed::EXEMPT),
                Err(error) => return self.keyless(&error, parts),
            },
        };
        // A key is used where it lies, and so is a decision: they are larger than what there is to do with them.
        let extraction = self.key.extract(parts);
        let key = match &extraction {
            Ok(Some(key)) => key,
            Ok(None) => return Asked::Passes(Passed::EXEMPT),
            Err(error) => return self.keyless(error, parts),
        };
        let limiter = &self.limits[at].limiter;
        self.watch.pass(parts, key, limiter.policies());
        let cost = options.cost.as_ref().map_or(Cost::ONE, |cost| cost(parts));
        let is_key_kept = options.settle.is_some() || options.accounts.is_some();
        let kept = is_key_kept.then(|| Box::new(key.clone()));
        let ticket = Ticket { at, key: kept, place: self.place(parts), timer: metrics::Timer::start() };
        let check = self.check(at, key, cost);
        match check.as_ready() {
            None => Asked::Check(check, ticket),
            Some(answer) => self.judge(answer, ticket, parts),
        }
    }

    #[inline(always)]
    fn check(&self, at: usize, key: &Key, cost: Cost) -> CheckFuture {
        let Limit { limiter, has_queue, .. } = &self.limits[at];
        match self.options.wait {
            Some(max) => wait::until_ready(limiter, key.clone(), cost, max),
            None if *has_queue => wait::through_queue(limiter, key.clone(), cost),
            None => limiter.check_key(key, cost),
        }
    }

    /// The place of a request among the labels of the metrics.
    fn place(&self, parts: &Parts) -> metrics::Place {
        metrics::Place::of(parts, &self.labels)
    }

    /// What a request is named in the log.
    pub(crate) fn rpc<'a>(&self, parts: &'a Parts) -> Rpc<&'a str> {
        self.options.rpc.as_ref().and_then(|rpc| rpc(parts)).map_or(Rpc::NONE, Rpc::new)
    }

    /// Counts and logs a decision; `timer` is absent where nobody measured.
    pub(crate) fn decided(
        &self,
        at: usize,
        decision: &Decision,
        place: metrics::Place,
        timer: Option<&metrics::Timer>,
        rpc: &Rpc<&str>,
    ) {
        let is_shadow = self.options.is_shadow;
        self.limits[at].metrics.decided(decision, &self.labels, place, timer, is_shadow);
        if decision.is_denied() {
            tracing::debug!(
                policy = decision.binding().map(|state| state.policy().name()),
                shadow = is_shadow,
                rpc.service = rpc.service,
                rpc.method = rpc.method,
                "denied"
            );
        }
    }

    /// Counts and logs that the service is not called, or not to go on.
    pub(crate) fn rejected(&self, reason: Reason<'_>, place: metrics::Place, rpc: &Rpc<&str>) {
        metrics::rejected(reason.as_str(), &self.labels, place);
        // A denial is logged where it is decided, in shadow too.
        if !matches!(reason, Reason::Denied(_)) {
            let reason = reason.as_str();
            tracing::debug!(reason, rpc.service = rpc.service, rpc.method = rpc.method, "refused");
        }
    }

    #[cold]
    fn keyless<B>(&self, error: &KeyError, parts: &Parts) -> Asked<B>
    where
        R: Respond<B>,
    {
        // Every request fails alike: one line says it.
        if error.kind() == KeyErrorKind::Misconfigured && !self.is_misconfigured.swap(true, Ordering::Relaxed) {
            tracing::error!(hint = %error, "requests cannot be rate limited");
        }
        if self.options.is_shadow {
            return Asked::Passes(Passed::EXEMPT);
        }
        Asked::Refused(self.refuse_keyless(error, parts, self.place(parts)))
    }
}

impl<K: Send + Sync, R: Send + Sync> Ledger for Shared<K, R> {
    fn limiter(&self, at: usize) -> &Limiter {
        &self.limits[at].limiter
    }

    fn check(&self, at: usize, key: Key, cost: Cost) -> CheckFuture {
        self.check(at, &key, cost)
    }

    fn note(&self, at: usize, answer: &Result<Decision, Error>, place: metrics::Place, rpc: &Rpc<&str>) -> bool {
        let reason = match answer {
            Ok(decision) => {
                self.decided(at, decision, place, None, rpc);
                if decision.is_allowed() {
                    return true;
                }
                Reason::Denied(decision)
            }
            Err(error) if error.kind() == ErrorKind::CostExceedsBurst => Reason::CostNeverFits(error),
            Err(error) => Reason::Unavailable(error),
        };
        if !self.options.is_shadow {
            self.rejected(reason, place, rpc);
        }
        self.options.is_shadow
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limiter.fmt(f)
    }
}
