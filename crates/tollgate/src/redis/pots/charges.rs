use std::collections::VecDeque;

/// Holds the times at which the server has charged units that were spent here, by its clock.
///
/// Units are charged with the next report, or at the end of their generation. A refund has to name that time: a log and
/// sliding buckets return units that were charged at it, and a window those that were charged in it.
#[derive(Debug, Default)]
pub(super) struct Charges {
    /// The latest times, in the order of the reports.
    times_us: VecDeque<u64>,
    /// The latest time that was forgotten.
    forgotten_us: u64,
}

/// The number of times that are remembered.
const MOST: usize = 16;

impl Charges {
    /// Adds a time at which units were charged.
    pub(super) fn add(&mut self, charged_us: u64) {
        if self.times_us.len() == MOST {
            self.forgotten_us = self.times_us.pop_front().map_or(0, |oldest_us| self.forgotten_us.max(oldest_us));
        }
        self.times_us.push_back(charged_us);
    }

    /// Returns the time at which a unit was charged that was spent at `spent_us`: the first one after. `None` when it was not
    /// charged yet, or when nobody remembers.
    pub(super) fn of(&self, spent_us: u64) -> Option<u64> {
        let later = self.times_us.iter().copied().filter(|&charged_us| charged_us >= spent_us);
        later.min().filter(|_| spent_us > self.forgotten_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_was_charged_at_the_first_time_after_it_was_spent() {
        let mut charges = Charges::default();
        assert_eq!(charges.of(5), None);
        [30, 10, 20].into_iter().for_each(|at_us| charges.add(at_us));
        assert_eq!(
            [5, 10, 11, 25, 31].map(|spent_us| charges.of(spent_us)),
            [Some(10), Some(10), Some(20), Some(30), None]
        );
    }

    #[test]
    fn a_time_that_was_forgotten_is_not_replaced_by_a_later_one() {
        let mut charges = Charges::default();
        (1..=MOST as u64 + 1).for_each(|at| charges.add(at * 10));
        assert_eq!([9, 10, 11].map(|spent_us| charges.of(spent_us)), [None, None, Some(20)]);
    }
}
