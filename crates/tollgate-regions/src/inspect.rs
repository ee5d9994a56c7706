//! Reads what a purse and a home have stored: for tools of operators.
//! What the numbers mean is in the heads of `scripts/purse.lua` and `scripts/home.lua`; checks never
//! read them here.

use tollgate_core::{Quota, raw::micros};

use crate::{
    rules::{Home, Level, Meter, Purse, Slot},
    wire,
};

/// The units that a region holds of one limit, as its server has stored them.
///
/// ```
/// use tollgate_regions::inspect::StoredPurse;
///
/// assert_eq!(StoredPurse::SUFFIX, "purse2");
/// assert!(StoredPurse::decode(b"something else").is_none());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct StoredPurse(Purse);

/// Holds what is used of one limit, and what regions hold of it, as its home has stored it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredHome(Home);

/// Before this time in microseconds no clock was read, and no window has so high a number. So it
/// tells the time of a bucket from the number of a window.
const FIRST_US: u64 = 10_000_000_000_000;

impl StoredPurse {
    /// The last part of the key of a purse.
    pub const SUFFIX: &str = wire::PURSE;

    /// Reads the value of a key. `None` when it is no purse.
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<Self> {
        wire::purse_of(&numbers(value)?).map(Self)
    }

    /// Returns the units that may be spent at a time of the region's server, in microseconds since
    /// the Unix epoch.
    #[must_use]
    pub fn free(&self, now_us: u64) -> u64 {
        self.alive(now_us).map(|slot| slot.free).sum()
    }

    /// Returns the units that processes hold, or have spent and not yet reported.
    #[must_use]
    pub fn leased(&self, now_us: u64) -> u64 {
        self.alive(now_us).map(|slot| slot.leased).sum()
    }

    /// Returns the units that were spent, and not yet reported to the home.
    #[must_use]
    pub fn unreported(&self, now_us: u64) -> u64 {
        self.alive(now_us).map(|slot| slot.spent).sum()
    }

    fn alive(&self, now_us: u64) -> impl Iterator<Item = &Slot> {
        let slots = self.0.slots.iter();
        slots.filter(move |slot| now_us < slot.until_us)
    }

    /// Returns the demand of the region as it was estimated last, in units of a second.
    #[must_use]
    pub fn demand(&self) -> f64 {
        self.0.pace.rate * 1_000_000.0
    }

    /// Returns whether a call of the home is under way, or was lost.
    #[must_use]
    pub fn awaits_units(&self) -> bool {
        self.0.since_us > 0
    }
}

impl StoredHome {
    /// The last part of the key of a limit at its home.
    pub const SUFFIX: &str = wire::HOME;

    /// Reads the value of a key. `None` when it is no home.
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<Self> {
        wire::home_of(&numbers(value)?).map(Self)
    }

    /// Returns the units that are spent at a time of the home's server, in microseconds since the
    /// Unix epoch, without those that regions hold. Without its quota, what has drained from a
    /// bucket since the last call counts as spent.
    #[must_use]
    pub fn spent(&self, now_us: u64, quota: Option<&Quota>) -> u64 {
        let mut level = self.0.level;
        if level.period_us == 0 {
            return 0;
        }
        let meter = meter(&level, quota);
        if let Some(meter) = meter {
            level.settle(meter, now_us);
        }
        match meter {
            Some(Meter::Window { .. }) => level.used,
            _ => level.used.div_ceil(level.period_us),
        }
    }

    /// Returns the units that regions may hold, or have spent and not reported.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        self.0.outstanding()
    }

    /// Returns the number of regions that have called in the last generations.
    #[must_use]
    pub fn regions(&self) -> usize {
        let mut regions: Vec<_> = self.0.ledger.0.iter().map(|entry| entry.region).collect();
        regions.sort_unstable();
        regions.dedup();
        regions.len()
    }
}

/// Returns the algorithm of a level. `None` for a bucket whose rate is not known.
fn meter(level: &Level, quota: Option<&Quota>) -> Option<Meter> {
    let period_us = level.period_us;
    if level.at < FIRST_US {
        return Some(Meter::Window { period_us });
    }
    let quota = quota?;
    // The stored period is in lowest terms.
    let whole = micros(quota.period());
    let common = whole / period_us.min(whole);
    let is_same = common * period_us == whole && quota.amount().is_multiple_of(common);
    is_same.then(|| Meter::Bucket {
        amount: quota.amount() / common,
        period_us,
    })
}

fn numbers(value: &[u8]) -> Option<Vec<f64>> {
    let (words, []) = value.as_chunks() else {
        return None;
    };
    Some(words.iter().map(|word| f64::from_le_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn home(at: u64, used: u64, period_us: u64) -> StoredHome {
        StoredHome(Home {
            level: Level {
                used,
                at,
                period_us,
            },
            ..Home::default()
        })
    }

    #[test]
    fn a_bucket_drains_by_its_quota_and_a_window_ends() {
        let now_us = 1_700_000_000_000_000;
        let quota = Quota::per_second(1_000);
        // A millisecond for each unit.
        let bucket = home(now_us, 500_000, 1_000);
        assert_eq!(bucket.spent(now_us, Some(&quota)), 500);
        assert_eq!(bucket.spent(now_us + 100_000, Some(&quota)), 400);
        assert_eq!(bucket.spent(now_us + 100_000, None), 500);
        let other = Quota::new(7, Duration::from_millis(3));
        assert_eq!(bucket.spent(now_us + 100_000, Some(&other)), 500);
        let window = home(now_us / 10_000_000, 70, 10_000_000);
        assert_eq!(window.spent(now_us, None), 70);
        assert_eq!(window.spent(now_us + 10_000_000, None), 0);
        assert_eq!(home(0, 0, 0).spent(now_us, None), 0);
    }
}
