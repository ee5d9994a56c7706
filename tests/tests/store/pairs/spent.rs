//! Computes what one policy counts for one key from the history: when which units were spent and
//! not returned.

use tollgate::{Algorithm, Policy};

const DAY_US: u64 = 86_400_000_000;

/// The times and the units of all that was spent, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Spent {
    entries: Vec<(u64, u64)>,
    /// The times and the parts of units that a token bucket need not return.
    kept: Vec<(u64, u128)>,
}

fn period_us(policy: &Policy) -> u64 {
    policy.quota().period().as_micros() as u64
}

impl Spent {
    /// Returns the units that count at a time, in parts of a unit: each has as many as its period
    /// has microseconds.
    fn used(&self, policy: &Policy, now: u64) -> u128 {
        let (amount, period) = (policy.quota().amount(), period_us(policy));
        let since = |counts: &dyn Fn(u64) -> bool| -> u64 {
            self.entries
                .iter()
                .filter(|(at, _)| counts(*at))
                .map(|(_, units)| units)
                .sum()
        };
        let units = match policy.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                return self.missing(amount, period, now);
            }
            Algorithm::IntervalBucket => self.filled(amount, period, now).1,
            Algorithm::FixedWindow => since(&|at| at / period == now / period),
            Algorithm::CalendarWindow { .. } => since(&|at| at / DAY_US == now / DAY_US),
            Algorithm::WindowFromFirstHit => self.opened(period, now),
            Algorithm::SlidingWindow => {
                let before = since(&|at| at / period + 1 == now / period);
                let current = since(&|at| at / period == now / period);
                return parts(current, period) + parts(before, period - now % period);
            }
            Algorithm::SlidingBuckets { buckets } => {
                let width = period / u64::from(buckets);
                since(&|at| at / width + u64::from(buckets) >= now / width)
            }
            Algorithm::SlidingLog => since(&|at| at + period > now),
            Algorithm::Lockout { .. } => self.failures(policy, now).count,
            other => panic!("{other:?} has no model"),
        };
        parts(units, period)
    }

    /// Returns the parts of units that have not come back. `amount` parts come back in a
    /// microsecond.
    fn missing(&self, amount: u64, period: u64, now: u64) -> u128 {
        let spent = self
            .entries
            .iter()
            .map(|&(at, units)| (at, parts(units, period)));
        let mut all: Vec<_> = spent
            .chain(self.kept.iter().copied())
            .chain([(now, 0)])
            .collect();
        all.sort_by_key(|(at, _)| *at);
        let (mut missing, mut before) = (0, 0);
        for (at, more) in all {
            missing = u128::saturating_sub(missing, parts(amount, at - before)) + more;
            before = at;
        }
        missing
    }

    /// Returns when the timer of an interval bucket was last at its start, and the units that miss.
    fn filled(&self, amount: u64, period: u64, now: u64) -> (u64, u64) {
        let (mut start, mut used) = (now, 0);
        for &(at, units) in self.entries.iter().chain(&[(now, 0)]) {
            let fills = if used == 0 { 0 } else { (at - start) / period };
            used = u64::saturating_sub(used, fills * amount);
            start = if used == 0 {
                at
            } else {
                start + fills * period
            };
            used += units;
        }
        (start, used)
    }

    /// Returns the units in the window that the first of them opened.
    fn opened(&self, period: u64, now: u64) -> u64 {
        let (mut start, mut count) = (0, 0);
        for &(at, units) in self.entries.iter().chain(&[(now, 0)]) {
            if count == 0 || at - start >= period {
                (start, count) = (at, 0);
            }
            count += units;
        }
        count
    }

    fn failures(&self, policy: &Policy, now: u64) -> Failures {
        let Algorithm::Lockout { first, longest } = policy.algorithm() else {
            return Failures::default();
        };
        let (first, longest) = (first.as_micros() as u64, longest.as_micros() as u64);
        let (amount, period) = (policy.quota().amount(), period_us(policy));
        let mut state = Failures::default();
        for &(at, units) in self.entries.iter().chain(&[(now, 0)]) {
            if state.count >= amount && state.until <= at {
                state = Failures {
                    count: 0,
                    lockouts: state.lockouts + 1,
                    ended: state.until,
                    ..state
                };
            }
            if state.count < amount && at - state.start >= period {
                state.count = 0;
            }
            if state.count < amount && at - state.ended >= longest {
                state.lockouts = 0;
            }
            if state.count == 0 {
                state.start = at;
            }
            let was_open = state.count < amount;
            state.count += units;
            if was_open && state.count >= amount {
                state.until = at + (first << state.lockouts.min(20)).min(longest);
            }
        }
        state
    }

    /// Returns the units that are left of the burst.
    pub(super) fn remaining(&self, policy: &Policy, now: u64) -> u64 {
        let (burst, period) = (policy.quota().burst(), period_us(policy));
        (parts(burst, period).saturating_sub(self.used(policy, now)) / u128::from(period)) as u64
    }

    /// Returns whether a cost fits below a limit, which is the burst or the share of a rank.
    pub(super) fn fits(&self, policy: &Policy, now: u64, cost: u64, limit: u64) -> bool {
        let period = period_us(policy);
        cost == 0 || self.used(policy, now) + parts(cost, period) <= parts(limit, period)
    }

    /// Returns how long it takes until a cost fits, if nobody spends: law 3.
    pub(super) fn wait_us(&self, policy: &Policy, now: u64, cost: u64, limit: u64) -> u64 {
        first_us(|wait| self.fits(policy, now + wait, cost, limit))
    }

    /// Returns how long it takes until more units are left. Zero when nothing is spent.
    pub(super) fn more_us(&self, policy: &Policy, now: u64) -> u64 {
        let left = self.remaining(policy, now);
        if self.used(policy, now) == 0 {
            0
        } else {
            first_us(|wait| self.remaining(policy, now + wait) > left)
        }
    }

    /// Returns how long a request waits for its turn in a leaky bucket that has this in it.
    pub(super) fn turn_us(&self, policy: &Policy, now: u64) -> u64 {
        let is_queue = policy.algorithm() == Algorithm::LeakyBucket;
        if is_queue {
            self.used(policy, now)
                .div_ceil(u128::from(policy.quota().amount())) as u64
        } else {
            0
        }
    }

    /// Spends units. Returns the place of the entry.
    pub(super) fn spend(&mut self, now: u64, units: u64) -> usize {
        self.entries.push((now, units));
        self.entries.len() - 1
    }

    /// Returns units of an entry, as if they had never been spent. With `unproved`, a token bucket
    /// returns as little as it may: less by what accrued in the meantime, and in these
    /// microseconds.
    pub(super) fn refund(
        &mut self,
        policy: &Policy,
        now: u64,
        entry: usize,
        units: u64,
        unproved: Option<u64>,
    ) {
        let (amount, period) = (policy.quota().amount(), period_us(policy));
        let spent = self.entries[entry].0;
        let counts = match policy.algorithm() {
            // Only the last places of a queue come back.
            Algorithm::LeakyBucket => self.entries[entry + 1..]
                .iter()
                .all(|(_, units)| *units == 0),
            // A fill returns older units first.
            Algorithm::IntervalBucket => spent >= self.filled(amount, period, now).0,
            // A lockout that has ended counts as one.
            Algorithm::Lockout { .. } => spent >= self.failures(policy, now).start,
            _ => true,
        };
        if let Some(unproved) = unproved.filter(|_| policy.algorithm() == Algorithm::TokenBucket) {
            self.kept.push((
                spent,
                parts(units, period).min(parts(amount, now - spent + unproved)),
            ));
        }
        if counts {
            self.entries[entry].1 -= units;
        }
        self.entries.retain(|(_, units)| *units > 0);
    }
}

/// The failures that a lockout counts.
#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    start: u64,
    count: u64,
    until: u64,
    lockouts: u32,
    ended: u64,
}

fn parts(units: u64, each: u64) -> u128 {
    u128::from(units) * u128::from(each)
}

/// Returns the first time at which a condition is true that stays true.
fn first_us(is_true: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, 1);
    while !is_true(high) {
        (low, high) = (high, high * 2);
    }
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if is_true(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}
