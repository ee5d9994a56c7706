//! Keeps the past of a token bucket, so that units which come back late are not given twice.
//!
//! A refund counts as if the units had come back at once, at `t0`. The bucket would then have
//! passed on what did not fit while it was nearly full. So of k units at most the least that was
//! missing since `t0` comes back: see `docs/contributors/proofs.md`. A trace bounds it from
//! below.
//!
//! Every number is in microseconds. What is missing is the time until the bucket is full, in whole
//! microseconds.
//! No other algorithm has one. The proofs are in `docs/contributors/proofs.md`.

use super::{
    Adjust, Decide, Refund,
    bucket::Bucket,
    debt::{MOST_BURSTS, MOST_US},
    level::Reading,
    rate::StoredRate,
    stored::{self, whole},
};
use crate::{Policy, Quota, charge::Ask};

/// The units that were returned, and the least that was missing since two reservations.
///
/// A refund changes the past of the other requests, too: had the units come back at once, less
/// would have been missing since. So it lowers both least numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Trace {
    /// The units that were returned, less the time for which the bucket was full since. Nobody can
    /// claim more than the whole burst.
    returned: u64,
    present: Since,
    former: Since,
}

/// The least that was missing since a reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Since {
    time_us: u64,
    least: u64,
}

/// A token bucket with its trace. It has one after a reservation or a late refund, until nobody can
/// claim a unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Traced {
    pub(super) bucket: Bucket,
    pub(super) trace: Option<Trace>,
}

impl Traced {
    /// Returns this state at `now_us` as it is adjusted, see [`Adjust::adjustable`].
    pub(super) fn adjustable(mut self, policy: &Policy, now_us: u64) -> Self {
        let tat_us = self.bucket.tat_us;
        self.bucket = self.bucket.adjustable(policy, now_us);
        self.recall(tat_us, now_us, None);
        self
    }

    /// Brings the trace of a bucket that was full at `tat_us` to `now_us`. `mended` is the quota
    /// of a bucket that was mended.
    fn recall(&mut self, tat_us: u64, now_us: u64, mended: Option<&Quota>) {
        self.trace = self.trace.filter(|trace| tat_us + trace.returned > now_us);
        if let Some(trace) = &mut self.trace {
            if let Some(quota) = mended {
                // The past of a mended bucket is unknown.
                *trace = Trace {
                    returned: quota.span(quota.burst()).0,
                    ..Trace::default()
                };
            } else {
                trace.advance(now_us.saturating_sub(tat_us), self.bucket.ahead(now_us).0);
            }
        }
    }

    /// Remembers the time of a reservation that was charged.
    pub(super) fn remember(&mut self, now_us: u64) {
        let ahead = self.bucket.ahead(now_us).0;
        self.trace.get_or_insert_default().remember(Since {
            time_us: now_us,
            least: ahead,
        });
    }

    /// Returns units to a bucket that is adjusted. Of a request that left a debt only the last places are taken
    /// back.
    pub(super) fn refund(&mut self, rate: &StoredRate<'_>, refund: &Refund<'_>) {
        let Refund {
            now_us,
            spent_us,
            cost,
            end,
            ..
        } = *refund;
        let mut trace = self.trace.unwrap_or_default();
        let passed_us = now_us.saturating_sub(spent_us);
        let (top, ahead, step) = (rate.top(), self.bucket.ahead(now_us), rate.returned(cost));
        // The end is a time at the rate of the decision.
        let end = end.filter(|_| !rate.is_other());
        let is_end = end.is_some_and(|end| self.bucket.ends_at(end));
        // Nobody has spent since, and no earlier request can claim these units.
        let is_last = is_end && trace.returned == 0;
        let room = if !is_end && end.is_some_and(|end| end > (spent_us + top.0, top.1)) {
            (0, 0)
        } else if is_last || passed_us == 0 {
            ahead
        } else {
            // The bucket had its units to miss, and no more than what accrued since is no longer
            // missing.
            let own = rate.owed(step, passed_us);
            let left = end.map_or(0, |end| end.0.saturating_sub(now_us + trace.returned));
            own.max((trace.least_since(spent_us).max(left), 0))
        };
        let given = step.min(room).min(ahead);
        self.bucket.subtract(rate.quota, given);
        let given = given.0 + u64::from(given.1 > 0);
        if !is_last {
            trace.returned = trace.returned.max((trace.returned + given).min(top.0));
        }
        let left = self.bucket.ahead(now_us).0;
        trace.lower(spent_us, given, passed_us, left);
        if self.trace.is_some() || trace.returned > 0 {
            self.trace = Some(trace);
        }
    }

    /// Returns the time until which the state is stored.
    pub(super) fn ends_us(&self) -> u64 {
        self.bucket.tat_us + self.trace.map_or(0, |trace| trace.returned)
    }
}

/// Decides as a bucket does. The trace only follows.
impl Decide for Traced {
    #[inline]
    fn advance(
        &mut self,
        policy: &Policy,
        stored_interval: Option<f64>,
        now_us: u64,
    ) -> (Self, bool) {
        let (mut state, tat_us, quota) = (*self, self.bucket.tat_us, policy.quota_ref());
        let (bucket, mended) = state.bucket.advance(policy, stored_interval, now_us);
        state.bucket = bucket;
        let is_converted = tat_us >= now_us && stored_interval.is_some();
        state.recall(tat_us, now_us, (mended || is_converted).then_some(quota));
        (state, mended)
    }

    #[inline]
    fn fits(&self, policy: &Policy, now_us: u64, ask: Ask) -> bool {
        self.bucket.fits(policy, now_us, ask)
    }

    #[inline]
    fn charge(&mut self, policy: &Policy, now_us: u64, cost: u64, tag: &[u8]) {
        self.bucket.charge(policy, now_us, cost, tag);
    }

    fn note_debt(&mut self, policy: &Policy, stored_interval: Option<f64>, now_us: u64) {
        self.bucket.note_debt(policy, stored_interval, now_us);
    }

    #[inline]
    fn reading(&self, policy: &Policy, now_us: u64, denied: Ask) -> Reading {
        self.bucket.reading(policy, now_us, denied)
    }

    fn reading_as_stored(
        &self,
        policy: &Policy,
        stored_interval: f64,
        now_us: u64,
        ask: Ask,
    ) -> Option<Reading> {
        let bucket = &self.bucket;
        bucket.reading_as_stored(policy, stored_interval, now_us, ask)
    }
}

impl Trace {
    /// Brings the trace to a time at which the bucket misses `ahead`, and was full for `idle_us`
    /// since it was stored.
    fn advance(&mut self, idle_us: u64, ahead: u64) {
        self.returned -= idle_us;
        self.present.least = self.present.least.min(ahead);
        self.former.least = self.former.least.min(ahead);
    }

    /// Begins anew with a reservation when more than twice the least is missing. So an older time
    /// is given up only where a quarter of what is missing could come back at most.
    fn remember(&mut self, reserved: Since) {
        if self.present.least * 2 < reserved.least {
            if self.former.least * 2 < self.present.least {
                self.former = self.present;
            }
            self.present = reserved;
        }
    }

    /// Lowers the least numbers by units that were spent at `spent_us` and returned `passed_us`
    /// later, which left `left` missing.
    ///
    /// At the time of the request the least was missing without its units. Since then no more has
    /// accrued than the time that passed. Of a request from before the time of the least, all units
    /// were missing then.
    fn lower(&mut self, spent_us: u64, given: u64, passed_us: u64, left: u64) {
        for since in [&mut self.present, &mut self.former] {
            let lost = if since.time_us < spent_us {
                given.min(passed_us)
            } else {
                given
            };
            since.least = since.least.saturating_sub(lost).min(left);
        }
    }

    /// Returns a lower bound of what was missing at every time since `spent_us`.
    fn least_since(&self, spent_us: u64) -> u64 {
        let of = |since: Since| {
            if spent_us >= since.time_us {
                since.least
            } else {
                0
            }
        };
        of(self.present).max(of(self.former))
    }

    /// Returns the numbers that are stored behind the bucket.
    pub(super) fn numbers(&self) -> [u64; 5] {
        let Self {
            returned,
            present,
            former,
        } = *self;
        [
            returned,
            present.time_us,
            present.least,
            former.time_us,
            former.least,
        ]
    }

    pub(super) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let ([returned, at, least, former_at, former_least], []) = stored::split(bytes)? else {
            return None;
        };
        let since = |time: f64, least: f64| {
            Some(Since {
                time_us: whole(time)?,
                least: whole(least)?,
            })
        };
        // No burst takes longer, and the state is stored for as long.
        let returned = whole(returned).filter(|&returned| returned <= MOST_US / MOST_BURSTS)?;
        Some(Self {
            returned,
            present: since(at, least)?,
            former: since(former_at, former_least)?,
        })
    }
}
