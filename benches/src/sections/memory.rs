//! Measures a million keys in process: the bytes per key, and the longest time that a single check
//! takes.
//!
//! A check is slow when the store grows or removes keys during the check. Each contestant runs in
//! its own process, so that the resident memory of the process belongs to this contestant alone.

use std::{
    fmt::Write as _,
    num::{NonZeroU32, NonZeroUsize},
    time::Duration,
};

use governor::RateLimiter;
use tollgate::{Limiter, MemoryStore, Policy, Quota};

use super::probed;
use crate::{
    machine,
    pace::{Pace, Rounds},
    report::{Findings, Table, Target, figure},
    rounds::{Case, alternate},
};

const KEYS: usize = 1_000_000;

/// Sets how many more keys are added to the full store. They replace keys whose quota is full
/// again, or nearly full.
const MORE: usize = 200_000;

pub(crate) fn run(pace: &Pace) -> Findings {
    if machine::resident().is_none() {
        return Findings::left_out(
            "A million keys in process",
            "this system does not report resident memory",
        );
    }
    let mut findings = Findings::default();
    let mut table = Table::new(
        "A million keys in process",
        format!(
            "Each text key of 21 bytes is checked once. Its limit is one bucket of a thousand an hour. *Bytes per key* \
             is the growth of the resident memory. The *longest pause* is the processor time of the slowest single \
             check. Processor time does not include the work of other processes. It is measured while a million keys \
             are added (*filling*), and while {MORE} more keys are added to the full store (*full*). governor removes \
             no keys by itself. Each turn runs in its own process."
        ),
        &[
            "",
            "bytes per key",
            "ns per new key",
            "longest pause µs, filling",
            "longest pause µs, full",
        ],
    );
    let cases = ["tollgate", "governor"].map(|name| Case::new(name, move |_| probed(&[name])));
    // A turn ends when its work is done, so no length is set. A warm-up turn runs first, and does
    // not count.
    let series = alternate(
        Rounds {
            count: pace.load.count,
            turn: Duration::ZERO,
        },
        cases.into(),
    );
    for one in &series {
        let [bytes, new, filling, full] = std::array::from_fn(|at| one.median(|probe| probe[at]));
        if one.name == "tollgate" {
            findings.goal(
                "1 M keys in process, bytes per key",
                Target::AtMost(100.0),
                bytes,
                "",
            );
            let longest = f64::max(filling, full);
            findings.goal(
                "1 M keys in process, longest pause",
                Target::AtMost(1_000.0),
                longest,
                " µs",
            );
        }
        table.row(std::iter::once(one.name.clone()).chain([bytes, new, filling, full].map(figure)));
    }
    findings.tables.push(table);
    findings
}

/// Measures the contestant with this name, in a process of its own.
pub(super) fn probe(name: &str) -> [f64; 4] {
    machine::stay_on_the_client_core();
    match name {
        "tollgate" => {
            let max = NonZeroUsize::MIN.saturating_add(KEYS - 1);
            let store = MemoryStore::builder().max_keys(max).build();
            let limiter = Limiter::new(
                store.clone(),
                Policy::token_bucket("a", Quota::per_hour(1_000)),
            );
            let figures = fill(|key| {
                let answer = limiter
                    .check(key.as_str())
                    .into_future()
                    .into_ready()
                    .expect("an in-process store does not wait");
                answer.expect("an in-process store decides").is_allowed()
            });
            // The store keeps its bound, and does not remove many more keys than necessary.
            assert!(
                (KEYS * 9 / 10..=KEYS).contains(&store.len()),
                "{} states",
                store.len()
            );
            figures
        }
        "governor" => {
            let limiter = RateLimiter::keyed(governor::Quota::per_hour(
                NonZeroU32::MIN.saturating_add(999),
            ));
            fill(|key| limiter.check_key(key).is_ok())
        }
        other => panic!("no contestant has the name {other:?}"),
    }
}

/// Fills the store. Returns the bytes per key, the nanoseconds per new key, and two longest pauses
/// in microseconds.
///
/// The first pause is from the filling of the store, and the second one from the full store.
fn fill(mut check: impl FnMut(&String) -> bool) -> [f64; 4] {
    let mut key = String::with_capacity(32);
    let mut longest = |numbers: std::ops::Range<usize>| {
        let (mut longest, began) = (Duration::ZERO, machine::thread_cpu());
        let mut at = began;
        for number in numbers {
            key.clear();
            let _ = write!(key, "customer:{number:012}");
            assert!(check(&key), "a new key is admitted");
            let now = machine::thread_cpu();
            longest = longest.max(now.saturating_sub(at));
            at = now;
        }
        (longest.as_secs_f64() * 1e6, at.saturating_sub(began))
    };
    longest(0..1);
    let before = machine::resident().unwrap_or(0);
    let (filling, took) = longest(1..KEYS);
    let bytes = machine::resident().unwrap_or(0).saturating_sub(before) as f64 / KEYS as f64;
    let (full, _) = longest(KEYS..KEYS + MORE);
    [bytes, took.as_nanos() as f64 / KEYS as f64, filling, full]
}
