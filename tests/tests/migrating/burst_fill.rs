//! Buckets that are filled at once: the first unit starts a timer, and when it ends the bucket is
//! full again.

use tollgate::{Policy, Quota};

use super::{SECOND, assert_same_admissions, in_process, trace};

/// Fills the bucket one second after the first unit was taken from a full one.
fn burst_fill(capacity: u32) -> impl FnMut(u64) -> bool {
    let (mut tokens, mut fill) = (capacity, None);
    move |now| {
        if fill.is_some_and(|fill| fill <= now) {
            (tokens, fill) = (capacity, None);
        }
        if tokens == 0 {
            return false;
        }
        fill.get_or_insert(now + SECOND);
        tokens -= 1;
        true
    }
}

/// Refills `tokens` at whole seconds since the bucket was made, as `refillIntervally` of Bucket4j
/// does.
fn bucket4j(capacity: u64, tokens: u64) -> impl FnMut(u64) -> bool {
    let (mut available, mut refills) = (capacity, 0);
    move |now| {
        let elapsed = now / SECOND;
        available = capacity.min(available + (elapsed - refills) * tokens);
        refills = elapsed;
        let passes = available > 0;
        available -= u64::from(passes);
        passes
    }
}

#[test]
fn an_interval_bucket_admits_what_a_burst_fill_bucket_admits() {
    let policy = Policy::interval_bucket("api", Quota::per_second(10));
    let gaps = [
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        1,
        SECOND / 20,
        SECOND / 10,
        SECOND - 1,
        SECOND,
        SECOND + 1,
        5 * SECOND / 2,
    ];
    for seed in 0..20 {
        assert_same_admissions(
            &trace(seed, 1_000, &gaps[..11 + seed as usize % 5]),
            burst_fill(10),
            in_process(policy.clone()),
        );
    }
}

#[test]
fn an_interval_bucket_admits_what_bucket4j_admits_while_the_bucket_is_in_use() {
    let policy = Policy::interval_bucket("api", Quota::per_second(10).with_burst(20));
    for seed in 0..20 {
        let gaps = [0, SECOND / 50, SECOND / 20, SECOND / 10];
        let mut times = vec![0; 20];
        times.extend(trace(seed, 2_000, &gaps));
        assert_same_admissions(&times, bucket4j(20, 10), in_process(policy.clone()));
    }
}

#[test]
fn a_bucket_whose_burst_is_its_amount_admits_less_than_bucket4j_and_a_fixed_window_admits_the_same()
{
    let quota = Quota::per_second(10);
    let policies = [
        Policy::interval_bucket("api", quota),
        Policy::fixed_window("api", quota),
    ];
    let times: Vec<_> = (0..6_000).map(|request| request * 90_000).collect();
    let count =
        |mut admits: Box<dyn FnMut(u64) -> bool>| times.iter().filter(|now| admits(**now)).count();
    let [interval, window] = policies
        .clone()
        .map(|policy| count(Box::new(in_process(policy))));
    assert_eq!(
        [count(Box::new(bucket4j(10, 10))), interval, window],
        [5_400, 5_000, 5_400],
        "in nine minutes"
    );

    let [_, window] = policies;
    for seed in 0..20 {
        let gaps = [0, 0, SECOND / 50, SECOND / 10, SECOND / 2, 5 * SECOND / 2];
        assert_same_admissions(
            &trace(seed, 2_000, &gaps),
            bucket4j(10, 10),
            in_process(window.clone()),
        );
    }
}

#[test]
fn after_a_pause_the_timer_starts_with_the_next_request_and_that_of_bucket4j_runs_on() {
    let policy = Policy::interval_bucket("api", Quota::per_second(10));
    // One request, a pause of 2.5 seconds, a burst, and a second burst half a second later.
    let times: Vec<_> = [0]
        .into_iter()
        .chain([5 * SECOND / 2; 10])
        .chain([3 * SECOND; 10])
        .collect();
    let count =
        |mut admits: Box<dyn FnMut(u64) -> bool>| times.iter().filter(|now| admits(**now)).count();
    assert_eq!(
        [
            count(Box::new(bucket4j(10, 10))),
            count(Box::new(in_process(policy)))
        ],
        [21, 11]
    );
}
