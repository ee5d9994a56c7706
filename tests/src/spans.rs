//! Compares what a running load was admitted with the bound of a bucket, over any span of time.
//! The bounds of the algorithms in virtual time are those of the laws, in `tests/laws`.

use std::time::Duration;

/// An admitted check: when it was made, and when it was answered. It was decided between both.
pub type Admitted = (Duration, Duration);

/// Returns how many units were admitted beyond the bound in the worst span: beyond the `burst`, and
/// `rate` units in each second. Each check is of one unit.
///
/// A span begins with a check, and has those alone that were made and answered in it. One of fifty
/// checks begins a span: others would show little more.
///
/// ```
/// use std::time::Duration;
/// use tollgate_tests::spans;
///
/// let at = |millis| (Duration::from_millis(millis), Duration::from_millis(millis));
/// let mut admitted = vec![at(0); 10];
/// admitted.extend([at(500), at(500), at(500), at(1_000)]);
/// assert_eq!(spans::above(admitted.clone(), 4, 10), 0);
/// admitted.push(at(500));
/// assert_eq!(spans::above(admitted, 4, 10), 1, "of 14 within 500 ms, 12 and one more may be");
/// ```
#[must_use]
pub fn above(mut admitted: Vec<Admitted>, rate: u64, burst: u64) -> u64 {
    admitted.sort_unstable();
    let mut worst = 0;
    for first in (0..admitted.len()).step_by(50) {
        let begin = admitted[first].0;
        let mut ends: Vec<_> = admitted[first..].iter().map(|it| it.1 - begin).collect();
        ends.sort_unstable();
        for (count, span) in (1..).zip(ends) {
            // The clock of the server may be faster by a thousandth, and one unit is on its way.
            let accrued = span.as_secs_f64() * rate as f64 * 1.001;
            let most = burst + accrued as u64 + 1;
            worst = worst.max(u64::saturating_sub(count, most));
        }
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_counts_the_checks_that_were_made_and_answered_in_it() {
        let burst = vec![(Duration::ZERO, Duration::ZERO); 1_010];
        assert_eq!(above(burst, 1_000, 1_000), 9, "one may have accrued");
        let second = Duration::from_secs(1);
        let mut late = vec![(Duration::ZERO, second); 1_010];
        assert_eq!(above(late.clone(), 1_000, 1_000), 0);
        late.extend(vec![(second, second); 1_010]);
        assert_eq!(
            above(late, 1_000, 1_000),
            19,
            "2 000 may have been, and one"
        );
    }
}
