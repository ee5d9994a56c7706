//! A bucket to which n units are added at once every period. The first period starts with the first
//! request.
//! A bucket whose units come back one by one is in `token_bucket.rs`.

use super::{
    Adjust, Decide, Meter, Refund, StoredState,
    debt::{MOST_BURSTS, MOST_US, marked, unmarked},
    level::{Numbers, Reading},
    stored::{self, doubles, whole},
};
use crate::{
    Policy, Quota,
    charge::Ask,
    policy::PolicyParts,
    quota::{MAX_EXACT, Span},
};

/// The start of the current period, and the units missing from the bucket.
// Packed as a `Bucket` is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(Rust, packed(4))]
pub(crate) struct IntervalBucketState {
    start_us: u64,
    used: u64,
    /// It was stored in debt: more units may be missing than the burst.
    in_debt: bool,
}

impl IntervalBucketState {
    /// Adds the units of the refills by `now_us`. Returns whether the period began after it.
    fn refill(self, quota: &Quota, now_us: u64) -> (Self, bool) {
        let start_us = self.start_us.min(now_us);
        let refills = (now_us - start_us) / quota.period_us();
        let used = self
            .used
            .saturating_sub(refills.saturating_mul(quota.amount()));
        if used == 0 {
            // The bucket is full: the next period starts with the next request.
            return (
                Self {
                    start_us: now_us,
                    used,
                    in_debt: self.in_debt,
                },
                false,
            );
        }
        (
            Self {
                start_us: start_us + refills * quota.period_us(),
                used,
                in_debt: self.in_debt,
            },
            self.start_us > now_us,
        )
    }

    fn left(&self, quota: &Quota, now_us: u64) -> u64 {
        self.start_us + quota.period_us() - now_us
    }

    /// Returns whether the units of a request with this end were missing last. Its end is the time
    /// of the refill after it, and the units that were missing then.
    fn ends_at(&self, quota: &Quota, (fill_us, used): Span) -> bool {
        let passed = (self.start_us + quota.period_us()).checked_sub(fill_us);
        passed.is_some_and(|passed| {
            let filled = (passed / quota.period_us()).saturating_mul(quota.amount());
            passed.is_multiple_of(quota.period_us()) && self.used.saturating_add(filled) == used
        })
    }
}

impl Decide for IntervalBucketState {
    #[inline]
    fn advance(
        &mut self,
        policy: &Policy,
        _stored_interval: Option<f64>,
        now_us: u64,
    ) -> (Self, bool) {
        let mut state = *self;
        // The burst was lowered since the state was stored, or the state is in debt. What is read of
        // it is cut at the start of the period, so the next refill comes in time although nothing
        // is stored.
        let most = if std::mem::take(&mut state.in_debt) {
            Self::most_spent(policy)
        } else {
            policy.quota_ref().burst()
        };
        state.used = state.used.min(most);
        state.refill(policy.quota_ref(), now_us)
    }

    /// Returns whether a cost fits, or the units that are missing then are back in time.
    #[inline]
    fn fits(&self, policy: &Policy, now_us: u64, ask: Ask) -> bool {
        let quota = policy.quota_ref();
        let limit = ask.limit(quota.burst());
        self.used + ask.cost <= limit
            || ask.cost == 0
            || ask.wait_us() > 0
                && self.used <= most_before(quota)
                && until(
                    quota,
                    self.used + ask.cost - limit,
                    self.left(quota, now_us),
                ) <= ask.wait_us()
    }

    #[inline]
    fn charge(&mut self, _policy: &Policy, _now_us: u64, cost: u64, _tag: &[u8]) {
        self.used += cost;
    }

    fn note_debt(&mut self, policy: &Policy, _stored_interval: Option<f64>, _now_us: u64) {
        let owes = self.in_debt && self.used > 0;
        self.in_debt = owes || self.used > policy.quota_ref().burst();
    }

    #[inline]
    fn reading(&self, policy: &Policy, now_us: u64, _denied: Ask) -> Reading {
        [self.used, self.left(policy.quota_ref(), now_us), 0, 0]
    }
}

impl Adjust for IntervalBucketState {
    /// Returns the state as it is stored.
    fn adjustable(&mut self, _policy: &Policy, _now_us: u64) -> Self {
        *self
    }

    fn spent(&self) -> u64 {
        self.used
    }

    fn owe(
        &mut self,
        policy: &Policy,
        _stored_interval: Option<f64>,
        now_us: u64,
        cost: u64,
    ) -> bool {
        (*self, _) = self.refill(policy.quota_ref(), now_us);
        self.used += cost.min(Self::most_spent(policy).saturating_sub(self.used));
        true
    }

    /// Returns units that were spent since the last refill, or that waited for it. A refill may
    /// have returned older ones.
    fn refund(&mut self, refund: &Refund<'_>) -> bool {
        let quota = refund.policy.quota_ref();
        let (filled, _) = self.refill(quota, refund.now_us);
        let is_last = refund.end.is_none_or(|end| filled.ends_at(quota, end));
        let spent_us = refund
            .end
            .and_then(|end| paid_us(quota, end))
            .unwrap_or(refund.spent_us);
        let is_returned = filled.used > 0 && is_last && spent_us >= filled.start_us;
        let cost = if is_returned { refund.cost } else { 0 };
        // What lapses of a leased policy is stored in any case.
        let is_written = is_returned || refund.policy.is_leased();
        if is_written {
            *self = Self {
                used: filled.used.saturating_sub(cost),
                ..filled
            };
        }
        is_written
    }
}

impl Meter for IntervalBucketState {
    fn fresh_at(&self, policy: &Policy) -> u64 {
        let quota = policy.quota_ref();
        // A settlement may come with a quota that fills more slowly than the one of the units.
        self.start_us
            + self
                .used
                .div_ceil(quota.amount())
                .saturating_mul(quota.period_us())
                .min(MOST_US)
    }

    fn to_bytes(&self, _policy: &Policy, _stored_interval: Option<f64>) -> Vec<u8> {
        doubles(&[self.start_us, marked(self.used, self.in_debt)])
    }

    fn of_bytes(bytes: &[u8]) -> Option<(Self, f64)> {
        let ([start_us, used], []) = stored::split(bytes)? else {
            return None;
        };
        let (used, in_debt) = unmarked(whole(used)?);
        Some((
            Self {
                start_us: whole(start_us)?,
                used,
                in_debt,
            },
            0.0,
        ))
    }

    fn shown(&self, _stored_interval: f64) -> StoredState {
        StoredState::IntervalBucket {
            start_us: self.start_us,
            missing: self.used,
        }
    }

    /// Derives the numbers from the missing units and the time until the next refill.
    fn numbers(policy: &Policy, reading: &Reading, ask: Ask) -> Numbers {
        let (quota, [used, left, ..]) = (policy.quota_ref(), *reading);
        let one_more = (used + 1).saturating_sub(quota.burst()).max(1);
        let until = |missing: u64| until(quota, missing, left);
        let fits = until((used + ask.cost).saturating_sub(ask.limit(quota.burst())));
        let retry_us = match ask.wait_us() {
            0 => fits,
            // It owes no sooner than the debt of the others has room for it.
            wait_us => fits.min(
                fits.saturating_sub(wait_us)
                    .max(until(used.saturating_sub(most_before(quota)))),
            ),
        };
        Numbers {
            remaining: quota.burst().saturating_sub(used),
            retry_us: if ask.cost == 0 { 0 } else { retry_us },
            reset_us: until(used),
            more_us: if used == 0 { 0 } else { until(one_more) },
        }
    }

    fn delay_us(policy: &Policy, reading: &Reading, charged: u64) -> u64 {
        let quota = policy.quota_ref();
        if charged > 0 {
            until(quota, reading[0].saturating_sub(quota.burst()), reading[1])
        } else {
            0
        }
    }

    fn end_of(reading: &Reading, is_owed: impl FnOnce() -> bool) -> Option<Span> {
        is_owed().then_some((reading[1], reading[0]))
    }

    fn of_reading(policy: &Policy, reading: &Reading, now_us: u64) -> Option<Self> {
        let start_us = (now_us + reading[1]).saturating_sub(policy.quota_ref().period_us());
        Some(Self {
            start_us,
            used: reading[0],
            in_debt: false,
        })
    }

    fn args(policy: &Policy) -> [Option<u64>; 3] {
        [
            Some(policy.quota_ref().period_us()),
            Some(policy.quota_ref().burst()),
            None,
        ]
    }

    fn ceiling_args(policy: &Policy, ask: Ask) -> (u64, Option<u64>) {
        (
            ask.limit(policy.quota_ref().burst()),
            Some(ask.wait_us().min(MAX_EXACT - 1)),
        )
    }
}

/// Returns the most units that are missing before a check which goes into debt. One that costs the
/// burst then owes no more than the most.
fn most_before(quota: &Quota) -> u64 {
    quota.burst() * (MOST_BURSTS - 1)
}

/// Returns the time of the refill for which a request with this end has waited, if it has.
fn paid_us(quota: &Quota, (fill_us, used): Span) -> Option<u64> {
    let owed = used.saturating_sub(quota.burst());
    (owed > 0).then(|| fill_us.saturating_add(until(quota, owed, 0)))
}

/// Returns the time until `missing` units are back, when the next refill comes after `left`.
fn until(quota: &Quota, missing: u64, left: u64) -> u64 {
    match missing.div_ceil(quota.amount()) {
        0 => 0,
        refills => (refills - 1)
            .saturating_mul(quota.period_us())
            .saturating_add(left),
    }
}
