//! Counts over time, in a bounded number of bins.
//! They are drawn in `plot.rs`. Sums over the whole time are in `tally.rs`.

/// The most bins. When the time is longer, neighbours are joined.
const BINS: usize = 240;

/// The width of a bin at first: a second, the resolution of most logs.
const WIDTH_US: u64 = 1_000_000;

/// Counts requests and denials over time.
#[derive(Clone, Debug)]
pub(super) struct BinnedCounts {
    start_us: u64,
    width_us: u64,
    bins: Vec<Bin>,
}

/// The counts of one stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bin {
    pub(super) requests: u64,
    pub(super) denied: u64,
}

impl BinnedCounts {
    /// Creates a series that begins at `start_us`, rounded down to a whole second.
    pub(super) fn new(start_us: u64) -> Self {
        Self {
            start_us: start_us - start_us % WIDTH_US,
            width_us: WIDTH_US,
            bins: Vec::new(),
        }
    }

    /// Counts a request.
    pub(super) fn add(&mut self, at_us: u64, is_denied: bool) {
        let after_us = at_us.saturating_sub(self.start_us);
        while after_us / self.width_us >= BINS as u64 {
            self.bins = self
                .bins
                .chunks(2)
                .map(|pair| pair.iter().copied().fold(Bin::default(), Bin::plus))
                .collect();
            self.width_us *= 2;
        }
        // Below the number of bins.
        let at = (after_us / self.width_us) as usize;
        if self.bins.len() <= at {
            self.bins.resize(at + 1, Bin::default());
        }
        self.bins[at] = self.bins[at].plus(Bin {
            requests: 1,
            denied: is_denied.into(),
        });
    }

    /// Returns the width of a bin in microseconds.
    pub(super) fn width_us(&self) -> u64 {
        self.width_us
    }

    /// Returns the bins, from the start on.
    pub(super) fn bins(&self) -> &[Bin] {
        &self.bins
    }
}

impl Bin {
    fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            denied: self.denied + other.denied,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_joined_when_the_time_is_long() {
        let mut series = BinnedCounts::new(5_500_000);
        for second in 5..1_005 {
            series.add(second * 1_000_000, second % 2 == 0);
        }
        assert_eq!((series.width_us(), series.bins().len()), (8_000_000, 125));
        assert!(series.bins().iter().all(|bin| *bin
            == Bin {
                requests: 8,
                denied: 4
            }));
    }
}
