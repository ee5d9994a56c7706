//! A window of m sub-windows (buckets) with one counter each. The current bucket and the m before
//! it count in full, so no interval of length W ever holds more than n units.
//! One counter for a whole window is in `window.rs`, two that are weighed in `sliding_window.rs`.

use std::collections::VecDeque;

use super::{
    Adjust, Algorithm, Decide, Meter, Refund, StoredState,
    arguments::{arguments, shown},
    debt::MOST_BURSTS,
    level::Reading,
    stored::{self, doubles, whole},
};
use crate::{Error, Policy, charge::Ask, quota::MAX_EXACT};

/// The layout of the buckets in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buckets {
    /// The width of a bucket in microseconds, ⌈W/m⌉.
    pub(crate) width_us: u64,
    /// The number of buckets that count before the current one: m.
    pub(crate) count: u64,
}

impl Buckets {
    /// Returns the time at which the bucket with index `at` stops counting, in microseconds since
    /// the Unix epoch.
    fn expires_us(self, at: u64) -> u64 {
        (at + self.count + 1) * self.width_us
    }
}

/// The buckets that are not empty. `None` is a fresh state.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SlidingBucketsState(Option<Box<Filled>>);

#[derive(Clone, Debug)]
struct Filled {
    width_us: u64,
    /// The index of each bucket and its units, oldest first. Never empty.
    buckets: VecDeque<(u64, u32)>,
    /// The sum of the units of all buckets.
    total: u64,
    /// The number of the oldest buckets that have expired, and their units. Set when the state is
    /// advanced, and not stored.
    expired: usize,
    expired_units: u64,
}

impl PartialEq for Filled {
    fn eq(&self, other: &Self) -> bool {
        self.width_us == other.width_us && self.buckets == other.buckets
    }
}

impl Decide for SlidingBucketsState {
    #[inline]
    fn advance(
        &mut self,
        policy: &Policy,
        _stored_interval: Option<f64>,
        now_us: u64,
    ) -> (Self, bool) {
        let layout = policy.buckets();
        let Some(filled) = &mut self.0 else {
            return (Self(None), false);
        };
        let at = now_us / layout.width_us;
        if filled.width_us != layout.width_us || filled.newest() > at + layout.count {
            let mended = filled.mended(layout, now_us);
            let is_mended = mended.is_some();
            return (Self(mended.map(Box::new)), is_mended);
        }
        let first = filled.newest().max(at).saturating_sub(layout.count);
        let expired = filled.buckets.iter().take_while(|(at, _)| *at < first);
        (filled.expired, filled.expired_units) = expired
            .fold((0, 0), |(count, units), (_, more)| {
                (count + 1, units + u64::from(*more))
            });
        (Self(self.0.take()), false)
    }

    #[inline]
    fn is_moved(&self) -> bool {
        self.0.is_some()
    }

    #[inline]
    fn fits(&self, policy: &Policy, _now_us: u64, ask: Ask) -> bool {
        ask.cost == 0 || self.spent() + ask.cost <= ask.limit(policy.quota_ref().amount())
    }

    #[inline]
    fn charge(&mut self, policy: &Policy, now_us: u64, cost: u64, _tag: &[u8]) {
        let layout = policy.buckets();
        let filled = self.0.get_or_insert_with(|| Box::new(Filled::new(layout)));
        filled.drop_expired();
        filled.add(now_us / layout.width_us, cost);
    }

    #[inline]
    fn reading(&self, policy: &Policy, now_us: u64, denied: Ask) -> Reading {
        let (quota, layout) = (policy.quota_ref(), policy.buckets());
        let Some(filled) = self.0.as_ref().filter(|filled| filled.used() > 0) else {
            return [0; 4];
        };
        let used = filled.used();
        // Returns the time until `units` units have expired.
        let until = |units: u64| {
            let mut expired = 0;
            let last = filled
                .buckets
                .iter()
                .skip(filled.expired)
                .find(|(_, more)| {
                    expired += u64::from(*more);
                    expired >= units
                });
            last.map_or(0, |(at, _)| layout.expires_us(*at) - now_us)
        };
        let surplus = (used + 1).saturating_sub(quota.amount()).max(1);
        let lacking = (used + denied.cost).saturating_sub(denied.limit(quota.amount()));
        let retry_us = if denied.cost > 0 { until(lacking) } else { 0 };
        [
            used,
            retry_us,
            layout.expires_us(filled.newest()) - now_us,
            until(surplus),
        ]
    }
}

impl Adjust for SlidingBucketsState {
    fn spent(&self) -> u64 {
        self.0.as_ref().map_or(0, |filled| filled.used())
    }

    fn most_spent(policy: &Policy) -> u64 {
        (policy.quota_ref().burst() * MOST_BURSTS).min(u32::MAX.into())
    }

    /// Returns units to the bucket in which they were spent. Units that are not found there are
    /// returned to older buckets, the oldest first: these expire soonest, so no interval ever holds
    /// more than n units.
    fn refund(&mut self, refund: &Refund<'_>) -> bool {
        let (spent_us, cost) = (refund.spent_us, refund.cost);
        let Some(filled) = &mut self.0 else {
            return true;
        };
        filled.drop_expired();
        let spent_at = spent_us / filled.width_us;
        let there = filled
            .buckets
            .iter()
            .find(|(at, _)| *at == spent_at)
            .map_or(0, |(_, units)| u64::from(*units));
        let exact = there.min(cost);
        let mut older = cost - exact;
        for (at, units) in &mut filled.buckets {
            let most = if *at == spent_at { exact } else { older };
            if *at <= spent_at {
                let back = most.min(u64::from(*units));
                *units -= back as u32;
                filled.total -= back;
                older -= if *at == spent_at { 0 } else { back };
            }
        }
        filled.buckets.retain(|(_, units)| *units > 0);
        if filled.buckets.is_empty() {
            self.0 = None;
        }
        true
    }
}

impl Meter for SlidingBucketsState {
    fn fresh_at(&self, policy: &Policy) -> u64 {
        let layout = policy.buckets();
        self.0.as_ref().map_or(0, |filled| {
            Buckets {
                width_us: filled.width_us,
                ..layout
            }
            .expires_us(filled.newest())
        })
    }

    fn to_bytes(&self, _policy: &Policy, _stored_interval: Option<f64>) -> Vec<u8> {
        let Some(filled) = &self.0 else {
            return Vec::new();
        };
        let mut bytes = doubles(&[filled.width_us, filled.newest(), filled.total]);
        for (at, units) in &filled.buckets {
            bytes.extend((*at as u16).to_le_bytes());
            bytes.extend(units.to_le_bytes());
        }
        bytes
    }

    fn of_bytes(bytes: &[u8]) -> Option<(Self, f64)> {
        let ([width_us, newest, _], buckets) = stored::split(bytes)?;
        let (width_us, newest) = (whole(width_us)?, whole(newest)?);
        let (buckets, []) = buckets.as_chunks::<6>() else {
            return None;
        };
        let buckets: VecDeque<(u64, u32)> = buckets
            .iter()
            .map(|[low, high, a, b, c, d]| {
                // The lowest 16 bits of the number; no bucket is newer than the newest one.
                let back = (newest as u16).wrapping_sub(u16::from_le_bytes([*low, *high]));
                (
                    newest.saturating_sub(back.into()),
                    u32::from_le_bytes([*a, *b, *c, *d]),
                )
            })
            .collect();
        let total = buckets.iter().map(|(_, units)| u64::from(*units)).sum();
        let is_sound = width_us > 0
            && newest
                .checked_mul(width_us)
                .is_some_and(|last_us| last_us < MAX_EXACT);
        let is_ordered = buckets
            .iter()
            .is_sorted_by(|(one, _), (next, _)| one < next);
        let filled = Filled {
            width_us,
            buckets,
            total,
            expired: 0,
            expired_units: 0,
        };
        (is_sound && is_ordered && total > 0).then(|| (Self(Some(Box::new(filled))), 0.0))
    }

    fn shown(&self, _stored_interval: f64) -> StoredState {
        let buckets = self.0.iter().flat_map(|filled| &filled.buckets);
        StoredState::SlidingBuckets {
            width_us: self.0.as_ref().map_or(0, |filled| filled.width_us),
            buckets: buckets.map(|&(at, units)| (at, units.into())).collect(),
        }
    }

    fn unspend(_policy: &Policy, reading: &mut Reading, units: u64) {
        // The time to retry belongs to the last request of the batch, which was denied.
        (reading[0], reading[1]) = (reading[0].saturating_sub(units), 0);
    }

    fn args(policy: &Policy) -> [Option<u64>; 3] {
        let layout = policy.buckets();
        [Some(layout.width_us), Some(layout.count), None]
    }
}

impl Filled {
    fn new(layout: Buckets) -> Self {
        Self {
            width_us: layout.width_us,
            buckets: VecDeque::new(),
            total: 0,
            expired: 0,
            expired_units: 0,
        }
    }

    fn newest(&self) -> u64 {
        self.buckets.back().map_or(0, |(at, _)| *at)
    }

    fn used(&self) -> u64 {
        self.total - self.expired_units
    }

    fn drop_expired(&mut self) {
        self.buckets.drain(..self.expired);
        self.total -= self.expired_units;
        (self.expired, self.expired_units) = (0, 0);
    }

    /// Adds units to the bucket with index `at`, or to the newest one when the clock went back.
    fn add(&mut self, at: u64, units: u64) {
        self.total += units;
        match self.buckets.back_mut() {
            Some((newest, sum)) if *newest >= at => *sum += units as u32,
            _ => self.buckets.push_back((at, units as u32)),
        }
    }

    /// Converts the buckets to another layout, or moves back buckets that are impossibly far ahead.
    /// Units are counted at the latest time at which they can have been spent, at most `now_us`.
    /// Returns `None` when no unit counts any more.
    fn mended(&self, layout: Buckets, now_us: u64) -> Option<Self> {
        let first = (now_us / layout.width_us).saturating_sub(layout.count);
        let mut mended = Self::new(layout);
        for (at, units) in &self.buckets {
            let last_us = ((at + 1) * self.width_us - 1).min(now_us);
            if last_us / layout.width_us >= first {
                mended.add(last_us / layout.width_us, u64::from(*units));
            }
        }
        (mended.total > 0).then_some(mended)
    }
}

/// Reads the number of buckets from `rest`: `(10)`.
pub(super) fn parse(text: &str, rest: &str) -> Result<Algorithm, Error> {
    let digits = arguments(rest).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let wrong = if rest.is_empty() {
        "needs the number of buckets"
    } else {
        "must have 1 to 1000 buckets"
    };
    match digits.and_then(|digits| digits.parse().ok()) {
        Some(buckets @ 1..=1000) => Ok(Algorithm::SlidingBuckets { buckets }),
        _ => Err(Error::config(format!(
            "algorithm {:?} {wrong}, as in sliding_buckets(10)",
            shown(text)
        ))),
    }
}
