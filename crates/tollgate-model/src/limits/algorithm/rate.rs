//! The rate at which a bucket was stored, when the policy has another: the quota has changed since,
//! or others know another.
//! A bucket whose rate has not changed needs nothing of this file: see `leaky_bucket.rs`.

use super::{
    bucket::{Bucket, less, most},
    debt::{MOST_BURSTS, MOST_US},
    level::Reading,
};
use crate::{
    Policy, Quota,
    charge::Ask,
    policy::PolicyParts,
    quota::{MAX_EXACT, Span},
};

/// The rate of the stored bucket, at which the units of a settlement are measured.
///
/// A settlement may come with a quota that is not in force any more. It then changes nothing but
/// its own units: what is stored is not cut to the burst of its quota, and keeps its rate.
pub(super) struct StoredRate<'a> {
    pub(super) quota: &'a Quota,
    /// The emission interval at which the bucket was stored, if it is another one.
    stored_interval: Option<f64>,
}

impl<'a> StoredRate<'a> {
    pub(super) fn of(policy: &'a Policy, stored_interval: Option<f64>) -> Self {
        Self {
            quota: policy.quota_ref(),
            stored_interval,
        }
    }

    pub(super) fn is_other(&self) -> bool {
        self.stored_interval.is_some()
    }

    /// Returns the time of the whole burst. Of another quota it is not known.
    pub(super) fn top(&self) -> Span {
        if self.is_other() {
            // Nothing lies above this, so the bucket is in debt if the quota that stored it says so.
            (MAX_EXACT, 0)
        } else {
            self.quota.span(self.quota.burst())
        }
    }

    /// Returns the time of the most units that are spent in debt.
    pub(super) fn most(&self) -> Span {
        let units = self.quota.burst() * MOST_BURSTS;
        self.stored_interval.map_or_else(
            || most(self.quota),
            |interval| (bounded((units as f64 * interval).ceil()), 0),
        )
    }

    /// Returns the time of units that are charged.
    pub(super) fn charged(&self, cost: u64) -> Span {
        // No more is spent, and the time of more units may exceed 64 bits.
        let cost_or_most = cost.min(self.quota.burst() * MOST_BURSTS);
        // Rounded up, and what comes back is rounded down below: neither gives a unit away. The
        // script rounds alike.
        let of_other = |interval: f64| (bounded((cost as f64 * interval).ceil()), 0);
        self.stored_interval
            .map_or_else(|| self.quota.span(cost_or_most), of_other)
    }

    /// Returns the time of units that are returned. They may have been spent while the burst was
    /// greater, so it does not bound them.
    pub(super) fn returned(&self, cost: u64) -> Span {
        // The script gets no greater cost.
        let cost = cost.min(MAX_EXACT - 1);
        let us = cost as f64
            * self
                .stored_interval
                .unwrap_or_else(|| self.quota.emission_interval());
        if self.is_other() {
            (bounded(us), 0)
        } else if us < MAX_EXACT as f64 {
            self.quota.span(cost)
        } else {
            // No stored time is as far ahead, and the time of the units may exceed 64 bits.
            (MAX_EXACT, 0)
        }
    }

    /// Returns how much of `step` the bucket has to miss still after `passed_us`: no more has
    /// accrued in that time, at the faster of the two rates.
    pub(super) fn owed(&self, step: Span, passed_us: u64) -> Span {
        let passed_us = match self.stored_interval {
            // A unit of the bucket stands for more time than one of the quota. So the units that
            // the quota brought back since are worth more than the time that has passed.
            Some(interval) if interval > self.quota.emission_interval() => {
                (passed_us as f64 / self.quota.emission_interval() * interval).ceil() as u64
            }
            _ => passed_us,
        };
        step.0
            .checked_sub(passed_us)
            .map_or((0, 0), |left| (left, step.1))
    }
}

/// Returns a time at another rate.
fn bounded(us: f64) -> u64 {
    us.min(MOST_US as f64) as u64
}

/// Returns the time of the units that were stored as `ahead` at this emission interval, at the rate
/// of the quota.
pub(super) fn converted(ahead: u64, interval: f64, quota: &Quota) -> u64 {
    let units = ahead as f64 / interval;
    // The interval was read from stored bytes. One that no quota has makes more units than a double
    // counts, and such a bucket counts as full, as in the script.
    let is_known = units >= 0.0 && units <= MAX_EXACT as f64;
    let ahead = if is_known {
        // The spent units are kept, and not the time in which they would have returned: after a
        // change from 10 per hour to 1000 per second, nobody waits for hours. The quotient and the
        // product are those of the script, so both stores round alike.
        (units * quota.emission_interval()).ceil()
    } else {
        0.0
    };
    ahead.min(MAX_EXACT as f64) as u64
}

/// Returns the reading of a check that charges nothing to a bucket of another emission interval. Leased
/// units are counted at one rate.
pub(super) fn reading_at_other_rate(
    bucket: &Bucket,
    policy: &Policy,
    interval: f64,
    now_us: u64,
    ask: Ask,
    ceiling: Span,
) -> Option<Reading> {
    if policy.is_leased() {
        None
    } else {
        bucket.of_other_rate(policy.quota_ref(), interval, now_us, ask, ceiling)
    }
}

impl Bucket {
    /// Returns the reading of a check that charges nothing to this bucket, which was stored at this
    /// emission interval and stays as it is. `None` when it is mended.
    ///
    /// The units return at the rate at which they were stored. So a cost that does not fit is
    /// admitted at the time that the reading shows, and not as this rate says. Without a cost they
    /// show the units that are spent.
    fn of_other_rate(
        self,
        quota: &Quota,
        interval: f64,
        now_us: u64,
        ask: Ask,
        ceiling: Span,
    ) -> Option<Reading> {
        // Full at either rate.
        if self.tat_us < now_us {
            return None;
        }
        let (is_in_debt, top) = (self.in_debt, quota.span(quota.burst()));
        let most = if is_in_debt { most(quota) } else { top };
        // More than this quota ever stores: advancing mends it, and the mended state has the reading.
        if self.ahead(now_us).0 > most.0 {
            return None;
        }
        let stored = self.ahead_of_part(now_us, interval);
        if ask.cost == 0 {
            let (whole, part) = (converted(stored, interval, quota), 0).min(most);
            return Some([whole, part, 0, 0]);
        }
        let step = quota.span(ask.cost);
        let room = (if is_in_debt {
            ceiling
        } else {
            ceiling.min(top)
        })
        .0
        // Whole microseconds, rounded up, because a converted time has no remainder.
        .saturating_sub(step.0 + u64::from(step.1 > 0));
        // The most that is stored when the cost fits: the quotient of doubles may be one too high
        // or too low.
        let mut least = ((room as f64 / quota.emission_interval() * interval) as u64).min(stored);
        if converted(least, interval, quota) > room {
            least = least.saturating_sub(1);
        } else if least < stored && converted(least + 1, interval, quota) <= room {
            least += 1;
        }
        let wait_us = stored.saturating_sub(least).max(1);
        // Whoever reads the reading takes the wait to be what lies above the ceiling with the cost
        // added. So the time is chosen that lies there by exactly the wait. A cost above the
        // ceiling never fits, whatever the time is.
        let (whole, part) = if ceiling < step {
            (0, 0)
        } else {
            less(quota, ceiling, step)
        };
        Some([whole + wait_us, part, 0, 0])
    }
}
