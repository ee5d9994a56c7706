//! A window of m sub-windows (buckets) with one counter each. The current bucket and the m before it
//! count in full, so no interval of length W ever holds more than n units.

use std::collections::VecDeque;

use super::numbers::Words;
use crate::{Quota, model::cost::Ask};

/// The layout of the buckets in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buckets {
    /// The width of a bucket in microseconds, ⌈W/m⌉.
    pub(crate) width_us: u64,
    /// The number of buckets that count before the current one: m.
    pub(crate) count: u64,
}

impl Buckets {
    /// Returns the time at which the bucket with index `at` stops counting, in microseconds since the Unix epoch.
    fn expires_us(self, at: u64) -> u64 {
        (at + self.count + 1) * self.width_us
    }
}

/// The buckets that are not empty. `None` is a fresh state.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct State(Option<Box<Filled>>);

#[derive(Clone, Debug)]
struct Filled {
    width_us: u64,
    /// The index of each bucket and its units, oldest first. Never empty.
    buckets: VecDeque<(u64, u32)>,
    /// The sum of the units of all buckets.
    total: u64,
    /// The number of the oldest buckets that have expired, and their units. Set when the state is
    /// settled, and not stored.
    expired: usize,
    expired_units: u64,
}

impl PartialEq for Filled {
    fn eq(&self, other: &Self) -> bool {
        self.width_us == other.width_us && self.buckets == other.buckets
    }
}

impl State {
    pub(crate) fn settle(&mut self, layout: Buckets, now_us: u64) -> (Self, bool) {
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
        (filled.expired, filled.expired_units) =
            expired.fold((0, 0), |(count, units), (_, more)| (count + 1, units + u64::from(*more)));
        (Self(self.0.take()), false)
    }

    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn used(&self) -> u64 {
        self.0.as_ref().map_or(0, |filled| filled.used())
    }

    pub(crate) fn fits(&self, limit: u64, cost: u64) -> bool {
        cost == 0 || self.used() + cost <= limit
    }

    pub(crate) fn charge(&mut self, layout: Buckets, now_us: u64, cost: u64) {
        let filled = self.0.get_or_insert_with(|| Box::new(Filled::new(layout)));
        filled.drop_expired();
        filled.add(now_us / layout.width_us, cost);
    }

    /// Returns units to the bucket in which they were spent. Units that are not found there are
    /// returned to older buckets, the oldest first: these expire soonest, so no interval ever holds
    /// more than n units.
    pub(crate) fn refund(&mut self, spent_us: u64, cost: u64) {
        let Some(filled) = &mut self.0 else {
            return;
        };
        filled.drop_expired();
        let spent_at = spent_us / filled.width_us;
        let there = filled.buckets.iter().find(|(at, _)| *at == spent_at).map_or(0, |(_, units)| u64::from(*units));
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
    }

    pub(crate) fn words(&self, quota: &Quota, layout: Buckets, now_us: u64, denied: Ask) -> Words {
        let Some(filled) = self.0.as_ref().filter(|filled| filled.used() > 0) else {
            return [0; 4];
        };
        let used = filled.used();
        // Returns the time until `units` units have expired.
        let until = |units: u64| {
            let mut expired = 0;
            let last = filled.buckets.iter().skip(filled.expired).find(|(_, more)| {
                expired += u64::from(*more);
                expired >= units
            });
            last.map_or(0, |(at, _)| layout.expires_us(*at) - now_us)
        };
        let surplus = (used + 1).saturating_sub(quota.amount()).max(1);
        let lacking = (used + denied.cost).saturating_sub(denied.limit(quota.amount()));
        let retry_us = if denied.cost > 0 { until(lacking) } else { 0 };
        [used, retry_us, layout.expires_us(filled.newest()) - now_us, until(surplus)]
    }

    pub(crate) fn fresh_at(&self, layout: Buckets) -> u64 {
        self.0.as_ref().map_or(0, |filled| Buckets { width_us: filled.width_us, ..layout }.expires_us(filled.newest()))
    }

    /// Returns the bytes that the script stores.
    #[cfg(feature = "testing")]
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let Some(filled) = &self.0 else {
            return Vec::new();
        };
        let mut bytes = super::stored::doubles(&[filled.width_us, filled.newest(), filled.total]);
        for (at, units) in &filled.buckets {
            bytes.extend((*at as u16).to_le_bytes());
            bytes.extend(units.to_le_bytes());
        }
        bytes
    }
}

impl Filled {
    fn new(layout: Buckets) -> Self {
        Self { width_us: layout.width_us, buckets: VecDeque::new(), total: 0, expired: 0, expired_units: 0 }
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
