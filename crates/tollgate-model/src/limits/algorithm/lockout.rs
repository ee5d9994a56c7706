//! Counts failures, and locks the key for a time when there are too many.
//! Which requests are failures is decided by the caller, such as a layer with `charge_on`.

use super::{
    Adjust, Algorithm, Decide, Meter, Refund, StoredState,
    arguments::{arguments, shown},
    debt::{marked, unmarked},
    level::{Numbers, Reading},
    stored::{self, doubles, whole},
};
use crate::{Error, Policy, Quota, charge::Ask};

/// The most lockouts that are counted. The time of one has reached its longest long before.
const MOST_LEVEL: u64 = 64;

/// The times of a lockout, in microseconds.
pub(crate) struct LockTimes {
    pub(crate) first_us: u64,
    pub(crate) longest_us: u64,
}

/// Counts the failures of a key, on the heap: nearly every key has failed nothing, and its state
/// stays small.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LockoutState(Option<Box<Failures>>);

/// The failures of a key, and its lockouts.
///
/// The key is *locked* while its failures are as many as the amount of the quota. Failures that
/// became as many because the amount was lowered lock it until the end of their window, which is no
/// lockout. So the stored bytes mark a lockout.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Failures {
    /// The time of the first failure that counts: the start of the window.
    start_us: u64,
    /// The failures that count.
    count: u64,
    /// The end of the lockout, or of the window.
    until_us: u64,
    /// Is true while a lockout lasts.
    is_locked_out: bool,
    /// The lockouts that have ended, until they are forgotten.
    level: u64,
    /// The end of the last of them.
    ended_us: u64,
}

impl Failures {
    fn is_locked(&self, policy: &Policy) -> bool {
        self.count > 0 && self.count >= policy.quota_ref().amount()
    }

    fn is_locked_out(&self, policy: &Policy) -> bool {
        self.is_locked_out && self.is_locked(policy)
    }

    fn closes_us(&self, policy: &Policy) -> u64 {
        self.start_us + policy.quota_ref().period_us()
    }

    fn is_fresh(&self) -> bool {
        self.count == 0 && self.level == 0
    }

    /// Returns the time of the lockout that follows this state, in microseconds: it doubles each
    /// time.
    fn lock_us(&self, policy: &Policy) -> u64 {
        let lock = policy.lock_times();
        (u128::from(lock.first_us) << self.level).min(u128::from(lock.longest_us)) as u64
    }

    /// Brings the failures to `now_us`. Returns whether a time lay ahead of the clock.
    fn advance(&mut self, policy: &Policy, now_us: u64) -> bool {
        if self.is_locked_out(policy) && self.until_us <= now_us {
            (self.level, self.ended_us, self.count) =
                ((self.level + 1).min(MOST_LEVEL), self.until_us, 0);
        }
        let is_locked = self.is_locked_out(policy);
        let most_us = if is_locked {
            now_us + self.lock_us(policy)
        } else {
            u64::MAX
        };
        let is_ahead = self.count > 0 && self.start_us > now_us
            || is_locked && self.until_us > most_us
            || self.level > 0 && self.ended_us > now_us;
        self.start_us = self.start_us.min(now_us);
        self.until_us = self.until_us.min(most_us);
        self.ended_us = self.ended_us.min(now_us);
        if !is_locked && now_us - self.start_us >= policy.quota_ref().period_us() {
            self.count = 0;
        }
        if self.count == 0 {
            self.start_us = now_us;
        }
        if !is_locked && now_us - self.ended_us >= policy.lock_times().longest_us {
            (self.level, self.ended_us) = (0, 0);
        }
        self.is_locked_out = is_locked;
        if !is_locked {
            self.until_us = self.closes_us(policy);
        }
        is_ahead
    }

    /// Counts failures. Those in a locked key, which were under way, do not prolong the lockout.
    fn charge(&mut self, policy: &Policy, now_us: u64, cost: u64) {
        let was_locked = self.is_locked(policy);
        if self.count == 0 {
            self.start_us = now_us;
        }
        self.count += cost;
        if was_locked {
            return;
        }
        self.until_us = self.closes_us(policy);
        if self.is_locked(policy) {
            (self.until_us, self.is_locked_out) = (now_us + self.lock_us(policy), true);
        }
    }

    /// Takes back failures of a window or a lockout that is not over, and with them the lockout to
    /// which they led. Returns whether there are some.
    fn refund(&mut self, refund: &Refund<'_>) -> bool {
        let is_open =
            self.count > 0 && self.until_us > refund.now_us && refund.spent_us >= self.start_us;
        if is_open {
            let was_locked = self.is_locked(refund.policy);
            self.count = self.count.saturating_sub(refund.cost);
            if self.count == 0 || was_locked && !self.is_locked(refund.policy) {
                (self.until_us, self.is_locked_out) = (self.closes_us(refund.policy), false);
            }
        }
        is_open
    }

    fn fresh_at(&self, policy: &Policy) -> u64 {
        let longest_us = policy.lock_times().longest_us;
        if self.count > 0 && self.is_locked_out {
            return self.until_us + longest_us;
        }
        let forgotten_us = if self.level > 0 {
            self.ended_us + longest_us
        } else {
            0
        };
        let closed_us = if self.count > 0 { self.until_us } else { 0 };
        forgotten_us.max(closed_us)
    }
}

impl LockoutState {
    fn get(&self) -> Failures {
        self.0.as_deref().copied().unwrap_or_default()
    }

    /// Changes the failures in their place.
    fn change(&mut self, change: impl FnOnce(&mut Failures)) {
        change(self.0.get_or_insert_default());
        self.0.take_if(|failures| failures.is_fresh());
    }
}

impl Decide for LockoutState {
    #[inline]
    fn advance(
        &mut self,
        policy: &Policy,
        _stored_interval: Option<f64>,
        now_us: u64,
    ) -> (Self, bool) {
        let Some(mut failures) = self.0.clone() else {
            return (Self(None), false);
        };
        let is_mended = failures.advance(policy, now_us);
        (
            Self(Some(failures).filter(|failures| !failures.is_fresh())),
            is_mended,
        )
    }

    #[inline]
    fn fits(&self, policy: &Policy, _now_us: u64, ask: Ask) -> bool {
        ask.cost == 0 || self.get().count + ask.cost <= ask.limit(policy.quota_ref().amount())
    }

    #[inline]
    fn charge(&mut self, policy: &Policy, now_us: u64, cost: u64, _tag: &[u8]) {
        self.change(|failures| failures.charge(policy, now_us, cost));
    }

    /// Returns the failures, and the times until the window closes, until the lockout ends, and
    /// until the lockouts that have ended are forgotten. A time is 0 when there is nothing to wait
    /// for.
    #[inline]
    fn reading(&self, policy: &Policy, now_us: u64, _denied: Ask) -> Reading {
        let Some(failures) = &self.0 else {
            return [0; 4];
        };
        let left = |at_us: u64, is_open: bool| {
            if is_open {
                at_us.saturating_sub(now_us)
            } else {
                0
            }
        };
        [
            failures.count,
            left(failures.closes_us(policy), failures.count > 0),
            left(failures.until_us, failures.is_locked_out(policy)),
            left(
                failures.ended_us + policy.lock_times().longest_us,
                failures.level > 0,
            ),
        ]
    }
}

impl Adjust for LockoutState {
    fn adjustable(&mut self, _policy: &Policy, _now_us: u64) -> Self {
        self.clone()
    }

    fn spent(&self) -> u64 {
        self.get().count
    }

    /// Counts failures. A lockout stays, also one under another amount.
    fn owe(
        &mut self,
        policy: &Policy,
        _stored_interval: Option<f64>,
        now_us: u64,
        cost: u64,
    ) -> bool {
        let mut is_written = false;
        self.change(|failures| {
            let is_open = failures.count > 0 && failures.until_us > now_us;
            let is_locked_out = is_open && failures.is_locked_out;
            if !is_locked_out {
                failures.advance(policy, now_us);
            }
            let cost = cost.min(Self::most_spent(policy).saturating_sub(failures.count));
            is_written = cost > 0;
            if is_locked_out {
                failures.count += cost;
            } else if cost > 0 {
                failures.charge(policy, now_us, cost);
            }
        });
        is_written
    }

    fn refund(&mut self, refund: &Refund<'_>) -> bool {
        let mut is_written = false;
        self.change(|failures| is_written = failures.refund(refund));
        is_written
    }
}

impl Meter for LockoutState {
    fn fresh_at(&self, policy: &Policy) -> u64 {
        self.get().fresh_at(policy)
    }

    fn to_bytes(&self, _policy: &Policy, _stored_interval: Option<f64>) -> Vec<u8> {
        let Failures {
            start_us,
            count,
            until_us,
            is_locked_out,
            level,
            ended_us,
        } = self.get();
        let count = marked(count, is_locked_out);
        doubles(&[start_us, until_us, count, level, ended_us])
    }

    fn of_bytes(bytes: &[u8]) -> Option<(Self, f64)> {
        let ([start_us, until_us, count, level, ended_us], []) = stored::split(bytes)? else {
            return None;
        };
        let (count, is_locked_out) = unmarked(whole(count)?);
        let failures = Failures {
            start_us: whole(start_us)?,
            count,
            until_us: whole(until_us).filter(|&until_us| until_us > 0)?,
            is_locked_out,
            level: whole(level).filter(|&level| level <= MOST_LEVEL)?,
            ended_us: whole(ended_us)?,
        };
        Some((Self(Some(Box::new(failures))), 0.0))
    }

    fn shown(&self, _stored_interval: f64) -> StoredState {
        let Failures {
            until_us,
            count: failures,
            level: lockouts,
            ..
        } = self.get();
        StoredState::Lockout {
            until_us,
            failures,
            lockouts,
        }
    }

    fn numbers(policy: &Policy, reading: &Reading, ask: Ask) -> Numbers {
        let ([count, closes_us, until_us, forgotten_us], amount) =
            (*reading, policy.quota_ref().amount());
        let (more_us, reset_us) = match until_us {
            0 => (closes_us, closes_us.max(forgotten_us)),
            until_us => (until_us, until_us + policy.lock_times().longest_us),
        };
        let room = ask.limit(amount).saturating_sub(count);
        Numbers {
            remaining: amount.saturating_sub(count),
            retry_us: if ask.cost > room { more_us } else { 0 },
            reset_us,
            more_us,
        }
    }

    fn unspend(policy: &Policy, reading: &mut Reading, units: u64) {
        reading[0] = reading[0].saturating_sub(units);
        if reading[0] < policy.quota_ref().amount() {
            reading[2] = 0;
        }
    }

    /// Returns a state that ages as the one with this reading. The reading does not show how many
    /// lockouts came before, and nobody asks.
    fn of_reading(policy: &Policy, reading: &Reading, now_us: u64) -> Option<Self> {
        let [count, closes_us, until_us, forgotten_us] = *reading;
        let failures = Failures {
            start_us: (now_us + closes_us).saturating_sub(policy.quota_ref().period_us()),
            count,
            until_us: now_us + if until_us > 0 { until_us } else { closes_us },
            is_locked_out: until_us > 0,
            level: u64::from(forgotten_us > 0),
            ended_us: (now_us + forgotten_us).saturating_sub(policy.lock_times().longest_us),
        };
        Some(Self(
            Some(failures)
                .filter(|failures| !failures.is_fresh())
                .map(Box::new),
        ))
    }

    fn args(policy: &Policy) -> [Option<u64>; 3] {
        let lock = policy.lock_times();
        [
            policy.quota_ref().period_us(),
            lock.first_us,
            lock.longest_us,
        ]
        .map(Some)
    }
}

/// Reads the times of a lockout from `rest`: `(1m, 1h)`.
pub(super) fn parse(text: &str, rest: &str) -> Result<Algorithm, Error> {
    let Some((first, longest)) = arguments(rest).and_then(|arguments| arguments.split_once(','))
    else {
        let text = shown(text);
        let message = format!(
            "algorithm {text:?} needs its first and its longest time, as in lockout(1m, 1h)"
        );
        return Err(Error::config(message));
    };
    let (first, longest) = (
        Quota::parse_period(first.trim())?,
        Quota::parse_period(longest.trim())?,
    );
    if first > longest {
        let text = shown(text);
        return Err(Error::config(format!(
            "algorithm {text:?} must not have a first time above its longest time"
        )));
    }
    Ok(Algorithm::Lockout { first, longest })
}
