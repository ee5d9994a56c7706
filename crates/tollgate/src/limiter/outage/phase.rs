use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use crate::clock::micros;

/// Finds the begin and the end of an outage.
///
/// Checks are answered out of order, so an answer counts with the time at which its check began. An outage begins with a
/// failed check that began after the last outage ended. It ends with a check that the store decided and that began
/// [`QUIET`] after the last failed one began. So late answers change nothing, and a store that fails some checks of many
/// is one outage, not one for each.
#[derive(Debug)]
pub(crate) struct Phase {
    /// Times are counted from here.
    base: Instant,
    /// In an outage: [`AWAY`] and the time of the last failed check. Otherwise the time of the check that ended the last
    /// outage, 0 before the first one.
    word: AtomicU64,
    /// The time of the check that began the outage.
    began_us: AtomicU64,
}

/// The time without a failed check after which an outage is over.
const QUIET: Duration = Duration::from_secs(1);

const QUIET_US: u64 = QUIET.as_micros() as u64;

/// The time that a failed check is later than the last stored one before it is stored. Most checks of an outage store
/// nothing.
const STEP_US: u64 = QUIET_US / 20;

const AWAY: u64 = 1 << 63;

impl Phase {
    pub(crate) fn new(base: Instant) -> Self {
        Self { base, word: AtomicU64::new(0), began_us: AtomicU64::new(0) }
    }

    #[inline]
    pub(crate) fn is_away(&self) -> bool {
        self.word.load(Ordering::Relaxed) & AWAY != 0
    }

    /// Records a failed check that began at `start`. Returns whether an outage begins with it.
    pub(crate) fn failed(&self, start: Instant) -> bool {
        let at = self.time(start);
        let later = |word: u64| match word & AWAY {
            0 => (at > word).then_some(AWAY | at),
            _ => (at > (word & !AWAY) + STEP_US).then_some(AWAY | at),
        };
        if later(self.word.load(Ordering::Relaxed)).is_none() {
            return false;
        }
        let begins =
            self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later).is_ok_and(|word| word & AWAY == 0);
        if begins {
            self.began_us.store(at, Ordering::Relaxed);
        }
        begins
    }

    /// Records a decision of the store on a check that began at `start`. When an outage ends with it, returns how long it
    /// lasted.
    #[cold]
    pub(crate) fn decided(&self, start: Instant) -> Option<Duration> {
        let at = self.time(start);
        let over = |word: u64| (word & AWAY != 0 && at >= (word & !AWAY) + QUIET_US).then_some(at);
        self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, over).ok()?;
        Some(Duration::from_micros(at.saturating_sub(self.began_us.load(Ordering::Relaxed))))
    }

    /// Returns a time in microseconds, never 0.
    fn time(&self, at: Instant) -> u64 {
        (micros(at.saturating_duration_since(self.base)) + 1) & !AWAY
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    struct Times(Phase, Instant);

    impl Times {
        fn new() -> Self {
            let base = Instant::now();
            Self(Phase::new(base), base)
        }

        fn failed(&self, ms: u64) -> bool {
            self.0.failed(self.1 + Duration::from_millis(ms))
        }

        fn decided(&self, ms: u64) -> Option<u64> {
            self.0.decided(self.1 + Duration::from_millis(ms)).map(|lasted| lasted.as_millis() as u64)
        }
    }

    #[test]
    fn an_outage_begins_once_and_ends_once() {
        let times = Times::new();
        assert_eq!(times.decided(0), None, "there is no outage to end");
        assert!(times.failed(1) && times.0.is_away());
        assert!((2..500).all(|ms| !times.failed(ms)));
        assert_eq!(times.decided(1_600), Some(1_599));
        assert!(!times.0.is_away());
        assert_eq!(times.decided(1_700), None);
        assert!(times.failed(1_800));
    }

    #[test]
    fn an_answer_to_a_check_from_before_the_outage_is_no_end() {
        let times = Times::new();
        assert!(times.failed(5_000));
        for sent in [0, 4_999, 5_000, 5_999] {
            assert_eq!(times.decided(sent), None, "{sent} ms");
        }
        assert_eq!(times.decided(6_000), Some(1_000));
    }

    #[test]
    fn a_check_from_before_the_end_that_fails_later_begins_no_outage() {
        let times = Times::new();
        assert!(times.failed(10));
        assert!(times.decided(2_000).is_some());
        for sent in [0, 11, 1_999, 2_000] {
            assert!(!times.failed(sent), "{sent} ms");
        }
        assert!(times.failed(2_001));
    }

    #[test]
    fn a_store_that_fails_one_check_of_ten_is_in_one_outage() {
        let times = Times::new();
        let begins = (0..10_000).filter(|ms| ms % 10 == 0 && times.failed(*ms)).count();
        let ends = (0..10_000).filter(|ms| ms % 10 != 0 && times.decided(*ms).is_some()).count();
        assert_eq!((begins, ends), (1, 0));
        assert!(times.decided(10_990).is_some());
    }

    #[test]
    fn one_of_many_threads_begins_the_outage_and_one_ends_it() {
        for _ in 0..100 {
            let times = Times::new();
            let count = |note: &(dyn Fn() -> bool + Sync)| {
                thread::scope(|scope| {
                    let threads: Vec<_> = (0..4).map(|_| scope.spawn(note)).collect();
                    threads.into_iter().filter_map(|thread| thread.join().ok()).filter(|noted| *noted).count()
                })
            };
            assert_eq!(count(&|| times.failed(1)), 1);
            assert_eq!(count(&|| times.decided(5_000).is_some()), 1);
        }
    }
}
