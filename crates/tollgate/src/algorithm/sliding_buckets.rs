//! The window cut into m sub-windows, each with a counter: the one of now and the m before it count
//! in full, so no interval of W ever holds more than n.

use std::collections::VecDeque;

use super::level::Words;
use crate::Quota;

/// How a window is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buckets {
    /// The width of a bucket in microseconds, ⌈W/m⌉.
    pub(crate) width_us: u64,
    /// How many buckets before that of now count: m.
    pub(crate) count: u64,
}

impl Buckets {
    /// When the bucket at `at` stops to count.
    fn leaves_us(self, at: u64) -> u64 {
        (at + self.count + 1) * self.width_us
    }
}

/// The buckets that are not empty; none is fresh.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct State(Option<Box<Filled>>);

#[derive(Clone, Debug)]
struct Filled {
    width_us: u64,
    /// Which bucket, and the units in it; oldest first, never empty.
    buckets: VecDeque<(u64, u32)>,
    /// The sum over the buckets.
    total: u64,
    /// Seen when the state was settled, no part of what is stored: how many of the oldest buckets
    /// have left, and what stood in them.
    gone: usize,
    gone_units: u64,
}

impl PartialEq for Filled {
    fn eq(&self, other: &Self) -> bool {
        self.width_us == other.width_us && self.buckets == other.buckets
    }
}

impl State {
    pub(crate) fn settle(&mut self, cut: Buckets, now_us: u64) -> (Self, bool) {
        let Some(filled) = &mut self.0 else {
            return (Self(None), false);
        };
        let at = now_us / cut.width_us;
        if filled.width_us != cut.width_us || filled.newest() > at + cut.count {
            let mended = filled.mended(cut, now_us);
            let is_mended = mended.is_some();
            return (Self(mended.map(Box::new)), is_mended);
        }
        let first = filled.newest().max(at).saturating_sub(cut.count);
        let gone = filled.buckets.iter().take_while(|(at, _)| *at < first);
        (filled.gone, filled.gone_units) =
            gone.fold((0, 0), |(count, units), (_, more)| (count + 1, units + u64::from(*more)));
        (Self(self.0.take()), false)
    }

    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    fn used(&self) -> u64 {
        self.0.as_ref().map_or(0, |filled| filled.used())
    }

    pub(crate) fn fits(&self, quota: &Quota, cost: u64) -> bool {
        cost == 0 || self.used() + cost <= quota.amount_u64()
    }

    pub(crate) fn charge(&mut self, cut: Buckets, now_us: u64, cost: u64) {
        let filled = self.0.get_or_insert_with(|| Box::new(Filled::new(cut)));
        filled.drop_gone();
        filled.add(now_us / cut.width_us, cost);
    }

    /// Units come back to the bucket in which they were spent; what is not found there, to older
    /// ones, the oldest first. (Those leave soonest, so no interval ever holds more than n.)
    pub(crate) fn refund(&mut self, spent_us: u64, cost: u64) {
        let Some(filled) = &mut self.0 else {
            return;
        };
        filled.drop_gone();
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

    pub(crate) fn words(&self, quota: &Quota, cut: Buckets, now_us: u64, denied: u64) -> Words {
        let Some(filled) = self.0.as_ref().filter(|filled| filled.used() > 0) else {
            return [0; 4];
        };
        let used = filled.used();
        // Until so many units have left.
        let until = |units: u64| {
            let mut left = 0;
            let leaves = filled.buckets.iter().skip(filled.gone).find(|(_, more)| {
                left += u64::from(*more);
                left >= units
            });
            leaves.map_or(0, |(at, _)| cut.leaves_us(*at) - now_us)
        };
        let surplus = (used + 1).saturating_sub(quota.amount_u64()).max(1);
        let retry_us = if denied > 0 { until((used + denied).saturating_sub(quota.amount_u64())) } else { 0 };
        [used, retry_us, cut.leaves_us(filled.newest()) - now_us, until(surplus)]
    }

    pub(crate) fn fresh_at(&self, cut: Buckets) -> u64 {
        self.0.as_ref().map_or(0, |filled| Buckets { width_us: filled.width_us, ..cut }.leaves_us(filled.newest()))
    }

    /// The bytes that the script stores.
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
    fn new(cut: Buckets) -> Self {
        Self { width_us: cut.width_us, buckets: VecDeque::new(), total: 0, gone: 0, gone_units: 0 }
    }

    fn newest(&self) -> u64 {
        self.buckets.back().map_or(0, |(at, _)| *at)
    }

    fn used(&self) -> u64 {
        self.total - self.gone_units
    }

    fn drop_gone(&mut self) {
        self.buckets.drain(..self.gone);
        self.total -= self.gone_units;
        (self.gone, self.gone_units) = (0, 0);
    }

    /// Into the bucket at `at`, or the newest one when the clock went back.
    fn add(&mut self, at: u64, units: u64) {
        self.total += units;
        match self.buckets.back_mut() {
            Some((newest, sum)) if *newest >= at => *sum += units as u32,
            _ => self.buckets.push_back((at, units as u32)),
        }
    }

    /// What may still be inside when the window is cut another way, or when the buckets lie
    /// impossibly far ahead: each as late as its units can have been spent, at `now_us` at the
    /// latest.
    fn mended(&self, cut: Buckets, now_us: u64) -> Option<Self> {
        let first = (now_us / cut.width_us).saturating_sub(cut.count);
        let mut mended = Self::new(cut);
        for (at, units) in &self.buckets {
            let last_us = ((at + 1) * self.width_us - 1).min(now_us);
            if last_us / cut.width_us >= first {
                mended.add(last_us / cut.width_us, u64::from(*units));
            }
        }
        (mended.total > 0).then_some(mended)
    }
}
