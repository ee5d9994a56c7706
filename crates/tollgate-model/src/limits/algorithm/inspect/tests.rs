//! Tests what two looks at a state say about the units that were spent in between.
//! What one look says is compared with decisions in `tests/laws`.

use std::time::Duration;

use crate::{Quota, StoredState};

const SECOND: u64 = 1_000_000;

/// Returns the units that were spent until the second `at`.
fn since(before: &StoredState, after: &StoredState, at: u64, quota: Option<&Quota>) -> Option<u64> {
    after.spent_since(before, at * SECOND, quota)
}

/// Returns a bucket with one unit for each second.
fn bucket(full: u64) -> StoredState {
    StoredState::Bucket {
        full_us: full * SECOND,
        part: 0,
        pace: 1e6,
    }
}

fn window(start: u64, count: u64) -> StoredState {
    StoredState::Window {
        start_us: start * SECOND,
        count,
        period_us: 10 * SECOND,
    }
}

#[test]
fn units_of_a_bucket_count_also_when_as_many_have_flowed_back() {
    let until_102 = |before, after| since(&bucket(before), &bucket(after), 102, None);
    assert_eq!(until_102(105, 107), Some(2));
    assert_eq!(until_102(105, 105), Some(0), "nothing was spent");
    assert_eq!(until_102(105, 104), Some(0), "a unit was refunded");
    // It was full in between, so only the units count that it still lacks.
    assert_eq!(until_102(101, 107), Some(5));
}

#[test]
fn units_of_windows_count_across_their_end() {
    assert_eq!(since(&window(0, 5), &window(0, 8), 3, None), Some(3));
    assert_eq!(since(&window(0, 5), &window(10, 2), 11, None), Some(2));
    let sliding = |start, current, previous| StoredState::SlidingWindow {
        start_us: start * SECOND,
        current,
        previous,
    };
    let before = sliding(0, 5, 9);
    assert_eq!(since(&before, &sliding(0, 6, 9), 9, None), Some(1));
    // Two units more in the window that has ended, and four in the next.
    assert_eq!(since(&before, &sliding(10, 4, 7), 11, None), Some(6));
    let buckets = |units: &[(u64, u64)]| StoredState::SlidingBuckets {
        width_us: SECOND,
        buckets: units.to_vec(),
    };
    let (before, after) = (buckets(&[(1, 5), (2, 1)]), buckets(&[(2, 4), (3, 2)]));
    assert_eq!(since(&before, &after, 3, None), Some(5));
    let log = |units| StoredState::SlidingLog { units };
    assert_eq!(since(&log(3), &log(5), 2, None), Some(2));
}

#[test]
fn an_interval_bucket_counts_its_fills_when_the_quota_is_known() {
    let state = |start, missing| StoredState::IntervalBucket {
        start_us: start * SECOND,
        missing,
    };
    let quota = Quota::new(4, Duration::from_secs(1));
    // Two fills of four units have come, so five new units are missing.
    let until_2 = |quota| since(&state(0, 9), &state(2, 6), 2, quota);
    assert_eq!(until_2(Some(&quota)), Some(5));
    assert_eq!(until_2(None), Some(0));
}

#[test]
fn states_of_two_quotas_are_not_compared() {
    let faster = StoredState::Bucket {
        full_us: 107 * SECOND,
        part: 0,
        pace: 5e5,
    };
    assert_eq!(since(&bucket(105), &faster, 102, None), None);
    assert_eq!(since(&bucket(105), &window(0, 5), 102, None), None);
}
