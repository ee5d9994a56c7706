//! Derives the outcomes of the charges. In the mode `envoy`, they are those of counters that denied
//! requests raise too.
//! What the store is asked to charge is in `steps.rs`, and the answer to the request is combined in
//! `verdict/combine.rs`.

use std::time::Duration;

use futures_util::future::join;
use tollgate::{Cost, Decision, Key, limiter::PolicyState};

use super::{
    exceeded::Exceeded,
    steps::{ChargedDescriptor, all, now},
};
use crate::{Compat, DescriptorOutcome, Match, Plan, Planned, rule::Limit};

/// Returns the outcomes of a part of a plan, without those that give units back. In the mode `envoy`, a denied descriptor loses what it had left, and a
/// check of 0 units is denied only when more than the limit was asked for before.
pub(super) async fn settle(
    plan: &Plan<'_>,
    part: &[Planned<'_>],
    charges: &[Option<ChargedDescriptor>],
    exceeded: &Exceeded,
) -> Vec<Option<DescriptorOutcome>> {
    if part.iter().all(Planned::is_refund) {
        return vec![None; part.len()];
    }
    let descriptors = part
        .iter()
        .zip(charges)
        .map(|(planned, charge)| (planned, charge.as_ref()));
    if plan.compat().is_envoy() && !descriptors.clone().all(passes_as_envoy) {
        // Boxed because it is rare: see `charge` in `steps.rs`.
        let descriptors: Vec<_> = descriptors.collect();
        return Box::pin(settle_as_envoy(&descriptors, exceeded)).await;
    }
    descriptors
        .map(|(planned, charge)| {
            charge
                .map(|charge| charge.outcome)
                .or_else(|| blocked_outcome(planned))
        })
        .collect()
}

/// One descriptor of a request, and its charge.
type Settled<'p> = (&'p Planned<'p>, Option<&'p ChargedDescriptor>);

async fn settle_as_envoy(
    descriptors: &[Settled<'_>],
    exceeded: &Exceeded,
) -> Vec<Option<DescriptorOutcome>> {
    // A descriptor that was denied has raised the counter before the request names it again.
    let mut again: Vec<Vec<(usize, Settled<'_>)>> =
        descriptors.iter().map(|_| Vec::new()).collect();
    let mut is_again = vec![false; descriptors.len()];
    for (at, settled) in descriptors.iter().enumerate() {
        let Some(counter) = counter(settled.0).filter(|_| !is_again[at] && raises(*settled)) else {
            continue;
        };
        for (later, settled) in descriptors.iter().enumerate().skip(at + 1) {
            if self::counter(settled.0).as_ref() == Some(&counter) {
                is_again[later] = true;
                again[at].push((later, *settled));
            }
        }
    }
    // All marks are read before one is made: a check of 0 units does not see what the request names
    // after it.
    let first = (0..descriptors.len()).filter(|at| !is_again[*at]);
    let (reading, raising): (Vec<_>, Vec<_>) = first.partition(|at| descriptors[*at].0.hits() == 0);
    let mut outcomes = vec![None; descriptors.len()];
    for part in [reading, raising] {
        let settled = part
            .into_iter()
            .map(|at| raise(at, descriptors[at], &again[at], exceeded));
        for (at, outcome) in all(settled).await.into_iter().flatten() {
            outcomes[at] = outcome;
        }
    }
    outcomes
}

/// Returns whether the outcome of a descriptor is that of its charge in the mode `envoy`, too: it
/// neither raises a counter beyond its limit, nor tests whether that was exceeded before.
fn passes_as_envoy((planned, charge): Settled<'_>) -> bool {
    match charge {
        Some(_) => planned.hits() > 0 && !raises((planned, charge)),
        None => planned.charged().is_none(),
    }
}

/// Returns whether a descriptor was denied, and so raises its counter beyond the limit.
fn raises((planned, charge): Settled<'_>) -> bool {
    let is_over = |charge: &ChargedDescriptor| {
        let is_degraded = charge.decision.as_ref().is_ok_and(Decision::is_degraded);
        charge.outcome.is_over() && !is_degraded
    };
    planned.hits() > 0 && charge.is_none_or(is_over)
}

/// Returns what the counter of a descriptor is named by: its key, its amount and its window.
fn counter(planned: &Planned<'_>) -> Option<(Key, (u64, Duration))> {
    Some((planned.charged()?.key(), amount(planned)?))
}

fn amount(planned: &Planned<'_>) -> Option<(u64, Duration)> {
    planned.charged()?.rule().amount()
}

/// Returns the outcome of a descriptor in the mode `envoy`, and of those that name its counter
/// again. Raises the counter when the descriptor is denied.
async fn raise(
    at: usize,
    (planned, charge): Settled<'_>,
    again: &[(usize, Settled<'_>)],
    exceeded: &Exceeded,
) -> Vec<(usize, Option<DescriptorOutcome>)> {
    let (Some(found), Some((limit, period))) = (planned.charged(), amount(planned)) else {
        return Vec::new();
    };
    let hits = planned.hits();
    let one = |outcome: Option<DescriptorOutcome>| vec![(at, outcome)];
    let every = || std::iter::once((at, (planned, charge))).chain(again.iter().copied());
    let Some(charge) = charge else {
        if hits > 0 {
            let units = every().map(|(_, (planned, _))| planned.hits());
            let units = units.fold(0, u64::saturating_add);
            exceeded.raise(&found.key(), period, units).await;
            return every()
                .map(|(at, (planned, _))| (at, blocked(found, planned.hits())))
                .collect();
        }
        let is_over = exceeded.above(&found.key(), period).await > 0;
        return one(blocked(found, hits).map(|outcome| outcome.with_over(is_over)));
    };
    if charge.decision.as_ref().is_ok_and(Decision::is_degraded) {
        return one(Some(charge.outcome));
    }
    if hits == 0 {
        let is_over =
            charge.outcome.remaining() == 0 && exceeded.above(&charge.key, period).await > 0;
        return one(Some(charge.outcome.with_over(is_over)));
    }
    if !charge.outcome.is_over() {
        return one(Some(charge.outcome));
    }
    let passed = |(planned, charge): &Settled<'_>| {
        charge
            .filter(|charge| !charge.outcome.is_over())
            .map(|_| planned.hits())
    };
    let spent: u64 = again
        .iter()
        .filter_map(|(_, settled)| passed(settled))
        .sum();
    let left = left(charge, spent).await;
    // As with the local cache of Envoy's service, remembered denials are not counted.
    let is_counted = |charge: Option<&ChargedDescriptor>| !charge.is_some_and(is_remembered);
    let counted = every()
        .filter(|(_, (_, charge))| is_counted(*charge))
        .map(|(_, (planned, _))| planned.hits());
    let counted = counted.fold(0, u64::saturating_add);
    join(
        spend(charge, left.saturating_sub(spent)),
        exceeded.raise(&charge.key, period, counted.saturating_sub(left)),
    )
    .await;
    let mut after = limit.saturating_sub(left);
    let outcomes = every().map(|(at, (planned, charge))| {
        let hits = planned.hits();
        after = after.saturating_add(hits);
        let outcome = if charge.is_some_and(is_remembered) {
            DescriptorOutcome::remembered(period, hits, now())
        } else {
            DescriptorOutcome::from_count(limit, period, after, hits, now(), Compat::Envoy)
        };
        (at, Some(outcome))
    });
    outcomes.collect()
}

/// Returns whether the store was not asked, because it had denied the same charge before.
fn is_remembered(charge: &ChargedDescriptor) -> bool {
    charge.decision.as_ref().is_ok_and(Decision::is_remembered)
}

/// Returns the units that a denied descriptor has left, before the request spent `again` on the
/// same counter.
async fn left(charge: &ChargedDescriptor, again: u64) -> u64 {
    let least = |states: &mut dyn Iterator<Item = PolicyState<'_>>| {
        states.map(|state| state.remaining()).min()
    };
    let left = match &charge.decision {
        // What was left when the store denied it was spent by that denial.
        Ok(decision) if decision.is_remembered() => Some(0),
        Ok(decision) => least(&mut decision.states()),
        // More units than the limit ever has were not sent to the store.
        Err(_) => match charge.limiter.peek(charge.key.clone()).await {
            Ok(state) => least(&mut state.states()).map(|left| left.saturating_add(again)),
            Err(_) => None,
        },
    };
    left.unwrap_or(0)
}

/// Spends the units that are left, because Envoy's service counts denied units too.
async fn spend(charge: &ChargedDescriptor, left: u64) {
    if left > 0
        && let Err(error) = charge
            .limiter
            .check_key(&charge.key)
            .cost(Cost::new(left))
            .await
    {
        tracing::debug!(limiter = charge.limiter.name(), %error, "a denied request was not charged");
    }
}

/// Returns the outcome of a descriptor without a charge: there is one if its rule denies every request.
pub(super) fn blocked_outcome(planned: &Planned<'_>) -> Option<DescriptorOutcome> {
    blocked(planned.charged()?, planned.hits())
}

/// Returns the outcome of a rule that denies every request.
pub(super) fn blocked(found: &Match<'_>, hits: u64) -> Option<DescriptorOutcome> {
    match found.rule().limit() {
        Limit::Blocked { period, .. } => Some(DescriptorOutcome::blocked(*period, hits, now())),
        _ => None,
    }
}
