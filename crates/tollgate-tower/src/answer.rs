//! From the decision to the answer.

use http::{HeaderMap, HeaderValue, Response, header, request::Parts};
use tollgate::{Decision, Error, ErrorKind};

use crate::{
    Decisions, Rejection, Respond,
    fields::{self, Told},
    key::KeyError,
    metrics,
    rejection::Reason,
    settle::{Charge, Outcome},
    shared::{Limit, Shared, Ticket},
};

/// A request that was let pass, until the service has answered.
pub(crate) struct Passed {
    decision: Decision,
    at: usize,
    charge: Option<Box<Charge>>,
    exposed: Option<Decisions>,
}

impl Passed {
    /// Runs a part of the service, which may panic.
    pub(crate) fn running<T>(&mut self, run: impl FnOnce() -> T) -> T {
        match &mut self.charge {
            Some(charge) => charge.running(run),
            None => run(),
        }
    }

    /// The service ended with an error.
    pub(crate) fn failed(mut self) {
        if let Some(charge) = &mut self.charge {
            charge.settle(Outcome::Failed);
        }
    }
}

impl<K, R> Shared<K, R> {
    /// How the request passes (`None` without a decision), or the answer to it.
    pub(crate) fn judge<B>(
        &self,
        answer: Result<Decision, Error>,
        ticket: Ticket,
        parts: &mut Parts,
    ) -> Result<Option<Passed>, Response<B>>
    where
        R: Respond<B>,
    {
        let Ticket { at, key, timer } = ticket;
        let (limit, options) = (&self.limits[at], &self.options);
        let decision = match answer {
            Ok(decision) => decision,
            Err(error) => {
                metrics::failed(&error);
                if options.is_shadow {
                    tracing::debug!(%error, "no decision; the limit is in shadow");
                    return Ok(None);
                }
                let reason = match error.kind() {
                    ErrorKind::CostExceedsBurst => Reason::CostNeverFits(&error),
                    _ => Reason::Unavailable(&error),
                };
                return Err(self.refuse(reason, Some(limit), parts));
            }
        };
        limit.metrics.decided(&timer, &decision, options.is_shadow);
        let exposed = options.exposes_decisions.then(|| Decisions::add(&decision, &mut parts.extensions));
        if decision.is_denied() {
            let policy = decision.binding().map(|state| state.policy().name());
            tracing::debug!(policy, shadow = options.is_shadow, "denied");
            if !options.is_shadow {
                return Err(self.refuse(Reason::Denied(&decision), Some(limit), parts));
            }
        }
        let charge = match (&options.settle, key) {
            (Some(settle), Some(key)) if decision.is_allowed() => {
                Some(Box::new(Charge::new(limit.limiter.clone(), key, decision.clone(), settle.clone())))
            }
            _ => None,
        };
        Ok(Some(Passed { decision, at, charge, exposed }))
    }

    /// The answer to a request without a key.
    pub(crate) fn refuse_keyless<B>(&self, error: &KeyError, parts: &mut Parts) -> Response<B>
    where
        R: Respond<B>,
    {
        self.refuse(Reason::MissingKey(error), None, parts)
    }

    fn refuse<B>(&self, reason: Reason<'_>, limit: Option<&Limit>, parts: &Parts) -> Response<B>
    where
        R: Respond<B>,
    {
        metrics::rejected(reason.as_str());
        let rejection = Rejection::new(reason, parts);
        let mut response = self.responder.respond(&rejection);
        if let Some(decisions) = parts.extensions.get::<Decisions>()
            && self.options.exposes_decisions
        {
            response.extensions_mut().insert(decisions.clone());
        }
        let headers = response.headers_mut();
        if let Some(seconds) = rejection.retry_after_seconds() {
            headers.entry(header::RETRY_AFTER).or_insert_with(|| seconds.into());
        }
        match (reason, limit) {
            (Reason::Denied(decision), Some(limit)) => {
                headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
                if let Some(told) = self.tell(limit, decision) {
                    fields::fill_in(headers, told);
                    self.expose(headers);
                }
            }
            (Reason::CostNeverFits(_), Some(limit)) => {
                if let Some(configured) = &limit.configured {
                    headers.entry(fields::RATELIMIT_POLICY).or_insert_with(|| configured.clone());
                }
            }
            _ => {}
        }
        response
    }

    /// Completes the service's own response.
    pub(crate) fn finish<B>(&self, passed: Passed, response: Response<B>) -> Response<B> {
        let Passed { decision, at, charge, exposed } = passed;
        let (mut parts, body) = response.into_parts();
        if let Some(mut charge) = charge {
            charge.settle(Outcome::Response(&parts));
        }
        if let Some(decisions) = exposed {
            decisions.tell(&mut parts.extensions);
        }
        if !self.options.is_shadow {
            if let Some(told) = self.tell(&self.limits[at], &decision) {
                fields::merge(&mut parts.headers, told);
                self.expose(&mut parts.headers);
            }
            fields::postpone(&decision, &mut parts.headers);
        }
        Response::from_parts(parts, body)
    }

    fn tell(&self, limit: &Limit, decision: &Decision) -> Option<Told> {
        let dialect = self.options.dialect;
        // The share that a replica enforces by itself is not what was configured.
        let configured = match decision.is_degraded() {
            false => limit.configured.clone(),
            true => fields::configured(dialect, decision.policies()),
        };
        fields::of(dialect, decision, configured)
    }

    /// Lets the scripts of browsers read the fields.
    fn expose(&self, headers: &mut HeaderMap) {
        if self.options.is_for_browsers {
            let names = self.options.dialect.joined_names();
            let is_told = headers.get_all(header::ACCESS_CONTROL_EXPOSE_HEADERS).iter().any(|line| line == names);
            if !is_told {
                headers.append(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(names));
            }
        }
    }
}
