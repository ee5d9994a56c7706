//! The times in which another service must not be called, which all replicas share.
//! When one begins is decided in `service.rs`, by what the service answers.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::{
    Algorithm, Cost, Costs, Decision, Error, Key, Limiter, MemoryStore, Policy, Priority, Quota,
    limiter::PolicyState, store::Clock,
};
use tollgate_tower::gate::in_background;

/// Keeps the times for which another service asked not to be called, for all replicas.
///
/// A pause is a queue in a leaky bucket from which one unit leaves each microsecond: a pause of 5 s
/// is a queue of 5 000 000 units. So every store keeps it, by its own clock, and forgets it when it
/// is over. A lockout would cut a pause to the time of whoever reads it, and a debt adds up where
/// several replicas are refused at once.
pub(crate) struct Pauses {
    /// Shares the store of the limiter.
    shared: Limiter,
    /// What this process knows of. It needs no trip, and outlives an outage. The same as
    /// `shared` for a store in the process.
    known: Limiter,
    policy: Policy,
}

/// The units that leave in a second.
const PER_SECOND: u64 = 1_000_000;

/// Room behind the longest pause: a call that waits for its end takes a unit.
const ROOM: u64 = PER_SECOND;

/// The most attempts to prolong a pause. Each but the last one has lost against another replica.
const MOST_ROUNDS: u32 = 100;

/// The longest name of a policy.
const NAME: usize = 64;

impl Pauses {
    /// Creates the pauses of a limiter, which last for `cap` at most.
    pub(crate) fn new(limiter: &Limiter, cap: Duration) -> Self {
        let policy = policy(
            limiter
                .policies()
                .iter()
                .next()
                .expect("a limiter has a policy"),
            cap,
        );
        let shared = limiter.with_policies(policy.clone());
        let known = match limiter.is_in_process() {
            true => shared.clone(),
            // The clock of the sleeps, so that a pause is over when a call wakes.
            false => Limiter::new(
                MemoryStore::builder().clock(Clock::tokio()).build(),
                policy.clone(),
            ),
        };
        Self {
            shared,
            known,
            policy,
        }
    }

    /// Pauses the calls of a key: here at once, and in other processes in the
    /// background.
    pub(crate) fn begin(&self, key: &Key, pause: Duration) {
        self.note(key, pause);
        if !self.shared.is_in_process() {
            let (limiter, policy, key) = (self.shared.clone(), self.policy.clone(), key.clone());
            in_background(false, async move {
                if let Err(error) = prolong(&limiter, &policy, &key, pause).await {
                    tracing::debug!(%error, "a pause is not known to other processes");
                }
            });
        }
    }

    /// Pauses the calls of this process.
    fn note(&self, key: &Key, pause: Duration) {
        let (limiter, policy, key) = (self.known.clone(), self.policy.clone(), key.clone());
        in_background(true, async move {
            // A store in the process does not fail.
            let _ = prolong(&limiter, &policy, &key, pause).await;
        });
    }

    /// Waits until no pause is known. Returns a denial at once when the pause ends after the
    /// deadline.
    pub(crate) async fn wait(
        &self,
        key: &Key,
        deadline: Instant,
    ) -> Result<Option<Decision>, Error> {
        // Meanwhile the answer to another call may have prolonged the pause.
        while !left(&self.known, key).await?.is_zero() {
            let decision = self.known.check_key(key).wait(until(deadline)).await?;
            if decision.is_denied() {
                return Ok(Some(decision));
            }
        }
        Ok(None)
    }

    /// Returns whether the calls of a key are paused, by this process or by another one.
    pub(crate) async fn is_paused(&self, key: &Key) -> bool {
        self.find(key).await.unwrap_or_else(|error| {
            tracing::debug!(%error, "the pauses of other processes are not known");
            false
        })
    }

    async fn find(&self, key: &Key) -> Result<bool, Error> {
        // A pause that is known needs no trip.
        if !left(&self.known, key).await?.is_zero() {
            return Ok(true);
        }
        if self.shared.is_in_process() {
            return Ok(false);
        }
        let left = left(&self.shared, key).await?;
        if !left.is_zero() {
            self.note(key, left);
        }
        Ok(!left.is_zero())
    }
}

/// Returns the time until a deadline.
pub(crate) fn until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// Returns how long the calls of a key are still paused.
async fn left(pauses: &Limiter, key: &Key) -> Result<Duration, Error> {
    Ok(longest(pauses.peek(key).await?.states()))
}

fn longest<'a>(states: impl Iterator<Item = PolicyState<'a>>) -> Duration {
    states
        .map(|state| state.reset_after())
        .max()
        .unwrap_or_default()
}

/// Makes the pause of a key at least as long as `pause`.
async fn prolong(
    pauses: &Limiter,
    policy: &Policy,
    key: &Key,
    pause: Duration,
) -> Result<(), Error> {
    let mut left = left(pauses, key).await?;
    for _ in 0..MOST_ROUNDS {
        let missing = micros(pause).saturating_sub(micros(left));
        if missing == 0 {
            break;
        }
        // Fits while no more is in the queue than was seen: the pause is the share of this
        // priority. The other 99 % keep this quota from cutting the longer pause that another
        // replica has begun since.
        let quota = Quota::per_second(PER_SECOND).with_burst(micros(pause) * 100);
        let share = Costs::new(Cost::new(missing)).with_priority(Priority::percent(1));
        let decision = pauses
            .with_policies(policy.with_quota(quota)?)
            .check_key(key)
            .cost(share)
            .await?;
        if decision.is_allowed() {
            break;
        }
        left = longest(decision.states());
    }
    Ok(())
}

/// Returns the policy whose queue is a pause, beside a policy of the limiter: for the same part of
/// the key.
fn policy(limit: &Policy, cap: Duration) -> Policy {
    const END: &str = "/pause";
    let name = limit.name();
    let name = format!("{}{END}", &name[..name.len().min(NAME - END.len())]);
    let quota = Quota::per_second(PER_SECOND).with_burst(micros(cap) + ROOM);
    let policy = Policy::try_new(name, Algorithm::LeakyBucket, quota)
        .expect("the name and the quota are valid");
    let policy = policy.at_branch(limit.branch());
    match limit.level() {
        Some(level) => policy.at_level(level),
        None => policy,
    }
}

/// Returns the whole microseconds of a time that is at most a day.
fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}
