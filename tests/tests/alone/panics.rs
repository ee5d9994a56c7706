//! Tests that a constructor which refuses its arguments names the line of the caller.

use std::{
    panic::{self, UnwindSafe},
    sync::Mutex,
    time::Duration,
};

use tollgate::{Lease, Policy, Quota};

use super::alone;

/// Returns the file of the panic that `run` ends with.
fn panics_in<T>(run: impl FnOnce() -> T + UnwindSafe) -> String {
    static FILE: Mutex<String> = Mutex::new(String::new());
    panic::set_hook(Box::new(|panic| {
        *FILE.lock().expect("no panic here") =
            panic.location().expect("a location").file().to_owned();
    }));
    assert!(
        panic::catch_unwind(run).is_err(),
        "the constructor must refuse its arguments"
    );
    let _ = panic::take_hook();
    FILE.lock().expect("no panic here").clone()
}

#[test]
fn a_refused_literal_names_the_line_of_the_caller() {
    const QUOTA: Quota = Quota::per_second(1);
    let _alone = alone();
    let files = [
        panics_in(|| Quota::new(u64::MAX, Duration::from_secs(1))),
        panics_in(|| Quota::per_second(u64::MAX)),
        panics_in(|| Quota::per_minute(u64::MAX)),
        panics_in(|| Quota::per_hour(u64::MAX)),
        panics_in(|| Quota::per_day(u64::MAX)),
        panics_in(|| Quota::one_every(Duration::ZERO)),
        panics_in(|| QUOTA.with_burst(0)),
        panics_in(|| QUOTA.with_margin(Duration::MAX)),
        panics_in(|| Policy::token_bucket("", QUOTA)),
        panics_in(|| Policy::interval_bucket("", QUOTA)),
        panics_in(|| Policy::leaky_bucket("", QUOTA)),
        panics_in(|| Policy::fixed_window("", QUOTA)),
        panics_in(|| Policy::window_from_first_hit("", QUOTA)),
        panics_in(|| Policy::sliding_window("", QUOTA)),
        panics_in(|| Policy::sliding_buckets("", QUOTA, 10)),
        panics_in(|| Policy::sliding_log("", QUOTA)),
        panics_in(|| Policy::token_bucket("a", QUOTA).at_level(0)),
        panics_in(|| Policy::token_bucket("a", QUOTA).at_branch(0)),
        panics_in(|| Policy::leaky_bucket("a", QUOTA).leased(Lease::new())),
    ];
    for (at, file) in files.iter().enumerate() {
        assert!(file.ends_with("panics.rs"), "constructor {at} names {file}");
    }
}
