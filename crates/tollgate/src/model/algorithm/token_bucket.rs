//! A bucket that gains n units per W. The missing units come back one by one.
//!
//! Its state is the time at which it will be full again. This form is called virtual scheduling, or
//! the generic cell rate algorithm (GCRA) of ITU-T I.371. A [leaky bucket](super::leaky_bucket) has
//! the same state: the units that miss here wait there. After a reservation or a late refund, a
//! token bucket has a [trace](super::trace).
//!
//! One unit takes T = W/n µs. T is rarely a whole number, so a time is stored as whole microseconds
//! and a remainder in 1/n µs. k periods then give exactly k·n units, for any n and W. Every stored
//! number is an integer that a double represents exactly.

use super::{
    Meter, Refund, StoredState,
    debt::{MARK, MOST_BURSTS},
    rate::{Rate, converted, kept_words},
    stored::{self, doubles, unmarked, whole},
    table::{Numbers, PolicyLevel, Words},
    trace::{Trace, Traced},
};
use crate::{
    Policy, Quota,
    model::{charge::Ask, quota::Span},
};

/// The time at which the bucket is full again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Bucket {
    /// Whole microseconds since the Unix epoch.
    pub(super) full_us: u64,
    /// The remainder in 1/n µs, less than n. A stored state in debt is [marked](MARK) here.
    pub(super) part: u64,
}

impl Bucket {
    /// Brings the bucket to `now_us`. It was stored at the pace `other`, if that is not the
    /// quota's. Returns `true` when it had to be mended.
    ///
    /// A bucket of another rate that is full again within its own drain time is read, and not
    /// mended: it holds what others spent who know the other rate. One that holds more than the
    /// burst then has no room for any cost.
    #[inline]
    pub(crate) fn settle(
        &mut self,
        quota: &Quota,
        other: Option<f64>,
        is_kept: bool,
        now_us: u64,
    ) -> bool {
        if self.full_us < now_us {
            (self.full_us, self.part) = (now_us, 0);
            return false;
        }
        let (mut mended, mut is_in_debt) = (false, false);
        if self.part >= quota.amount() || other.is_some() {
            is_in_debt = self.part >= MARK;
            self.part %= MARK;
        }
        let top = quota.span(quota.burst());
        if other.is_some() || self.part >= quota.amount() {
            let most = if is_in_debt { most(quota) } else { top };
            let is_kept = is_kept && other.is_some() && self.ahead(now_us).0 <= most.0;
            // The rate has changed: keep the spent units, not the time in which they would have
            // returned.
            let pace = other.unwrap_or_else(|| quota.pace());
            let ahead = converted(self.ahead_of_part(now_us, pace), pace, quota);
            (self.full_us, self.part) = (now_us + ahead, 0);
            if is_kept {
                if self.ahead(now_us) > most {
                    let most = bursts(quota, MOST_BURSTS);
                    (self.full_us, self.part) = (now_us + most.0, most.1);
                }
                return false;
            }
            mended = true;
        }
        if self.ahead(now_us) > top {
            let most = if is_in_debt { most(quota) } else { top };
            if self.ahead(now_us) > most {
                (self.full_us, self.part) = (now_us + most.0, most.1);
                mended = true;
            }
        }
        mended
    }

    /// Returns the time until the bucket is full. Where many units accrue in a microsecond, a part
    /// of one is worth units too, and is rounded up.
    pub(super) fn ahead_of_part(&self, now_us: u64, pace: f64) -> u64 {
        self.full_us - now_us + u64::from(self.part > 0 && pace < 1.0)
    }

    /// Brings the bucket to `now_us` for a [settlement](Rate). Returns whether it was marked.
    pub(crate) fn hold(&mut self, now_us: u64) -> bool {
        let is_marked = self.part >= MARK;
        self.part %= MARK;
        if self.full_us < now_us {
            (self.full_us, self.part) = (now_us, 0);
            return false;
        }
        is_marked
    }

    /// Marks a bucket that was settled, as far as it was marked or is in debt.
    pub(super) fn mark_held(&mut self, rate: &Rate<'_>, now_us: u64, was_marked: bool) {
        let (whole, part) = self.ahead(now_us);
        if part < MARK && (was_marked && (whole, part) > (0, 0) || (whole, part) > rate.top()) {
            self.part += MARK;
        }
    }

    /// Returns whether the bucket is full again within `ceiling` of a charge.
    #[inline]
    pub(crate) fn fits(&self, quota: &Quota, now_us: u64, cost: u64, ceiling: Span) -> bool {
        add(quota, self.ahead(now_us), quota.span(cost)) <= ceiling || cost == 0
    }

    #[inline]
    pub(crate) fn charge(&mut self, quota: &Quota, cost: u64) {
        (self.full_us, self.part) = add(quota, (self.full_us, self.part), quota.span(cost));
    }

    /// Charges a cost that need not fit, and takes back nothing that others charged beyond the
    /// most. At another rate it is not known whether that is a debt, so it is marked as one.
    pub(super) fn owe(&mut self, rate: &Rate<'_>, now_us: u64, cost: u64) {
        let ahead = self.ahead(now_us);
        let (whole, part) = add(rate.quota, ahead, rate.charged(cost))
            .min(rate.most())
            .max(ahead);
        (self.full_us, self.part) = (now_us + whole, part);
        if rate.is_other() {
            self.part += MARK;
        }
    }

    /// Marks a settled state that is in debt, before it is stored.
    #[inline]
    pub(crate) fn mark_debt(&mut self, quota: &Quota, now_us: u64) {
        if self.ahead(now_us) > quota.span(quota.burst()) {
            self.part += MARK;
        }
    }

    /// Marks a state whatever it holds.
    pub(crate) fn mark_as_debt(&mut self) {
        self.part = self.part % MARK + MARK;
    }

    /// Returns whether the units of a request with this end are the last ones in a queue.
    pub(crate) fn ends_at(&self, end: Span) -> bool {
        (self.full_us, self.part) == end
    }

    /// Makes a time of units that are spent accrue at once.
    pub(super) fn subtract(&mut self, quota: &Quota, given: Span) {
        (self.full_us, self.part) = less(quota, (self.full_us, self.part), given);
    }

    /// Returns the state that has these words at `now_us`.
    pub(crate) fn of_words(words: &Words, now_us: u64) -> Self {
        Self {
            full_us: now_us + words[0],
            part: words[1],
        }
    }

    #[inline]
    pub(crate) fn words(&self, now_us: u64) -> Words {
        let (ahead, part) = self.ahead(now_us);
        [ahead, part, 0, 0]
    }

    pub(crate) fn fresh_at(&self) -> u64 {
        self.full_us + u64::from(!self.part.is_multiple_of(MARK))
    }

    #[inline]
    pub(super) fn ahead(&self, now_us: u64) -> Span {
        (self.full_us - now_us, self.part)
    }

    pub(crate) fn full_us(&self) -> u64 {
        self.full_us
    }

    /// Returns the bytes of a bucket.
    pub(super) fn bytes(self, quota: &Quota, other: Option<f64>) -> Vec<u8> {
        let pace = other.unwrap_or_else(|| quota.pace());
        [self.full_us as f64, self.part as f64, pace]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect()
    }

    /// Reads the bytes of a bucket: itself, its pace, and what follows.
    pub(super) fn of_bytes(bytes: &[u8]) -> Option<(Self, f64, &[u8])> {
        let ([full_us, part, pace], rest) = stored::split(bytes)?;
        let bucket = Self {
            full_us: whole(full_us)?,
            part: whole(part)?,
        };
        (pace > 0.0 && pace.is_finite()).then_some((bucket, pace, rest))
    }

    pub(super) fn shown(&self, pace: f64) -> StoredState {
        StoredState::Bucket {
            full_us: self.full_us,
            part: unmarked(self.part),
            pace,
        }
    }
}

/// Returns the time within which a bucket has to be full again after a check, at most `most` if it
/// has a ceiling.
#[inline]
pub(super) fn ceiling_within(quota: &Quota, ask: Ask, most: impl FnOnce() -> Span) -> Span {
    if ask.ceiling.is_none() {
        return quota.span(quota.burst());
    }
    let (whole, part) = quota.span(ask.limit(quota.burst()));
    (whole.saturating_add(ask.wait_us()), part).min(most())
}

/// Returns the time of the most units that are spent in debt.
pub(super) fn most(quota: &Quota) -> Span {
    bursts(quota, MOST_BURSTS)
}

/// Returns the time of so many bursts.
pub(super) fn bursts(quota: &Quota, count: u64) -> Span {
    let (whole, part) = quota.span(quota.burst());
    let parts = part * count;
    (
        whole * count + parts / quota.amount(),
        parts % quota.amount(),
    )
}

#[inline]
pub(super) fn add(quota: &Quota, a: Span, b: Span) -> Span {
    let part = a.1 + b.1;
    let carry = u64::from(part >= quota.amount());
    (a.0 + b.0 + carry, part - carry * quota.amount())
}

#[inline]
pub(super) fn less(quota: &Quota, a: Span, b: Span) -> Span {
    let borrow = u64::from(a.1 < b.1);
    (a.0 - b.0 - borrow, a.1 + borrow * quota.amount() - b.1)
}

/// Returns the numbers that the script takes behind the amount.
pub(super) fn args(quota: &Quota) -> [Option<u64>; 3] {
    [Some(quota.period_us()), Some(quota.burst()), None]
}

/// Returns the expiry of a bucket that is stored until this time: the end of the second, so that
/// further charges within it do not change the expiry.
pub(super) fn expires_ms(ends_us: u64) -> u64 {
    (ends_us / 1_000_000 + 1) * 1_000
}

/// Subtracts `units` from the words of a bucket to which they were charged.
pub(crate) fn unspend(quota: &Quota, words: &mut Words, units: u64) {
    let (whole, part) = quota.span(units);
    let borrow = u64::from(words[1] < part);
    words[0] = words[0].saturating_sub(whole + borrow);
    words[1] = words[1] + borrow * quota.amount() - part;
}

/// Derives the numbers from the time until the bucket is full. The words are whole microseconds and
/// a remainder.
#[inline]
pub(crate) fn numbers(quota: &Quota, words: &Words, cost: u64, ceiling: Span) -> Numbers {
    match quota.span(1) {
        // Usually a unit takes a whole number of microseconds, and 64 bits suffice for every
        // product.
        (unit, 0) if words[1] == 0 => whole_numbers(quota, unit, words[0], cost, ceiling.0),
        _ => wide_numbers(quota, words, cost, ceiling),
    }
}

#[inline]
fn whole_numbers(quota: &Quota, unit: u64, ahead: u64, cost: u64, ceiling: u64) -> Numbers {
    let top = unit * quota.burst();
    let remaining = top.saturating_sub(ahead) / unit;
    let until = |units: u64, top: u64| (units * unit + ahead).saturating_sub(top);
    Numbers {
        remaining,
        retry_us: if cost == 0 { 0 } else { until(cost, ceiling) },
        reset_us: ahead,
        more_us: if ahead == 0 {
            0
        } else {
            until(remaining + 1, top)
        },
    }
}

fn wide_numbers(quota: &Quota, words: &Words, cost: u64, ceiling: Span) -> Numbers {
    let n = i128::from(quota.amount());
    let period = i128::from(quota.period_us());
    let used = i128::from(words[0]) * n + i128::from(words[1]);
    let top = period * i128::from(quota.burst());
    let remaining = ((top - used) / period).max(0);
    let until = |units: i128, top: i128| ceil_div((units * period + used - top).max(0), n);
    let ceiling = i128::from(ceiling.0) * n + i128::from(ceiling.1);
    Numbers {
        remaining: remaining as u64,
        retry_us: if cost == 0 {
            0
        } else {
            until(i128::from(cost), ceiling)
        },
        reset_us: ceil_div(used, n),
        more_us: if used == 0 {
            0
        } else {
            until(remaining + 1, top)
        },
    }
}

/// Returns the delay of a request that added `charged` units to a leaky bucket: the time until all
/// units that were in the bucket before have left, in microseconds.
pub(crate) fn turn_us(quota: &Quota, words: &Words, charged: u64) -> u64 {
    let n = i128::from(quota.amount());
    let used = i128::from(words[0]) * n + i128::from(words[1]);
    let before = used - i128::from(quota.period_us()) * i128::from(charged);
    ceil_div(before.max(0), n)
}

/// Returns the delay of a request that was charged to a token bucket: the time until the debt in
/// which it left the bucket is paid, in microseconds.
pub(crate) fn debt_us(quota: &Quota, words: &Words) -> u64 {
    if (words[0], words[1]) <= quota.span(quota.burst()) {
        return 0;
    }
    let n = i128::from(quota.amount());
    let used = i128::from(words[0]) * n + i128::from(words[1]);
    ceil_div(
        (used - i128::from(quota.period_us()) * i128::from(quota.burst())).max(0),
        n,
    )
}

fn ceil_div(a: i128, b: i128) -> u64 {
    ((a + b - 1) / b) as u64
}

/// A bucket, and its trace if it has one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    Plain(Bucket),
    Traced(Box<Traced>),
}

impl State {
    fn bucket(&self) -> &Bucket {
        match self {
            Self::Plain(bucket) => bucket,
            Self::Traced(state) => &state.bucket,
        }
    }

    fn bucket_mut(&mut self) -> &mut Bucket {
        match self {
            Self::Plain(bucket) => bucket,
            Self::Traced(state) => &mut state.bucket,
        }
    }

    /// Changes the bucket and its trace.
    fn with_trace(&mut self, change: impl FnOnce(&mut Traced)) {
        let mut state = match self {
            Self::Plain(bucket) => Traced {
                bucket: *bucket,
                trace: None,
            },
            Self::Traced(state) => **state,
        };
        change(&mut state);
        *self = state.into();
    }
}

/// Returns the time within which the bucket has to be full again after a check.
///
/// It goes into debt while it has spent at most a burst less than the most, whatever the cost: so a
/// large cost waits for room no longer than a small one.
#[inline]
fn ceiling(policy: &Policy, ask: Ask) -> Span {
    let quota = policy.quota_ref();
    ceiling_within(quota, ask, || {
        add(quota, bursts(quota, MOST_BURSTS - 1), quota.span(ask.cost))
    })
}

impl Meter for State {
    #[inline]
    fn settle(&mut self, policy: &Policy, other: Option<f64>, now_us: u64) -> (Self, bool) {
        let quota = policy.quota_ref();
        match *self {
            Self::Plain(mut bucket) => {
                let mended = bucket.settle(quota, other, !policy.is_leased(), now_us);
                (Self::Plain(bucket), mended)
            }
            Self::Traced(ref state) => {
                let mut state = **state;
                let mended = state.settle(quota, other, !policy.is_leased(), now_us);
                (state.into(), mended)
            }
        }
    }

    fn hold(&mut self, _policy: &Policy, now_us: u64) -> (Self, bool) {
        let mut is_marked = false;
        let mut state = self.clone();
        state.with_trace(|state| is_marked = state.hold(now_us));
        (state, is_marked)
    }

    fn keeps_pace(&self, now_us: u64) -> bool {
        self.bucket().ahead(now_us) > (0, 0)
    }

    fn mark_held(&mut self, policy: &Policy, other: Option<f64>, now_us: u64, was_marked: bool) {
        self.bucket_mut()
            .mark_held(&Rate::of(policy, other), now_us, was_marked);
    }

    fn kept_words(&self, policy: &Policy, pace: f64, now_us: u64, ask: Ask) -> Option<Words> {
        kept_words(
            self.bucket(),
            policy,
            pace,
            now_us,
            ask,
            ceiling(policy, ask),
        )
    }

    #[inline]
    fn fits(&self, policy: &Policy, now_us: u64, ask: Ask) -> bool {
        self.bucket()
            .fits(policy.quota_ref(), now_us, ask.cost, ceiling(policy, ask))
    }

    #[inline]
    fn charge(&mut self, policy: &Policy, _now_us: u64, cost: u64, _tag: &[u8]) {
        self.bucket_mut().charge(policy.quota_ref(), cost);
    }

    fn spent(&self) -> u64 {
        0
    }

    fn owe(&mut self, policy: &Policy, other: Option<f64>, now_us: u64, cost: u64) -> bool {
        self.bucket_mut()
            .owe(&Rate::of(policy, other), now_us, cost);
        true
    }

    #[inline]
    fn mark_debt(&mut self, policy: &Policy, now_us: u64) {
        self.bucket_mut().mark_debt(policy.quota_ref(), now_us);
    }

    fn mark_as_debt(&mut self) {
        self.bucket_mut().mark_as_debt();
    }

    fn remember(&mut self, now_us: u64) {
        self.with_trace(|state| state.remember(now_us));
    }

    fn refund(&mut self, refund: &Refund<'_>) -> bool {
        let rate = Rate::of(refund.policy, refund.other);
        self.with_trace(|state| state.refund(&rate, refund));
        true
    }

    #[inline]
    fn words(&self, _policy: &Policy, now_us: u64, _denied: Ask) -> Words {
        self.bucket().words(now_us)
    }

    /// A trace stays until nobody can claim a unit.
    fn fresh_at(&self, _policy: &Policy) -> u64 {
        match self {
            Self::Plain(bucket) => bucket.fresh_at(),
            Self::Traced(state) => state.fresh_at(),
        }
    }

    fn to_bytes(&self, policy: &Policy, other: Option<f64>) -> Vec<u8> {
        let trace = match self {
            Self::Traced(state) => state.trace.map(|trace| doubles(&trace.words())),
            Self::Plain(_) => None,
        };
        [
            self.bucket().bytes(policy.quota_ref(), other),
            trace.unwrap_or_default(),
        ]
        .concat()
    }

    fn expires_ms(&self, _policy: &Policy) -> u64 {
        expires_ms(match self {
            Self::Plain(bucket) => bucket.full_us(),
            Self::Traced(state) => state.ends_us(),
        })
    }

    fn of_bytes(bytes: &[u8]) -> Option<(Self, f64)> {
        let (bucket, pace, trace) = Bucket::of_bytes(bytes)?;
        let trace = match trace.len() {
            0 => None,
            // As in the script, a trace that is damaged takes nothing of the bucket along.
            40 => Trace::of_bytes(trace),
            _ => return None,
        };
        Some((Traced { bucket, trace }.into(), pace))
    }

    fn shown(&self, pace: f64) -> StoredState {
        self.bucket().shown(pace)
    }

    fn numbers(policy: &Policy, words: &Words, denied: Ask) -> Numbers {
        numbers(
            policy.quota_ref(),
            words,
            denied.cost,
            ceiling(policy, denied),
        )
    }

    fn delay_us(policy: &Policy, words: &Words, charged: u64) -> u64 {
        if charged > 0 {
            debt_us(policy.quota_ref(), words)
        } else {
            0
        }
    }

    fn end_of(words: &Words, _is_owed: impl FnOnce() -> bool) -> Option<Span> {
        Some((words[0], words[1]))
    }

    fn unspend(policy: &Policy, words: &mut Words, units: u64) {
        unspend(policy.quota_ref(), words, units);
    }

    fn of_words(_policy: &Policy, words: &Words, now_us: u64) -> Option<Self> {
        Some(Self::Plain(Bucket::of_words(words, now_us)))
    }

    fn args(policy: &Policy) -> [Option<u64>; 3] {
        args(policy.quota_ref())
    }

    fn ceiling_args(policy: &Policy, ask: Ask) -> (u64, Option<u64>) {
        let (whole, part) = ceiling(policy, ask);
        (whole, Some(part))
    }

    /// A traced bucket is decided in its place: to move it would cost an allocation.
    #[inline(always)]
    fn decide(
        &mut self,
        policy: &Policy,
        other: Option<f64>,
        now_us: u64,
        cost: u64,
        tag: &[u8],
    ) -> (PolicyLevel, bool) {
        let traced = match self {
            // Without a ceiling, a token bucket decides as a leaky bucket does.
            Self::Plain(bucket) => return bucket.decide(policy, other, now_us, cost, tag),
            Self::Traced(traced) => &mut **traced,
        };
        let quota = policy.quota_ref();
        let mut state = *traced;
        let mended = state.settle(quota, other, !policy.is_leased(), now_us);
        let fits = state
            .bucket
            .fits(quota, now_us, cost, quota.span(quota.burst()));
        let is_charged = fits && cost > 0;
        if is_charged {
            state.bucket.charge(quota, cost);
        }
        let kept = other.filter(|_| !is_charged).and_then(|pace| {
            let ask = Ask::from(cost).denied_unless(fits);
            kept_words(
                &traced.bucket,
                policy,
                pace,
                now_us,
                ask,
                ceiling(policy, ask),
            )
        });
        let words = kept.unwrap_or_else(|| state.bucket.words(now_us));
        let is_written = is_charged || (mended && cost > 0);
        if is_written {
            *traced = state;
            if !is_charged {
                traced.bucket.mark_debt(quota, now_us);
            }
        }
        (PolicyLevel { fits, words }, is_written)
    }
}

impl Default for State {
    fn default() -> Self {
        Self::Plain(Bucket::default())
    }
}

impl From<Traced> for State {
    fn from(state: Traced) -> Self {
        match state.trace {
            Some(_) => Self::Traced(Box::new(state)),
            None => Self::Plain(state.bucket),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_64_bit_numbers_equal_the_128_bit_numbers() {
        for quota in [
            Quota::per_second(10),
            Quota::per_minute(600).with_burst(7),
            Quota::per_day(1).with_burst(9),
        ] {
            let (unit, _) = quota.span(1);
            let (top, _) = quota.span(quota.burst());
            for ahead in [
                0,
                1,
                unit - 1,
                unit,
                unit + 1,
                top / 2,
                top - unit,
                top - 1,
                top,
                top + 1,
                8 * top,
            ] {
                for cost in 0..=quota.burst() {
                    let words = [ahead, 0, 0, 0];
                    for ceiling in [top, top - 1, unit, top + 3 * unit / 2] {
                        let wide = wide_numbers(&quota, &words, cost, (ceiling, 0));
                        assert_eq!(whole_numbers(&quota, unit, ahead, cost, ceiling), wide);
                    }
                }
            }
        }
    }
}
