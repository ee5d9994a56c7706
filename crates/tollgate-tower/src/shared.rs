use http::{HeaderMap, HeaderValue, Response, header, request::Parts};
use tollgate::{CheckFuture, Cost, Decision, Error, ErrorKind, Limiter};

use crate::{
    KeyExtractor, Rejection, Respond, fields,
    key::{KeyError, KeyErrorKind},
    rejection::{Problem, Reason},
};

/// What all clones of a layer and of its services have in common.
pub(crate) struct Shared<K, R> {
    pub(crate) limit: Limit,
    pub(crate) options: Options,
    key: K,
    responder: R,
}

/// What a builder leaves as it is unless told otherwise. Closures are erased: they are no part of
/// the layer's name.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) cost: Option<FromParts<Cost>>,
    pub(crate) exempt: Option<FromParts<bool>>,
}

type FromParts<T> = Box<dyn Fn(&Parts) -> T + Send + Sync>;

/// A limiter, and what is said of it on every answer.
pub(crate) struct Limit {
    pub(crate) limiter: Limiter,
    policy_field: HeaderValue,
}

/// What is to be done with a request.
pub(crate) enum Asked {
    Exempt,
    Missing(KeyError),
    Check(CheckFuture),
}

impl<K> Shared<K, Problem> {
    pub(crate) fn new(limiter: Limiter, key: K) -> Self {
        let policy_field = fields::policies(limiter.policies());
        Self { limit: Limit { limiter, policy_field }, options: Options::default(), key, responder: Problem::new() }
    }
}

impl<K, R> Shared<K, R> {
    pub(crate) fn respond_with<R2>(self, responder: R2) -> Shared<K, R2> {
        Shared { limit: self.limit, options: self.options, key: self.key, responder }
    }

    /// Asks the limiter about a request.
    pub(crate) fn ask(&self, parts: &Parts) -> Asked
    where
        K: KeyExtractor,
    {
        if self.options.exempt.as_ref().is_some_and(|exempt| exempt(parts)) {
            return Asked::Exempt;
        }
        match self.key.extract(parts) {
            Ok(Some(key)) => {
                let cost = self.options.cost.as_ref().map_or(Cost::ONE, |cost| cost(parts));
                Asked::Check(self.limit.limiter.check_cost(key, cost))
            }
            Ok(None) => Asked::Exempt,
            Err(error) => Asked::Missing(error),
        }
    }

    /// The decision by which the request passes, or the answer to it.
    pub(crate) fn judge<B>(&self, answer: Result<Decision, Error>, parts: &Parts) -> Result<Decision, Response<B>>
    where
        R: Respond<B>,
    {
        match answer {
            Ok(decision) if decision.is_allowed() => Ok(decision),
            Ok(decision) => Err(self.refuse(Reason::Denied(&decision), parts)),
            Err(error) if error.kind() == ErrorKind::CostExceedsBurst => {
                Err(self.refuse(Reason::CostNeverFits(&error), parts))
            }
            Err(error) => Err(self.refuse(Reason::Unavailable(&error), parts)),
        }
    }

    /// The answer to a request that has no key.
    pub(crate) fn refuse_keyless<B>(&self, error: &KeyError, parts: &Parts) -> Response<B>
    where
        R: Respond<B>,
    {
        if error.kind() == KeyErrorKind::Misconfigured {
            tracing::error!(hint = %error, "a request cannot be rate limited");
        }
        self.refuse(Reason::MissingKey(error), parts)
    }

    fn refuse<B>(&self, reason: Reason<'_>, parts: &Parts) -> Response<B>
    where
        R: Respond<B>,
    {
        let rejection = Rejection::new(reason, parts);
        let mut response = self.responder.respond(&rejection);
        let headers = response.headers_mut();
        if let Some(seconds) = rejection.retry_after_seconds() {
            headers.entry(header::RETRY_AFTER).or_insert_with(|| seconds.into());
        }
        match reason {
            Reason::Denied(decision) => {
                tracing::debug!(policy = decision.binding().map(|state| state.policy().name()), "rate limit: denied");
                headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
                if !headers.contains_key(fields::RATELIMIT) && !headers.contains_key(fields::RATELIMIT_POLICY) {
                    self.limit.describe(decision, headers);
                }
            }
            Reason::CostNeverFits(_) => {
                headers.entry(fields::RATELIMIT_POLICY).or_insert_with(|| self.limit.policy_field.clone());
            }
            Reason::MissingKey(_) | Reason::Unavailable(_) => {}
        }
        response
    }

    /// Adds to the service's own response what the decision says.
    pub(crate) fn finish(&self, decision: &Decision, headers: &mut HeaderMap) {
        self.limit.describe(decision, headers);
        fields::postpone(decision, headers);
    }
}

impl Limit {
    fn describe(&self, decision: &Decision, headers: &mut HeaderMap) {
        let Some(state) = fields::states(decision) else { return };
        // The share that a replica enforces by itself is not what was configured.
        let policy = match decision.is_degraded() {
            false => self.policy_field.clone(),
            true => fields::policies(decision.policies()),
        };
        fields::append(headers, fields::RATELIMIT_POLICY, policy);
        fields::append(headers, fields::RATELIMIT, state);
    }
}
