//! A bucket to which n units are added at once every period. The first period starts with the first request.

use super::{
    debt::{MARK, MOST_BURSTS},
    numbers::{Numbers, Words},
};
use crate::{
    Quota,
    model::{cost::Ask, quota::Span},
};

/// The start of the current period, and the units missing from the bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct State {
    start_us: u64,
    /// A stored state in debt is [marked](MARK) here.
    used: u64,
}

impl State {
    pub(crate) fn settle(&mut self, quota: &Quota, now_us: u64) -> bool {
        let mut mended = false;
        if self.used > quota.burst() {
            // The burst was lowered since the state was stored, or the state is in debt.
            let is_in_debt = self.used >= MARK;
            let most = if is_in_debt { quota.burst() * MOST_BURSTS } else { quota.burst() };
            self.used -= if is_in_debt { MARK } else { 0 };
            if self.used > most {
                self.used = most;
                mended = true;
            }
        }
        if self.start_us > now_us {
            self.start_us = now_us;
            mended = true;
        }
        let refills = (now_us - self.start_us) / quota.period_us();
        self.used = self.used.saturating_sub(refills.saturating_mul(quota.amount()));
        if self.used == 0 {
            // The bucket is full: the next period starts with the next request.
            self.start_us = now_us;
            return false;
        }
        self.start_us += refills * quota.period_us();
        mended
    }

    pub(crate) fn fits(&self, limit: u64, cost: u64) -> bool {
        self.used + cost <= limit || cost == 0
    }

    /// Returns whether a cost fits, or the units that are missing then are back in time.
    pub(crate) fn fits_within(&self, quota: &Quota, now_us: u64, ask: Ask) -> bool {
        let limit = ask.limit(quota.burst());
        self.fits(limit, ask.cost)
            || ask.wait_us() > 0
                && self.used <= most_before(quota)
                && until(quota, self.used + ask.cost - limit, self.words(quota, now_us)[1]) <= ask.wait_us()
    }

    pub(crate) fn charge(&mut self, cost: u64) {
        self.used += cost;
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Marks a settled state that is in debt, before it is stored.
    pub(crate) fn mark_debt(&mut self, quota: &Quota) {
        if self.used > quota.burst() {
            self.used += MARK;
        }
    }

    /// Marks a state whatever it holds.
    pub(crate) fn mark_as_debt(&mut self) {
        if self.used < MARK {
            self.used += MARK;
        }
    }

    /// Returns whether the units of a request with this end were missing last. Its end is the time of the refill after it,
    /// and the units that were missing then.
    pub(crate) fn ends_at(&self, quota: &Quota, (fill_us, used): Span) -> bool {
        let passed = (self.start_us + quota.period_us()).checked_sub(fill_us);
        passed.is_some_and(|passed| {
            let filled = (passed / quota.period_us()).saturating_mul(quota.amount());
            passed.is_multiple_of(quota.period_us()) && self.used.saturating_add(filled) == used
        })
    }

    /// Returns units that were spent since the last refill. A refill may have returned older ones.
    pub(crate) fn refund(&mut self, spent_us: u64, cost: u64) {
        if spent_us >= self.start_us {
            self.used = self.used.saturating_sub(cost);
        }
    }

    /// Returns the state that has these words at `now_us`.
    #[cfg(feature = "redis")]
    pub(crate) fn of_words(quota: &Quota, words: &Words, now_us: u64) -> Self {
        Self { start_us: (now_us + words[1]).saturating_sub(quota.period_us()), used: words[0] }
    }

    pub(crate) fn words(&self, quota: &Quota, now_us: u64) -> Words {
        [self.used, self.start_us + quota.period_us() - now_us, 0, 0]
    }

    pub(crate) fn fresh_at(&self, quota: &Quota) -> u64 {
        let used = if self.used >= MARK { self.used - MARK } else { self.used };
        self.start_us + used.div_ceil(quota.amount()) * quota.period_us()
    }

    /// Returns the bytes that the script stores.
    #[cfg(feature = "testing")]
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        super::stored::doubles(&[self.start_us, self.used])
    }
}

/// Returns the most units that are missing before a check which goes into debt. One that costs the burst then owes no more
/// than the most.
fn most_before(quota: &Quota) -> u64 {
    quota.burst() * (MOST_BURSTS - 1)
}

/// Returns the time until `missing` units are back, when the next refill comes after `left`.
fn until(quota: &Quota, missing: u64, left: u64) -> u64 {
    match missing.div_ceil(quota.amount()) {
        0 => 0,
        refills => (refills - 1).saturating_mul(quota.period_us()).saturating_add(left),
    }
}

/// Derives the numbers from the missing units and the time until the next refill.
pub(crate) fn numbers(quota: &Quota, words: &Words, ask: Ask) -> Numbers {
    let [used, left, ..] = *words;
    let one_more = (used + 1).saturating_sub(quota.burst()).max(1);
    let until = |missing: u64| until(quota, missing, left);
    let fits = until((used + ask.cost).saturating_sub(ask.limit(quota.burst())));
    let retry_us = match ask.wait_us() {
        0 => fits,
        // It owes no sooner than the debt of the others has room for it.
        wait_us => fits.min(fits.saturating_sub(wait_us).max(until(used.saturating_sub(most_before(quota))))),
    };
    Numbers {
        remaining: quota.burst().saturating_sub(used),
        retry_us: if ask.cost == 0 { 0 } else { retry_us },
        reset_us: until(used),
        more_us: if used == 0 { 0 } else { until(one_more) },
    }
}

/// Returns the delay of a request that was charged: the time until the debt in which it left the bucket is paid, in
/// microseconds.
pub(crate) fn debt_us(quota: &Quota, words: &Words) -> u64 {
    until(quota, words[0].saturating_sub(quota.burst()), words[1])
}
