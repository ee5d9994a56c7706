//! From the decision to the answer.

use std::{mem, sync::Arc};

use http::{Response, request::Parts};
use tollgate::{Decision, Error, ErrorKind};

use crate::{
    Account, Decisions, Rejection, Respond,
    fields::Told,
    key::KeyError,
    metrics::{self, Place},
    rejection::{Completion, Reason},
    settle::{Charge, Outcome},
    shared::{Accounts, Asked, Limit, Shared, Ticket},
};

/// A request that was let pass, until the service has answered.
pub(crate) struct Passed {
    told: Told,
    more: Option<Box<More>>,
}

/// What few layers have.
struct More {
    charge: Option<Charge>,
    exposed: Option<Decisions>,
}

impl Passed {
    /// A request without a decision.
    pub(crate) const EXEMPT: Self = Self { told: Told::NOTHING, more: None };

    /// What has to know that the service is running, which may panic.
    #[inline]
    pub(crate) fn charge(&mut self) -> Option<&mut Charge> {
        self.more.as_mut()?.charge.as_mut()
    }

    /// The service ended with an error.
    pub(crate) fn failed(&mut self) {
        if let Some(charge) = self.charge() {
            charge.settle(Outcome::Failed);
        }
    }

    /// Completes the service's own response.
    #[inline(always)]
    pub(crate) fn finish<B>(&mut self, response: &mut Response<B>) {
        if let Some(more) = self.more.take() {
            more.finish(response);
        }
        self.told.add_to(response.headers_mut());
    }
}

impl More {
    fn finish<B>(mut self: Box<Self>, response: &mut Response<B>) {
        if let Some(mut charge) = self.charge.take() {
            // The head, lent out for as long as it is looked at: the response itself stays where it is.
            let (mut head, ()) = Response::new(()).into_parts();
            (head.status, head.version) = (response.status(), response.version());
            mem::swap(&mut head.headers, response.headers_mut());
            mem::swap(&mut head.extensions, response.extensions_mut());
            charge.settle(Outcome::Response(&head));
            mem::swap(&mut head.headers, response.headers_mut());
            mem::swap(&mut head.extensions, response.extensions_mut());
        }
        if let Some(decisions) = self.exposed.take() {
            decisions.tell(response.extensions_mut());
        }
    }
}

impl<K: Send + Sync + 'static, R> Shared<K, R> {
    /// What the answer of the store means for the request.
    #[inline(always)]
    pub(crate) fn judge<B>(
        self: &Arc<Self>,
        answer: Result<&Decision, &Error>,
        ticket: Ticket,
        parts: &mut Parts,
    ) -> Asked<B>
    where
        R: Respond<B>,
    {
        let Ticket { at, key, place, timer } = ticket;
        let (limit, options) = (&self.limits[at], &self.options);
        let decision = match answer {
            Ok(decision) => decision,
            Err(error) => {
                metrics::failed(error);
                if options.is_shadow {
                    tracing::debug!(%error, "no decision; the limit is in shadow");
                    return Asked::Passes(Passed::EXEMPT);
                }
                let reason = match error.kind() {
                    ErrorKind::CostExceedsBurst => Reason::CostNeverFits(error),
                    _ => Reason::Unavailable(error),
                };
                return Asked::Refused(self.refuse(reason, Some(limit), parts, place));
            }
        };
        let exposed = options.exposes_decisions.then(|| Decisions::add(decision, &mut parts.extensions));
        self.decided(at, decision, place, Some(&timer), &self.rpc(parts));
        if decision.is_denied() && !options.is_shadow {
            return Asked::Refused(self.refuse(Reason::Denied(decision), Some(limit), parts, place));
        }
        if let (Some(accounts), Some(key)) = (&options.accounts, &key) {
            let at = match accounts {
                Accounts::Same => at,
                Accounts::At(at) => *at,
            };
            let account = Account::new(self, at, (**key).clone(), parts, place);
            parts.extensions.insert(account);
        }
        let charge = match (&options.settle, key) {
            (Some(settle), Some(key)) if decision.is_allowed() => {
                Some(Charge::new(limit.limiter.clone(), *key, decision.clone(), settle.clone()))
            }
            _ => None,
        };
        let more = (charge.is_some() || exposed.is_some()).then(|| Box::new(More { charge, exposed }));
        let told = if options.is_shadow { Told::NOTHING } else { limit.wording.of(decision) };
        Asked::Passes(Passed { told, more })
    }
}

impl<K, R> Shared<K, R> {
    /// The answer to a request without a key.
    pub(crate) fn refuse_keyless<B>(&self, error: &KeyError, parts: &Parts, place: Place) -> Response<B>
    where
        R: Respond<B>,
    {
        self.refuse(Reason::MissingKey(error), None, parts, place)
    }

    fn refuse<B>(&self, reason: Reason<'_>, limit: Option<&Limit>, parts: &Parts, place: Place) -> Response<B>
    where
        R: Respond<B>,
    {
        self.rejected(reason, place, &self.rpc(parts));
        let completion = Completion::new(reason, limit);
        let rejection = Rejection::new(reason, completion.retry_after(), parts);
        let mut response = self.responder.complete(&rejection, &completion);
        if let Some(decisions) = parts.extensions.get::<Decisions>()
            && self.options.exposes_decisions
        {
            response.extensions_mut().insert(decisions.clone());
        }
        response
    }
}
