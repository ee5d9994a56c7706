use std::{num::NonZeroU32, time::Duration};

/// Follows the counts of a server: up at once, down when a smaller count lasts.
///
/// A server that restarts without data counts from 1 again, until each process has called. An outage in that time would
/// be decided with too large shares.
#[derive(Debug, Default)]
pub(super) struct Window {
    current: Option<NonZeroU32>,
    /// Since when each count was smaller than the current one, and the greatest of them.
    smaller: Option<(Duration, NonZeroU32)>,
}

/// The time after which a smaller count is believed.
pub(super) const HOLD: Duration = Duration::from_secs(5);

impl Window {
    /// Takes a count that came at `now`, and returns the count to use.
    pub(super) fn counted(&mut self, count: NonZeroU32, now: Duration) -> NonZeroU32 {
        let current = match self.current {
            Some(current) if count < current => current,
            Some(_) | None => {
                (self.current, self.smaller) = (Some(count), None);
                return count;
            }
        };
        let (since, most) = self.smaller.map_or((now, count), |(since, most)| (since, most.max(count)));
        if now.saturating_sub(since) < HOLD {
            self.smaller = Some((since, most));
            return current;
        }
        (self.current, self.smaller) = (Some(most), None);
        most
    }

    /// Notes that a count failed. Smaller counts from before it are not believed.
    pub(super) fn failed(&mut self) {
        self.smaller = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(window: &mut Window, counts: &[(u64, u32)]) -> Vec<u32> {
        let count = |number| NonZeroU32::new(number).expect("not zero");
        counts.iter().map(|&(ms, number)| window.counted(count(number), Duration::from_millis(ms)).get()).collect()
    }

    #[test]
    fn a_greater_count_is_used_at_once_and_a_smaller_one_when_it_lasts() {
        let mut window = Window::default();
        assert_eq!(counted(&mut window, &[(0, 1), (100, 8), (200, 8), (2_000, 3), (4_000, 3)]), [1, 8, 8, 8, 8]);
        assert_eq!(counted(&mut window, &[(6_999, 3), (7_000, 3), (7_001, 2)]), [8, 3, 3]);
    }

    #[test]
    fn a_server_that_restarted_without_data_does_not_shrink_the_count() {
        let mut window = Window::default();
        assert_eq!(counted(&mut window, &[(0, 8), (10, 1), (500, 4), (2_400, 8), (9_000, 8)]), [8, 8, 8, 8, 8]);
        // The greatest of the smaller counts is believed, not the last one.
        assert_eq!(counted(&mut window, &[(10_000, 1), (12_000, 6), (15_000, 5)]), [8, 8, 6]);
    }

    #[test]
    fn smaller_counts_on_both_sides_of_an_outage_do_not_add_up() {
        let mut window = Window::default();
        assert_eq!(counted(&mut window, &[(0, 8), (1_000, 1)]), [8, 8]);
        window.failed();
        assert_eq!(counted(&mut window, &[(60_000, 1), (62_000, 8)]), [8, 8]);
    }
}
