//! The settings that are explored: those that take seconds by the tests, all of them by
//! `cargo xtask model`. The mistakes that have to be found are in `mistakes.rs`.

use tollgate::Algorithm::{self, FixedWindow, TokenBucket};

use super::setting::Setting;
use crate::table::Row;

/// Lists the rows. Those with a number of states are short.
///
/// A clock that goes back is explored for a bucket alone: a fixed window begins anew with each such
/// step, as its page says.
#[must_use]
pub fn rows() -> Vec<Row<Setting>> {
    vec![
        row(
            "window-lives",
            "a window ends, two generations lapse",
            calls(FixedWindow, 2, 12),
            Some(120_458),
        ),
        row(
            "bucket-lives",
            "a bucket fills, two generations lapse",
            calls(TokenBucket, 2, 12),
            Some(133_685),
        ),
        row(
            "window-lost",
            "messages are lost, units are returned, two processes, a window",
            lossy(FixedWindow),
            Some(55_000),
        ),
        row(
            "bucket-lost",
            "messages are lost, units are returned, two processes, a bucket",
            lossy(TokenBucket),
            Some(74_231),
        ),
        row(
            "window-late",
            "two calls of a process are under way, one is lost, a window",
            late(FixedWindow, 3),
            Some(142_477),
        ),
        row(
            "bucket-crash",
            "a process ends, a message is lost, a bucket",
            calls(TokenBucket, 2, 6).processes(2, 1).budget(|left| {
                left.crashes = 1;
                left.losses = 1;
            }),
            Some(135_028),
        ),
        row(
            "bucket-empty",
            "the server loses the state, a bucket",
            calls(TokenBucket, 2, 5)
                .processes(2, 1)
                .budget(|left| left.lost_states = 1),
            Some(119_601),
        ),
        row(
            "window-copy",
            "a server with an older state takes over, a window",
            copied(FixedWindow, 2, 4),
            Some(227_712),
        ),
        row(
            "bucket-clock",
            "the clock of the server steps, a bucket",
            stepped(2, 4),
            Some(451_778),
        ),
        row(
            "bucket-late",
            "two calls of a process are under way, one is lost, a bucket",
            late(TokenBucket, 4),
            None,
        ),
        row(
            "window-crash",
            "a process ends, a message is lost, a window",
            calls(FixedWindow, 2, 6).processes(2, 1).budget(|left| {
                left.crashes = 1;
                left.losses = 1;
            }),
            None,
        ),
        row(
            "bucket-copy",
            "a server with an older state takes over, one process, a bucket",
            copied(TokenBucket, 3, 5).processes(1, 1),
            None,
        ),
        row(
            "clock-long",
            "the clock of the server steps, one process, a bucket",
            stepped(3, 5).processes(1, 1),
            None,
        ),
        row(
            "clock-twice",
            "the clock of the server steps twice, one process, a bucket",
            stepped(2, 6)
                .processes(1, 1)
                .budget(|left| left.clock_steps = 2),
            None,
        ),
    ]
}

/// Returns a setting with calls until a tick, and no fault.
pub(super) fn calls(algorithm: Algorithm, calls: u8, last: u64) -> Setting {
    Setting::new(algorithm)
        .last(last)
        .budget(|left| left.calls = calls)
}

fn lossy(algorithm: Algorithm) -> Setting {
    calls(algorithm, 2, 5).processes(2, 1).budget(|left| {
        left.returns = 1;
        left.losses = 1;
    })
}

fn late(algorithm: Algorithm, last: u64) -> Setting {
    calls(algorithm, 3, last).processes(1, 2).budget(|left| {
        left.returns = 1;
        left.losses = 1;
    })
}

fn copied(algorithm: Algorithm, number: u8, last: u64) -> Setting {
    calls(algorithm, number, last)
        .processes(2, 1)
        .budget(|left| left.failures = 1)
}

fn stepped(number: u8, last: u64) -> Setting {
    calls(TokenBucket, number, last)
        .processes(2, 1)
        .budget(|left| left.clock_steps = 1)
}

fn row(
    name: &'static str,
    says: &'static str,
    setting: Setting,
    states: Option<usize>,
) -> Row<Setting> {
    Row {
        name,
        says,
        setting,
        depth: None,
        states,
    }
}
