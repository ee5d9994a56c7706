//! Proposes quotas that would have denied at most a share of the requests.
//! The requests that it tries are kept in `tally.rs`.

use std::num::NonZeroUsize;

use serde::Serialize;
use tollgate::{
    Algorithm, Cost, Error, MemoryStore, Policy, PolicySet, Quota, Store as _,
    store::{Check, Clock},
};

use super::tally::{Events, Tally};

/// A proposal for one policy.
#[derive(Debug, Serialize)]
pub(super) struct Suggestion {
    pub(super) policy: String,
    /// The quota of the rule, and the requests that it alone would have denied.
    pub(super) quota: String,
    pub(super) denied: u64,
    /// The smallest quota that is within the share, if there is one, and the requests that it alone
    /// would have denied.
    pub(super) suggested: Option<String>,
    pub(super) suggested_denied: Option<u64>,
}

/// Proposes a quota for each policy of a rule.
pub(super) async fn suggest(tally: &Tally, percent: f64) -> Result<Vec<Suggestion>, Error> {
    let (Some(events), Some(policies)) = (&tally.events, &tally.rule.policies) else {
        return Ok(Vec::new());
    };
    if events.all.is_empty() {
        return Ok(Vec::new());
    }
    // Rounded down, so that the share is never above the limit.
    let most = (events.all.len() as f64 * percent / 100.0) as u64;
    let mut suggestions = Vec::new();
    for policy in policies.iter() {
        let denied = denied(policy, events).await?;
        let found = smallest(policy, events, most).await?;
        suggestions.push(Suggestion {
            policy: policy.name().to_owned(),
            quota: text(policy, policy.quota()),
            denied,
            suggested: found.map(|(quota, _)| text(policy, quota)),
            suggested_denied: found.map(|(_, denied)| denied),
        });
    }
    Ok(suggestions)
}

/// Returns a quota as rules have it. In a file, the text of a token bucket without its burst is a
/// fixed window.
fn text(policy: &Policy, quota: Quota) -> String {
    let is_bucket = policy.algorithm() == Algorithm::TokenBucket;
    let burst =
        (is_bucket && quota.burst() == quota.amount()).then(|| format!(" burst {}", quota.burst()));
    format!("{quota}{}", burst.unwrap_or_default())
}

/// Finds the smallest amount by bisection. Returns the quota and what it denies.
async fn smallest(
    policy: &Policy,
    events: &Events,
    most: u64,
) -> Result<Option<(Quota, u64)>, Error> {
    let (mut low, mut high) = (0, 1);
    let mut found = None;
    // No more than all requests can be needed.
    let top = events.all.len() as u64;
    while found.is_none() {
        let Some(candidate) = with_amount(policy, high) else {
            return Ok(None);
        };
        let denied = denied(&candidate, events).await?;
        if denied <= most {
            found = Some((candidate.quota(), denied));
        } else if high >= top {
            return Ok(None);
        } else {
            low = high;
            high = (high * 2).min(top);
        }
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        let Some(candidate) = with_amount(policy, middle) else {
            break;
        };
        let denied = denied(&candidate, events).await?;
        if denied <= most {
            high = middle;
            found = Some((candidate.quota(), denied));
        } else {
            low = middle;
        }
    }
    Ok(found)
}

/// Returns the policy with another amount, and a burst of the same share. `None` when the algorithm
/// has no room for it.
fn with_amount(policy: &Policy, amount: u64) -> Option<Policy> {
    let quota = policy.quota();
    let mut other = Quota::try_new(amount, quota.period()).ok()?;
    if quota.burst() != quota.amount() {
        let burst = u128::from(amount) * u128::from(quota.burst()) / u128::from(quota.amount());
        other = other
            .try_with_burst(u64::try_from(burst).ok()?.max(1))
            .ok()?;
    }
    Policy::try_new(policy.name(), policy.algorithm(), other).ok()
}

/// Counts the requests that a policy alone would have denied.
async fn denied(policy: &Policy, events: &Events) -> Result<u64, Error> {
    let clock = Clock::manual(0);
    // Twice the room, because a full part of the store drops states although another part has room.
    let room = NonZeroUsize::MIN.saturating_add(2 * events.keys.len() + 4_096);
    let store = MemoryStore::builder()
        .max_keys(room)
        .clock(clock.clone())
        .build();
    let policies = PolicySet::from(policy.clone());
    let mut denied = 0;
    for event in &events.all {
        clock.set(event.time_us);
        let key = &events.keys[event.key as usize];
        let decision = store.check(Check::new(&policies, key, Cost::ONE)).await?;
        denied += u64::from(decision.is_denied());
    }
    Ok(denied)
}
