//! A queue of b units that drains at n per W.
//!
//! Its arithmetic is that of the [bucket](super::bucket), and a token bucket takes these steps, too,
//! where it is not another one: see `token_bucket.rs`. A bucket that was stored at another rate is
//! read in `rate.rs`.

use super::{
    Adjust, Decide, Meter, Refund, StoredState,
    bucket::{self, Bucket, add, beyond_us, bursts, ceiling_within, most},
    debt::{MOST_BURSTS, marked},
    level::{Numbers, Reading},
    rate::{StoredRate, converted, reading_at_other_rate},
};
use crate::{Policy, charge::Ask, policy::PolicyParts, quota::Span};

/// Returns the time within which the queue has to be empty again after a check. It never holds more
/// than its burst.
#[inline]
fn ceiling(policy: &Policy, ask: Ask) -> Span {
    let quota = policy.quota_ref();
    ceiling_within(quota, ask, || quota.span(quota.burst()))
}

impl Decide for Bucket {
    /// A bucket of another rate that is full again within its own drain time is read, and not
    /// mended: it holds what others spent who know the other rate. One that holds more than the
    /// burst then has no room for any cost.
    #[inline]
    fn advance(
        &mut self,
        policy: &Policy,
        stored_interval: Option<f64>,
        now_us: u64,
    ) -> (Self, bool) {
        let (mut state, quota) = (*self, policy.quota_ref());
        let is_in_debt = std::mem::take(&mut state.in_debt);
        if state.tat_us < now_us {
            (state.tat_us, state.part) = (now_us, 0);
            return (state, false);
        }
        let mut mended = false;
        let top = quota.span(quota.burst());
        if stored_interval.is_some() || state.part >= quota.amount() {
            let most = if is_in_debt { most(quota) } else { top };
            let is_kept =
                !policy.is_leased() && stored_interval.is_some() && state.ahead(now_us).0 <= most.0;
            // The rate has changed: keep the spent units, not the time in which they would have
            // returned.
            let interval = stored_interval.unwrap_or_else(|| quota.emission_interval());
            let ahead = converted(state.ahead_of_part(now_us, interval), interval, quota);
            (state.tat_us, state.part) = (now_us + ahead, 0);
            if is_kept {
                if state.ahead(now_us) > most {
                    let most = bursts(quota, MOST_BURSTS);
                    (state.tat_us, state.part) = (now_us + most.0, most.1);
                }
                return (state, false);
            }
            mended = true;
        }
        if state.ahead(now_us) > top {
            let most = if is_in_debt { most(quota) } else { top };
            if state.ahead(now_us) > most {
                (state.tat_us, state.part) = (now_us + most.0, most.1);
                mended = true;
            }
        }
        (state, mended)
    }

    #[inline]
    fn fits(&self, policy: &Policy, now_us: u64, ask: Ask) -> bool {
        self.fits_within(policy.quota_ref(), now_us, ask.cost, ceiling(policy, ask))
    }

    #[inline]
    fn charge(&mut self, policy: &Policy, _now_us: u64, cost: u64, _tag: &[u8]) {
        let quota = policy.quota_ref();
        (self.tat_us, self.part) = add(quota, (self.tat_us, self.part), quota.span(cost));
    }

    #[inline]
    fn note_debt(&mut self, policy: &Policy, stored_interval: Option<f64>, now_us: u64) {
        let ahead = self.ahead(now_us);
        let owes = self.in_debt && ahead > (0, 0);
        self.in_debt = owes || ahead > StoredRate::of(policy, stored_interval).top();
    }

    #[inline]
    fn reading(&self, _policy: &Policy, now_us: u64, _denied: Ask) -> Reading {
        let (ahead, part) = self.ahead(now_us);
        [ahead, part, 0, 0]
    }

    fn reading_as_stored(
        &self,
        policy: &Policy,
        stored_interval: f64,
        now_us: u64,
        ask: Ask,
    ) -> Option<Reading> {
        let ceiling = ceiling(policy, ask);
        reading_at_other_rate(self, policy, stored_interval, now_us, ask, ceiling)
    }
}

impl Adjust for Bucket {
    fn adjustable(&mut self, _policy: &Policy, now_us: u64) -> Self {
        if self.tat_us < now_us {
            Self {
                tat_us: now_us,
                ..Self::default()
            }
        } else {
            *self
        }
    }

    fn keeps_interval(&self, now_us: u64) -> bool {
        self.ahead(now_us) > (0, 0)
    }

    /// Takes back nothing that others charged beyond the most. At another rate it is not known
    /// whether that is a debt, so it counts as one.
    fn owe(
        &mut self,
        policy: &Policy,
        stored_interval: Option<f64>,
        now_us: u64,
        cost: u64,
    ) -> bool {
        let (rate, ahead) = (StoredRate::of(policy, stored_interval), self.ahead(now_us));
        let (whole, part) = add(rate.quota, ahead, rate.charged(cost))
            .min(rate.most())
            .max(ahead);
        (self.tat_us, self.part) = (now_us + whole, part);
        self.in_debt |= rate.is_other();
        true
    }

    fn refund(&mut self, refund: &Refund<'_>) -> bool {
        let rate = StoredRate::of(refund.policy, refund.stored_interval);
        let is_last = refund
            .end
            .is_none_or(|end| !rate.is_other() && self.ends_at(end));
        if is_last {
            let returned = rate.returned(refund.cost).min(self.ahead(refund.now_us));
            self.subtract(rate.quota, returned);
        }
        is_last
    }
}

impl Meter for Bucket {
    fn look(&mut self) {
        self.in_debt = true;
    }

    fn fresh_at(&self, _policy: &Policy) -> u64 {
        self.tat_us + u64::from(self.part > 0)
    }

    fn to_bytes(&self, policy: &Policy, stored_interval: Option<f64>) -> Vec<u8> {
        let interval = stored_interval.unwrap_or_else(|| policy.quota_ref().emission_interval());
        let part = marked(self.part, self.in_debt);
        [self.tat_us as f64, part as f64, interval]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect()
    }

    fn expires_ms(&self, _policy: &Policy) -> u64 {
        bucket::expires_ms(self.tat_us)
    }

    fn of_bytes(bytes: &[u8]) -> Option<(Self, f64)> {
        let (bucket, interval, []) = Self::split(bytes)? else {
            return None;
        };
        Some((bucket, interval))
    }

    fn shown(&self, stored_interval: f64) -> StoredState {
        StoredState::Bucket {
            full_us: self.tat_us,
            part: self.part,
            pace: stored_interval,
        }
    }

    fn numbers(policy: &Policy, reading: &Reading, denied: Ask) -> Numbers {
        bucket::numbers(policy, reading, denied, ceiling(policy, denied))
    }

    /// Returns the time until all units that were in the queue before have left.
    fn delay_us(policy: &Policy, reading: &Reading, charged: u64) -> u64 {
        beyond_us(policy.quota_ref(), reading, charged)
    }

    fn end_of(reading: &Reading, _is_owed: impl FnOnce() -> bool) -> Option<Span> {
        Some((reading[0], reading[1]))
    }

    fn unspend(policy: &Policy, reading: &mut Reading, units: u64) {
        let quota = policy.quota_ref();
        let (whole, part) = quota.span(units);
        let borrow = u64::from(reading[1] < part);
        reading[0] = reading[0].saturating_sub(whole + borrow);
        reading[1] = reading[1] + borrow * quota.amount() - part;
    }

    fn of_reading(_policy: &Policy, reading: &Reading, now_us: u64) -> Option<Self> {
        Some(Self {
            tat_us: now_us + reading[0],
            part: reading[1],
            in_debt: false,
        })
    }

    #[inline]
    fn lowered(policy: &Policy, reading: &Reading, passed_us: u64, most: u64) -> Option<Reading> {
        bucket::lowered(policy.quota_ref(), reading, passed_us, most)
    }

    fn args(policy: &Policy) -> [Option<u64>; 3] {
        let quota = policy.quota_ref();
        [Some(quota.period_us()), Some(quota.burst()), None]
    }

    fn ceiling_args(policy: &Policy, ask: Ask) -> (u64, Option<u64>) {
        let (whole, part) = ceiling(policy, ask);
        (whole, Some(part))
    }
}
