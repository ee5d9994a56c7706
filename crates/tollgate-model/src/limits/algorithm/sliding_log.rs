//! The time of every admitted unit. No interval of length W ever holds more than n units, and no
//! request is denied that would fit.
//! What callers see of an entry is in `entry.rs`.

use std::{collections::VecDeque, sync::Arc};

use super::{
    Adjust, Decide, Meter, Refund, StoredState,
    debt::MOST_BURSTS,
    level::Reading,
    stored::{self, whole},
};
use crate::{Policy, Quota, charge::Ask};

/// The most units that are stored beyond the amount. Each is an entry of a list.
const MOST_OWED: u64 = 100_000;

/// The admitted units. `None` is a fresh state.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SlidingLogState(Option<Box<Log>>);

#[derive(Clone, Debug)]
struct Log {
    /// The time and the tag of each unit, newest first. Never empty.
    entries: VecDeque<(u64, Option<Arc<[u8]>>)>,
    /// The number of entries that still count. Set when the state is advanced, and not stored.
    used: usize,
}

impl PartialEq for Log {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl SlidingLogState {
    /// Returns the entries that count at `now_us`, newest first.
    pub(crate) fn entries(
        &self,
        period_us: u64,
        now_us: u64,
    ) -> impl Iterator<Item = (u64, &[u8])> {
        let entries = self.0.iter().flat_map(|log| &log.entries);
        entries
            .take_while(move |(at, _)| at + period_us > now_us)
            .map(|(at, tag)| (*at, tag.as_deref().unwrap_or_default()))
    }
}

impl Decide for SlidingLogState {
    #[inline]
    fn advance(
        &mut self,
        policy: &Policy,
        _stored_interval: Option<f64>,
        now_us: u64,
    ) -> (Self, bool) {
        let quota = policy.quota_ref();
        let Some(log) = &mut self.0 else {
            return (Self(None), false);
        };
        if log.newest() > now_us + quota.period_us() {
            // Impossibly far ahead: the clock went back by more than a period.
            let mut mended = log.clone();
            for (at, _) in &mut mended.entries {
                *at = now_us.min(*at);
            }
            mended.used = mended.inside(quota, now_us);
            mended.entries.truncate(mended.used);
            return (Self(Some(mended)), true);
        }
        log.used = log.inside(quota, now_us);
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

    /// Adds one entry for each unit at `now_us`, or at the time of the newest entry when the clock
    /// went back.
    #[inline]
    fn charge(&mut self, _policy: &Policy, now_us: u64, cost: u64, tag: &[u8]) {
        let log = self.0.get_or_insert_with(|| {
            Box::new(Log {
                entries: VecDeque::new(),
                used: 0,
            })
        });
        log.entries.truncate(log.used);
        let at = log.newest().max(now_us);
        let tag: Option<Arc<[u8]>> = (!tag.is_empty()).then(|| tag.into());
        for _ in 0..cost {
            log.entries.push_front((at, tag.clone()));
        }
        log.used = log.entries.len();
    }

    #[inline]
    fn reading(&self, policy: &Policy, now_us: u64, denied: Ask) -> Reading {
        let quota = policy.quota_ref();
        let Some(log) = self.0.as_ref().filter(|log| log.used > 0) else {
            return [0; 4];
        };
        let expires = |at: usize| log.entries[at].0 + quota.period_us() - now_us;
        let (used, amount) = (log.used, quota.amount() as usize);
        // The newest entry that has to expire, counted from the newest one.
        let last = denied.limit(quota.amount()).saturating_sub(denied.cost) as usize;
        let retry_us = if denied.cost > 0 {
            expires(last.min(used - 1))
        } else {
            0
        };
        [
            used as u64,
            retry_us,
            expires(0),
            expires(used.min(amount) - 1),
        ]
    }
}

impl Adjust for SlidingLogState {
    fn spent(&self) -> u64 {
        self.0.as_ref().map_or(0, |log| log.used as u64)
    }

    fn most_spent(policy: &Policy) -> u64 {
        let burst = policy.quota_ref().burst();
        (burst * MOST_BURSTS).min(burst + MOST_OWED)
    }

    /// Removes units that were spent at `spent_us`. When there are too few, removes older ones, the
    /// oldest first: these expire soonest, so no interval ever holds more than n units.
    fn refund(&mut self, refund: &Refund<'_>) -> bool {
        let (spent_us, cost) = (refund.spent_us, refund.cost);
        let Some(log) = &mut self.0 else {
            return true;
        };
        log.entries.truncate(log.used);
        let first = log.entries.partition_point(|(at, _)| *at > spent_us);
        let exact = log
            .entries
            .range(first..)
            .take(cost as usize)
            .take_while(|(at, _)| *at == spent_us)
            .count();
        log.entries.drain(first..first + exact);
        let older = (log.entries.len() - first).min(cost as usize - exact);
        log.entries.truncate(log.entries.len() - older);
        log.used = log.entries.len();
        if log.entries.is_empty() {
            self.0 = None;
        }
        true
    }
}

impl Meter for SlidingLogState {
    fn fresh_at(&self, policy: &Policy) -> u64 {
        self.0
            .as_ref()
            .map_or(0, |log| log.newest() + policy.quota_ref().period_us())
    }

    fn to_bytes(&self, _policy: &Policy, _stored_interval: Option<f64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (at, tag) in self.0.iter().flat_map(|log| &log.entries) {
            let tag = tag.as_deref().unwrap_or_default();
            bytes.push((8 + tag.len()) as u8);
            bytes.extend((*at as f64).to_le_bytes());
            bytes.extend(tag);
        }
        bytes
    }

    fn of_bytes(mut bytes: &[u8]) -> Option<(Self, f64)> {
        let mut entries = VecDeque::new();
        while let Some((&length, rest)) = bytes.split_first() {
            let (entry, rest) = rest.split_at_checked(length.into())?;
            let ([at], tag) = stored::split(entry)?;
            entries.push_back((whole(at)?, (!tag.is_empty()).then(|| tag.into())));
            bytes = rest;
        }
        let is_ordered = entries
            .iter()
            .is_sorted_by(|(one, _), (next, _)| one >= next);
        let used = entries.len();
        (is_ordered && used > 0).then(|| (Self(Some(Box::new(Log { entries, used }))), 0.0))
    }

    fn shown(&self, _stored_interval: f64) -> StoredState {
        StoredState::SlidingLog {
            units: self.spent(),
        }
    }

    fn unspend(_policy: &Policy, reading: &mut Reading, units: u64) {
        // The time to retry belongs to the last request of the batch, which was denied.
        (reading[0], reading[1]) = (reading[0].saturating_sub(units), 0);
    }
}

impl Log {
    fn newest(&self) -> u64 {
        self.entries.front().map_or(0, |(at, _)| *at)
    }

    fn inside(&self, quota: &Quota, now_us: u64) -> usize {
        self.entries
            .partition_point(|(at, _)| at + quota.period_us() > now_us)
    }
}
