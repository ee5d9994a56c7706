//! Gives back the units of descriptors that ask for it. What a denied request has spent is refunded
//! in `steps.rs`.

use futures_util::future::join;
use smallvec::SmallVec;
use tollgate::{Cost, Error, Limiter};

use super::{
    exceeded::Exceeded,
    settle::blocked,
    steps::{ChargedDescriptor, Pending, all},
};
use crate::{DescriptorOutcome, Plan, Planned, Rule};

/// One descriptor that gave units back: its place, its outcome, and the look at what is left then.
/// A rule of 0 requests has no look.
type Returned = (usize, DescriptorOutcome, Option<ChargedDescriptor>);

/// Gives back the units of all refunding descriptors of a part.
pub(super) async fn give_back<'l>(
    plan: &Plan<'_>,
    part: &[Planned<'_>],
    exceeded: &Exceeded,
    limiter: impl Fn(&Rule) -> &'l Limiter,
) -> Result<SmallVec<[Returned; 1]>, Error> {
    if !part.iter().any(Planned::is_refund) {
        return Ok(SmallVec::new());
    }
    let refunds = part.iter().enumerate().filter(|(_, one)| one.is_refund());
    let returned = refunds.map(|(place, planned)| {
        let pending = Pending::of(place, planned, plan, &limiter);
        async move {
            match pending {
                Some(pending) => pending.give_back(exceeded).await.map(Some),
                None => Ok(lower_blocked(place, planned, plan, exceeded).await),
            }
        }
    });
    // Boxed because it is rare: see `charge` in `steps.rs`.
    let returned = Box::pin(all(returned)).await.into_iter();
    returned.filter_map(Result::transpose).collect()
}

/// Lowers the counter of a rule that denies every request. Only the mode `envoy` has one.
async fn lower_blocked(
    place: usize,
    planned: &Planned<'_>,
    plan: &Plan<'_>,
    exceeded: &Exceeded,
) -> Option<Returned> {
    let (found, hits) = (planned.charged()?, planned.hits());
    if let Some((_, period)) = found.rule().amount().filter(|_| plan.compat().is_envoy()) {
        exceeded.lower(&found.key(), period, hits).await;
    }
    let outcome = blocked(found, hits)?.refunded(hits);
    Some((place, outcome, None))
}

impl Pending<'_, '_> {
    async fn give_back(self, exceeded: &Exceeded) -> Result<Returned, Error> {
        let (place, hits) = (self.place, self.planned.hits());
        let amount = self.rule.amount().filter(|_| self.compat.is_envoy());
        let Some((limit, period)) = amount else {
            let limiter = self.limiter.with_policies(self.policies.clone());
            refund(&limiter, &self, hits).await;
            let charge = self.spend(0).await?;
            return Ok((place, charge.outcome.refunded(hits), Some(charge)));
        };
        // What is above the limit is given back first.
        let limiter = self.limiter.with_policies(self.policies.clone());
        let (key, pending) = (self.key.clone(), &self);
        let (above, charge) = join(exceeded.above(&key, period), pending.spend(0)).await;
        let charge = charge?;
        let spent = limit.saturating_sub(charge.outcome.remaining());
        let of_limit = hits.saturating_sub(above).min(spent);
        join(
            exceeded.lower(&key, period, hits.min(above)),
            refund(&limiter, pending, of_limit),
        )
        .await;
        let count = spent.saturating_add(above).saturating_sub(hits);
        let outcome = charge.outcome.refunded(hits);
        let outcome = outcome.with_remaining(limit.saturating_sub(count));
        Ok((place, outcome, Some(charge)))
    }
}

async fn refund(limiter: &Limiter, pending: &Pending<'_, '_>, hits: u64) {
    let refund = limiter.refund(pending.key.clone(), Cost::new(hits));
    if hits > 0
        && let Err(error) = refund.await
    {
        tracing::debug!(limiter = limiter.name(), %error, "units were not given back");
    }
}
