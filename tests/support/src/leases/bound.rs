//! The bound of a token bucket over admissions whose times are known within a span.

/// An admitted check: it was decided at some time between these two, in microseconds of the
/// machine's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The time at which the check began.
    pub from_us: u64,
    /// The time at which its decision was there.
    pub to_us: u64,
    /// Tells whether the check was decided by a leased unit.
    pub is_leased: bool,
}

/// Returns by how many units admissions exceed a bucket of `burst` units that fills at
/// `per_second`: in the worst span, the admissions that certainly lie in it, less the units that it
/// may have had. Zero or less is within the bound.
#[must_use]
pub fn most_above(admissions: &[Admission], burst: u64, per_second: u64) -> i64 {
    let mut starts: Vec<u64> = admissions
        .iter()
        .map(|admission| admission.from_us)
        .collect();
    starts.sort_unstable();
    let Some(&first_us) = starts.first() else {
        return -(burst as i64);
    };
    // In millionths of a unit, so that all sums are exact.
    let accrued = |at_us: u64| ((at_us - first_us) * per_second) as i64;
    let mut spans = Spans::new(
        &starts
            .iter()
            .map(|&at_us| accrued(at_us))
            .collect::<Vec<_>>(),
    );
    let mut ends: Vec<&Admission> = admissions.iter().collect();
    ends.sort_unstable_by_key(|admission| admission.to_us);
    let mut worst = i64::MIN;
    for admission in ends {
        let until = |at_us: u64| starts.partition_point(|&start_us| start_us <= at_us);
        spans.add_to_first(until(admission.from_us), 1_000_000);
        worst = worst.max(spans.most_of_first(until(admission.to_us)) - accrued(admission.to_us));
    }
    worst.div_euclid(1_000_000) - burst as i64
}

/// A number for each start of a span, of which a prefix can be raised at once: a tree of maxima.
struct Spans {
    /// The nodes, the root at 1: the maximum below, without what was added to the nodes above.
    most: Vec<i64>,
    added: Vec<i64>,
    leaves: usize,
}

impl Spans {
    fn new(values: &[i64]) -> Self {
        let leaves = values.len().next_power_of_two();
        let mut most = vec![i64::MIN / 2; 2 * leaves];
        most[leaves..leaves + values.len()].copy_from_slice(values);
        for node in (1..leaves).rev() {
            most[node] = most[2 * node].max(most[2 * node + 1]);
        }
        Self {
            most,
            added: vec![0; 2 * leaves],
            leaves,
        }
    }

    /// Adds to the first `count` numbers.
    fn add_to_first(&mut self, count: usize, value: i64) {
        self.add(1, self.leaves, count, value);
    }

    fn add(&mut self, node: usize, width: usize, count: usize, value: i64) {
        if count == 0 {
            return;
        }
        if count >= width {
            self.most[node] += value;
            self.added[node] += value;
            return;
        }
        let half = width / 2;
        self.add(2 * node, half, count.min(half), value);
        self.add(2 * node + 1, half, count.saturating_sub(half), value);
        self.most[node] = self.most[2 * node].max(self.most[2 * node + 1]) + self.added[node];
    }

    /// Returns the greatest of the first `count` numbers.
    fn most_of_first(&self, count: usize) -> i64 {
        self.most_below(1, self.leaves, count)
    }

    fn most_below(&self, node: usize, width: usize, count: usize) -> i64 {
        if count == 0 {
            return i64::MIN / 2;
        }
        if count >= width {
            return self.most[node];
        }
        let half = width / 2;
        let first = self.most_below(2 * node, half, count.min(half));
        first.max(self.most_below(2 * node + 1, half, count.saturating_sub(half)))
            + self.added[node]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dice;

    /// Returns the same by looking at every pair of a start and an end.
    fn every_pair(admissions: &[Admission], burst: u64, per_second: u64) -> i64 {
        let mut worst = i64::MIN;
        for from_us in admissions.iter().map(|admission| admission.from_us) {
            for to_us in admissions
                .iter()
                .map(|admission| admission.to_us)
                .filter(|&to_us| to_us >= from_us)
            {
                let inside = |admission: &&Admission| {
                    admission.from_us >= from_us && admission.to_us <= to_us
                };
                let count = admissions.iter().filter(inside).count() as i64;
                worst = worst.max(count * 1_000_000 - ((to_us - from_us) * per_second) as i64);
            }
        }
        worst.div_euclid(1_000_000) - burst as i64
    }

    #[test]
    fn the_worst_span_is_that_of_every_pair() {
        for seed in 0..200 {
            let mut dice = Dice::new(seed);
            let admissions: Vec<_> = (0..1 + dice.below(40))
                .map(|_| {
                    let from_us = dice.below(100_000);
                    Admission {
                        from_us,
                        to_us: from_us + dice.below(5_000),
                        is_leased: false,
                    }
                })
                .collect();
            assert_eq!(
                most_above(&admissions, 5, 200),
                every_pair(&admissions, 5, 200),
                "seed {seed}"
            );
        }
    }

    #[test]
    fn one_admission_too_many_is_above() {
        let at = |from_us| Admission {
            from_us,
            to_us: from_us,
            is_leased: true,
        };
        let exact: Vec<_> = (0..10)
            .map(|_| at(7))
            .chain([at(100_007), at(200_007)])
            .collect();
        assert_eq!(most_above(&exact, 10, 10), 0);
        let early: Vec<_> = (0..10).map(|_| at(7)).chain([at(100_006)]).collect();
        assert_eq!(most_above(&early, 10, 10), 0, "less than a unit above");
        let above: Vec<_> = (0..11).map(|_| at(7)).collect();
        assert_eq!(most_above(&above, 10, 10), 1);
    }
}
