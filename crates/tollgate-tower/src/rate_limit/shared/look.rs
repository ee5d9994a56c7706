//! The way of a request that asks for its own state.

use std::ops::ControlFlow::{Break, Continue};

use http::{Response, request::Parts};
use tollgate::{Cost, Error, ErrorKind, Priority, limiter::Limited};

use super::{Shared, reject::reason_of};
use crate::{
    key::{KeyError, KeyExtractor},
    rate_limit::{
        joint::JointCheck,
        layer::Verdict,
        limiters::Target,
        state::{Look, Looking, Resources},
    },
    rejection::{Reason, Respond},
};

impl<K: KeyExtractor, R: Respond<B>, B: Send + 'static> Look<B> for Shared<K, R> {
    fn look<'a>(&'a self, parts: &'a Parts, resources: &'a mut Resources) -> Looking<'a, B> {
        Box::pin(self.add_states(parts, resources))
    }
}

impl<K: KeyExtractor, R> Shared<K, R> {
    /// Adds the states of the limiter that applies to a request.
    async fn add_states<B: Send>(&self, parts: &Parts, resources: &mut Resources) -> Result<(), Response<B>>
    where
        R: Respond<B>,
    {
        let target = match self.target(parts) {
            Continue(target) => target,
            Break(verdict) => return rejected(verdict),
        };
        let limiter = match target {
            Target::Fixed(at) => self.fixed[at].limiter.clone(),
            Target::Lookup(at) => match self.lookups[at].limiter_for(parts) {
                Ok(limiter) => match limiter.await {
                    Ok(Limited::By(limiter)) => limiter,
                    Ok(Limited::Exempt) => return Ok(()),
                    Err(error) => return self.fail(&error, self.is_shadow_without_key(), parts),
                },
                Err(error) => return rejected(self.judge_without_key(&error, parts)),
            },
            Target::Decider(at) => return self.add_joint_states(at, parts, resources).await,
            Target::Exempt => return Ok(()),
        };
        let key = match self.key.extract(parts) {
            Ok(Some(key)) => key,
            Ok(None) => return Ok(()),
            Err(error) => return rejected(self.judge_without_key(&error, parts)),
        };
        if self.is_shadow(&key) {
            return Ok(());
        }
        match limiter.peek(key).await {
            Ok(state) => match state.degraded() {
                Some(kind) => self.fail(&away(kind), false, parts),
                None => {
                    state.states().for_each(|state| resources.add(&state));
                    Ok(())
                }
            },
            Err(error) => self.fail(&error, false, parts),
        }
    }

    /// Adds the states of all limits of a decider, which decides at a cost of zero.
    async fn add_joint_states<B: Send>(
        &self,
        at: usize,
        parts: &Parts,
        resources: &mut Resources,
    ) -> Result<(), Response<B>>
    where
        R: Respond<B>,
    {
        let check = JointCheck::new(Cost::ZERO, Priority::CRITICAL, self.options.enforcement.as_ref());
        let decided = match self.deciders[at].decide(parts, check) {
            Ok(decided) => decided.await,
            Err(error) => return rejected(self.judge_without_key(&error, parts)),
        };
        let mut joint = match decided {
            Ok(Some(joint)) => joint,
            Ok(None) => return Ok(()),
            Err(error) => return self.fail(&error, self.is_shadow_without_key(), parts),
        };
        if let Some((key, reason @ Reason::Forbidden)) = joint.refused() {
            let is_shadow = self.is_shadow(key);
            return if is_shadow { Ok(()) } else { rejected(self.reject_unchecked(reason, parts)) };
        }
        joint.enforce(|key| !self.is_shadow(key));
        for decision in joint.enforced() {
            if let Some(kind) = decision.degraded() {
                return self.fail(&away(kind), false, parts);
            }
            decision.states().for_each(|state| resources.add(&state));
        }
        Ok(())
    }

    /// Answers a request whose state is not known.
    fn fail<B>(&self, error: &Error, is_shadow: bool, parts: &Parts) -> Result<(), Response<B>>
    where
        R: Respond<B>,
    {
        rejected(match error.kind() {
            ErrorKind::KeyLevels | ErrorKind::CrossSlot => {
                self.judge_misconfigured(&KeyError::misconfigured(error.to_string()), is_shadow, parts)
            }
            _ if is_shadow => return Ok(()),
            _ => self.reject_unchecked(reason_of(error), parts),
        })
    }
}

fn away(kind: ErrorKind) -> Error {
    Error::new(kind, "the store did not answer")
}

/// Returns the response of a rejection. A request that is admitted without a check has no limits.
fn rejected<B>(verdict: Verdict<B>) -> Result<(), Response<B>> {
    match verdict {
        Verdict::Reject(response) => Err(response),
        Verdict::Admit(_) | Verdict::Wait(_) => Ok(()),
    }
}
