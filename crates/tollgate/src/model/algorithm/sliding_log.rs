//! The time of every admitted unit. No interval of length W ever holds more than n units, and no
//! request is denied that would fit.

use std::{collections::VecDeque, sync::Arc};

use super::numbers::Words;
use crate::{Quota, model::cost::Ask};

/// The admitted units. `None` is a fresh state.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct State(Option<Box<Log>>);

#[derive(Clone, Debug)]
struct Log {
    /// The time and the tag of each unit, newest first. Never empty.
    entries: VecDeque<(u64, Option<Arc<[u8]>>)>,
    /// The number of entries that still count. Set when the state is settled, and not stored.
    used: usize,
}

impl PartialEq for Log {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl State {
    pub(crate) fn settle(&mut self, quota: &Quota, now_us: u64) -> (Self, bool) {
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

    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn used(&self) -> u64 {
        self.0.as_ref().map_or(0, |log| log.used as u64)
    }

    pub(crate) fn fits(&self, limit: u64, cost: u64) -> bool {
        cost == 0 || self.used() + cost <= limit
    }

    /// Adds one entry for each unit at `now_us`, or at the time of the newest entry when the clock went back.
    pub(crate) fn charge(&mut self, now_us: u64, cost: u64, tag: &[u8]) {
        let log = self.0.get_or_insert_with(|| Box::new(Log { entries: VecDeque::new(), used: 0 }));
        log.entries.truncate(log.used);
        let at = log.newest().max(now_us);
        let tag: Option<Arc<[u8]>> = (!tag.is_empty()).then(|| tag.into());
        for _ in 0..cost {
            log.entries.push_front((at, tag.clone()));
        }
        log.used = log.entries.len();
    }

    /// Removes units that were spent at `spent_us`. When there are too few, removes older ones, the
    /// oldest first: these expire soonest, so no interval ever holds more than n units.
    pub(crate) fn refund(&mut self, spent_us: u64, cost: u64) {
        let Some(log) = &mut self.0 else {
            return;
        };
        log.entries.truncate(log.used);
        let first = log.entries.partition_point(|(at, _)| *at > spent_us);
        let exact = log.entries.range(first..).take(cost as usize).take_while(|(at, _)| *at == spent_us).count();
        log.entries.drain(first..first + exact);
        let older = (log.entries.len() - first).min(cost as usize - exact);
        log.entries.truncate(log.entries.len() - older);
        log.used = log.entries.len();
        if log.entries.is_empty() {
            self.0 = None;
        }
    }

    pub(crate) fn words(&self, quota: &Quota, now_us: u64, denied: Ask) -> Words {
        let Some(log) = self.0.as_ref().filter(|log| log.used > 0) else {
            return [0; 4];
        };
        let expires = |at: usize| log.entries[at].0 + quota.period_us() - now_us;
        let (used, amount) = (log.used, quota.amount() as usize);
        // The newest entry that has to expire, counted from the newest one.
        let last = denied.limit(quota.amount()).saturating_sub(denied.cost) as usize;
        let retry_us = if denied.cost > 0 { expires(last.min(used - 1)) } else { 0 };
        [used as u64, retry_us, expires(0), expires(used.min(amount) - 1)]
    }

    pub(crate) fn fresh_at(&self, quota: &Quota) -> u64 {
        self.0.as_ref().map_or(0, |log| log.newest() + quota.period_us())
    }

    /// Returns the entries that count at `now_us`, newest first.
    pub(crate) fn entries(&self, period_us: u64, now_us: u64) -> impl Iterator<Item = (u64, &[u8])> {
        let entries = self.0.iter().flat_map(|log| &log.entries);
        entries
            .take_while(move |(at, _)| at + period_us > now_us)
            .map(|(at, tag)| (*at, tag.as_deref().unwrap_or_default()))
    }

    /// Returns the list that the script stores.
    #[cfg(feature = "testing")]
    pub(crate) fn to_list(&self) -> Vec<Vec<u8>> {
        let entries = self.0.iter().flat_map(|log| &log.entries);
        entries.map(|(at, tag)| [&(*at as f64).to_le_bytes(), tag.as_deref().unwrap_or_default()].concat()).collect()
    }
}

impl Log {
    fn newest(&self) -> u64 {
        self.entries.front().map_or(0, |(at, _)| *at)
    }

    fn inside(&self, quota: &Quota, now_us: u64) -> usize {
        self.entries.partition_point(|(at, _)| at + quota.period_us() > now_us)
    }
}
