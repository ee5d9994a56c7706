//! The sum of what the purses of this region held when this process saw them last: for a gauge.
//! What may be spent is known by the server alone, in `scripts/purse.lua`.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;
use tollgate_core::raw::Lock;

/// The most purses that are noted. Those beyond are left out of the sum.
const MOST: usize = 4_096;

/// Notes what each purse held, until that has lapsed.
#[derive(Debug, Default)]
pub(crate) struct Held(Lock<HashMap<u64, Noted>>);

#[derive(Debug)]
struct Noted {
    units: u64,
    until: Instant,
}

impl Held {
    /// Notes the units of a purse, which is named by a hash. They lapse within `life`.
    pub(crate) fn note(&self, purse: u64, units: u64, life: Duration) {
        let mut seen = self.0.lock();
        if units == 0 {
            seen.remove(&purse);
        } else if seen.len() < MOST || seen.contains_key(&purse) {
            let until = Instant::now() + life;
            seen.insert(purse, Noted { units, until });
        }
    }

    /// Returns the sum of all purses, without those that have lapsed.
    pub(crate) fn sum(&self) -> u64 {
        let (mut seen, now) = (self.0.lock(), Instant::now());
        seen.retain(|_, purse| now < purse.until);
        seen.values().map(|purse| purse.units).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn the_sum_has_the_last_units_of_each_purse_until_they_lapse() {
        let (held, life) = (Held::default(), Duration::from_secs(10));
        for (purse, units) in [(1, 30), (2, 5), (1, 20), (3, 7), (3, 0)] {
            held.note(purse, units, life);
        }
        assert_eq!(held.sum(), 25);
        advance(Duration::from_secs(9)).await;
        held.note(2, 4, life);
        advance(Duration::from_secs(1)).await;
        assert_eq!(held.sum(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn purses_beyond_the_bound_are_left_out() {
        let (held, life) = (Held::default(), Duration::from_secs(10));
        (0..MOST as u64 + 9).for_each(|purse| held.note(purse, 1, life));
        assert_eq!(held.sum(), MOST as u64);
        held.note(0, 3, life);
        assert_eq!(held.sum(), MOST as u64 + 2);
    }
}
