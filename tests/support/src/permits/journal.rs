//! The times at which work began and ended, in any process of this machine.

use rustix::time::{ClockId, clock_gettime};

/// A piece of work: the time of its first step and of its last one, in microseconds of the
/// machine's monotonic clock. A wrong wall clock does not change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The time of the first step.
    pub from_us: u64,
    /// The time of the last step.
    pub to_us: u64,
}

/// Returns the time of the machine's monotonic clock, in microseconds.
#[must_use]
pub fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1_000
}

/// Returns how many pieces of work were in progress at the same time, at most.
#[must_use]
pub fn most_at_once(spans: &[Span]) -> usize {
    spans
        .iter()
        .map(|span| at(spans, span.from_us))
        .max()
        .unwrap_or_default()
}

/// Returns the times at which work began while `limit` other pieces, or more, were in progress.
pub fn begun_above(spans: &[Span], limit: usize) -> impl Iterator<Item = u64> {
    spans
        .iter()
        .map(|span| span.from_us)
        .filter(move |&from_us| at(spans, from_us) > limit)
}

fn at(spans: &[Span], time_us: u64) -> usize {
    spans
        .iter()
        .filter(|span| (span.from_us..=span.to_us).contains(&time_us))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_overlap_are_counted() {
        let spans = [(1, 5), (2, 3), (5, 9), (6, 7), (7, 8)]
            .map(|(from_us, to_us)| Span { from_us, to_us });
        assert_eq!((most_at_once(&spans), most_at_once(&[])), (3, 0));
        assert_eq!(begun_above(&spans, 2).collect::<Vec<_>>(), [7]);
    }
}
