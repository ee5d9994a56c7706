//! The contest of several processes for the places of a full queue.
//!
//! Callers that were refused come back when a place is free, and the first one gets it. Timers fire in steps of a millisecond, and
//! the steps of one process keep their distance from those of another. So the same process would come first each time. Here a
//! process that got a place lately comes behind the others, and each process draws its own time.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::Instant;

use crate::{Decision, Key, random};

/// The most time by which a caller comes later.
const LATEST: Duration = Duration::from_millis(10);

/// The longest time for which a place counts as got lately, and refused callers are expected after their time.
const LONGEST_PACE: Duration = Duration::from_secs(60);

/// The most keys whose contests are known.
const MOST: usize = 1_024;

/// The keys of which callers of this process were refused.
#[derive(Debug, Default)]
pub(crate) struct Contests(Mutex<HashMap<Key, Contest>>);

#[derive(Debug)]
struct Contest {
    /// The time from one place to the next, or longer.
    pace: Duration,
    /// The time until which refused callers are expected to come back.
    until: Instant,
    /// The time until which a place counts as got lately.
    won_until: Instant,
    /// The share of the time by which the callers of this process come later, and the time until which it is theirs.
    lot: f64,
    lot_until: Instant,
}

impl Contests {
    /// Returns the time by which a caller comes later that may wait for `max_wait`. It is nothing unless callers of this
    /// process were refused lately.
    pub(super) fn pause(&self, key: &Key, max_wait: Duration, now: Instant) -> Duration {
        let mut contests = self.lock();
        let Some(contest) = contests.get_mut(key).filter(|contest| now <= contest.until) else { return Duration::ZERO };
        if now >= contest.lot_until {
            contest.lot = random::bits() as f64 / u64::MAX as f64;
            contest.lot_until = now + contest.pace / 2;
        }
        let behind = f64::from(u8::from(now < contest.won_until));
        LATEST.min(max_wait / 4).mul_f64((behind + contest.lot) / 2.0)
    }

    /// Records the decision on a caller.
    pub(super) fn decided(&self, key: &Key, decision: &Decision, now: Instant) {
        if decision.is_degraded() {
            return;
        }
        let mut contests = self.lock();
        let Some(retry) = decision.retry_after() else {
            if let Some(contest) = contests.get_mut(key) {
                contest.won_until = now + contest.pace * 3 / 2;
            }
            return;
        };
        let Some(state) = decision.binding() else { return };
        let quota = state.policy().quota();
        let turn = Duration::from_secs_f64(quota.period().as_secs_f64() / quota.amount() as f64);
        let pace = turn.clamp(2 * LATEST, LONGEST_PACE);
        let Some(until) = now.checked_add(retry.saturating_add(2 * pace)) else { return };
        if contests.len() >= MOST {
            contests.retain(|_, contest| now <= contest.until);
        }
        if let Some(contest) = contests.get_mut(key) {
            (contest.pace, contest.until) = (pace, until);
        } else if contests.len() < MOST {
            contests.insert(key.clone(), Contest { pace, until, won_until: now, lot: 0.0, lot_until: now });
        }
    }

    /// Poisoning is ignored: each contest is changed in one step.
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Contest>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
