//! The policies that the processes of `tests/processes/linear.rs` spend from, by name.

use std::time::Duration;

use tollgate::{Policy, PolicySet, Quota};

use crate::stream;

/// The names.
pub const NAMES: [&str; 9] = [
    "token-bucket",
    "interval-bucket",
    "leaky-bucket",
    "fixed-window",
    "window-from-first-hit",
    "sliding-window",
    "sliding-buckets",
    "sliding-log",
    "set",
];

/// Returns the number of checks that each process makes, a multiple of its 16 tasks: 4 000 in a full
/// run.
#[must_use]
pub fn checks() -> u64 {
    stream::part_of(4_000).max(1_600)
}

/// Returns the policies of a name.
///
/// Their periods are so short that windows end while the processes run, and their quotas so small
/// that checks are denied. The amount does not divide the period, so that the reply of a bucket
/// carries the time.
///
/// # Panics
///
/// When no policies have this name.
#[must_use]
pub fn named(name: &str) -> PolicySet {
    let quota = Quota::new(7, Duration::from_millis(20));
    let burst = quota.with_burst(5);
    match name {
        "token-bucket" => Policy::token_bucket("one", burst).into(),
        "interval-bucket" => Policy::interval_bucket("one", burst).into(),
        "leaky-bucket" => Policy::leaky_bucket("one", burst).into(),
        "fixed-window" => Policy::fixed_window("one", quota).into(),
        "window-from-first-hit" => Policy::window_from_first_hit("one", quota).into(),
        "sliding-window" => Policy::sliding_window("one", quota).into(),
        "sliding-buckets" => Policy::sliding_buckets("one", quota, 10).into(),
        "sliding-log" => Policy::sliding_log("one", quota).into(),
        "set" => [
            Policy::token_bucket("burst", burst),
            Policy::sliding_log("log", Quota::new(9, Duration::from_millis(50))),
        ]
        .into(),
        other => panic!("POLICIES is {other}"),
    }
}
