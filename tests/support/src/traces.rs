//! Traces of requests that two limiters decide: another's and ours, which have to admit the same.
//! Streams of random checks, whose stored bytes are compared too, are in `stream.rs`.

use crate::{Dice, InMemory, START_US, Subject};
use tollgate::{Key, PolicySet};

/// A second in microseconds.
pub const SECOND: u64 = 1_000_000;

/// The start of a trace in microseconds: a multiple of a second.
pub const START: u64 = START_US - START_US % SECOND;

/// Returns the times of a trace, in microseconds since its start. The time between two requests is
/// one of the gaps.
#[must_use]
pub fn trace(seed: u64, len: usize, gaps: &[u64]) -> Vec<u64> {
    let mut dice = Dice::new(seed);
    let mut now = 0;
    let mut times = vec![now];
    times.extend((1..len).map(|_| {
        now += dice.pick(gaps);
        now
    }));
    times
}

/// Decides a trace of requests of one unit by both limiters, and returns how many requests were
/// admitted.
///
/// # Panics
///
/// When they decide a request otherwise, and when the trace admits all requests or none.
#[track_caller]
pub fn assert_same_admissions(
    times: &[u64],
    mut theirs: impl FnMut(u64) -> bool,
    mut ours: impl FnMut(u64) -> bool,
) -> usize {
    let mut admitted = 0;
    for (at, &now) in times.iter().enumerate() {
        let expected = theirs(now);
        assert_eq!(
            ours(now),
            expected,
            "request {at} at {now} µs, after {admitted} admissions"
        );
        admitted += usize::from(expected);
    }
    assert!(
        admitted > 0 && admitted < times.len(),
        "the trace admits some requests and denies some, not {admitted}"
    );
    admitted
}

/// Decides requests of one unit and one key in process.
pub fn in_process(policies: impl Into<PolicySet>) -> impl FnMut(u64) -> bool {
    let mut decide = in_process_by_key(policies);
    move |now| decide(now, "client")
}

/// Decides requests of one unit in process.
pub fn in_process_by_key(policies: impl Into<PolicySet>) -> impl FnMut(u64, &str) -> bool {
    let (mut store, policies) = (InMemory::new(), policies.into());
    move |now, key| {
        store.set_now(START + now);
        store.check(&policies, &Key::from(key), 1).is_allowed()
    }
}
