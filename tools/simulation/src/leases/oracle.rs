//! The bound of each algorithm, written separately from the algorithms.

use std::collections::VecDeque;

use tollgate::{Algorithm, Policy};

/// Counts what one policy admitted for one key, and compares it with the bound.
#[derive(Debug)]
pub(crate) struct Oracle {
    policy: Policy,
    /// The units in the bucket, times the period.
    level: i128,
    last: u64,
    /// The admitted units of the last period, newest last. Refunded units are negative.
    recent: VecDeque<(u64, i64)>,
    /// The current window of the server's clock, and its units.
    window: (u64, i64),
    /// The units that replicas held at the last event, and may spend beside the bound, and until
    /// when.
    exempt: (u64, u64),
}

impl Oracle {
    pub(crate) fn new(policy: &Policy) -> Self {
        let (recent, policy) = (VecDeque::new(), policy.clone());
        Self {
            policy,
            level: 0,
            last: 0,
            recent,
            window: (0, 0),
            exempt: (0, 0),
        }
    }

    /// Begins anew after an event. Replicas may still spend `exempt` units until a time.
    pub(crate) fn restart(&mut self, policy: &Policy, exempt: u64, until: u64) {
        *self = Self {
            exempt: (exempt, until),
            ..Self::new(policy)
        };
    }

    /// Exempts units that were outstanding at the last event and are held again.
    pub(crate) fn exempt(&mut self, units: u64) {
        self.exempt.0 += units;
    }

    /// Returns `units` without those that the last event exempts.
    pub(crate) fn leased(&mut self, now: u64, units: u64) -> u64 {
        if now >= self.exempt.1 {
            return units;
        }
        let exempt = units.min(self.exempt.0);
        self.exempt.0 -= exempt;
        units - exempt
    }

    /// Counts admitted units. Returns `false` when they exceed the bound.
    pub(crate) fn admit(&mut self, now: u64, server: u64, units: u64) -> bool {
        self.count(now, server, units as i64)
    }

    /// Counts refunded units, which may be admitted once more.
    pub(crate) fn refund(&mut self, now: u64, server: u64, units: u64) {
        self.count(now, server, -(units as i64));
    }

    fn count(&mut self, now: u64, server: u64, units: i64) -> bool {
        let quota = self.policy.quota();
        let (n, b, period) = (
            quota.amount(),
            quota.burst(),
            quota.period().as_micros() as u64,
        );
        match self.policy.algorithm() {
            Algorithm::TokenBucket => {
                let drained = i128::from(n) * i128::from(now - self.last);
                self.last = now;
                self.level = (self.level - drained).max(0) + i128::from(units) * i128::from(period);
                self.level <= i128::from(b) * i128::from(period)
            }
            Algorithm::FixedWindow => {
                if self.window.0 != server / period {
                    self.window = (server / period, 0);
                }
                self.window.1 = self.window.1.max(0) + units;
                self.window.1 <= n as i64
            }
            Algorithm::SlidingLog | Algorithm::SlidingBuckets { .. } => {
                self.in_a_period(now, period, units) <= n as i64
            }
            Algorithm::WindowFromFirstHit | Algorithm::SlidingWindow => {
                self.in_a_period(now, period, units) < 2 * n as i64
            }
            Algorithm::IntervalBucket => self.in_a_period(now, period, units) < (b + n) as i64,
            other => unreachable!("no bound is known for {other:?}"),
        }
    }

    /// Returns the most units of any interval that ends now and is not longer than a period.
    fn in_a_period(&mut self, now: u64, period: u64, units: i64) -> i64 {
        self.recent.push_back((now, units));
        while self
            .recent
            .front()
            .is_some_and(|(at, _)| at + period <= now)
        {
            self.recent.pop_front();
        }
        let sums = self.recent.iter().rev().scan(0, |sum, (_, units)| {
            *sum += units;
            Some(*sum)
        });
        sums.max().unwrap_or(0)
    }
}
