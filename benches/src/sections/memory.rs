//! A million keys inside the process: the bytes of each, and how long a caller ever waits for the store to tidy up.
//!
//! Each contestant runs in a process of its own, so that the resident memory is its own.

use std::{
    env,
    fmt::Write as _,
    num::{NonZeroU32, NonZeroUsize},
    process::Command,
    time::Duration,
};

use governor::RateLimiter;
use tollgate::{Limiter, MemoryStore, Policy, Quota};

use crate::{
    machine,
    pace::{Pace, Rounds},
    report::{Findings, Table, Target, figure},
    rounds::{Case, alternate},
};

const KEYS: usize = 1_000_000;

/// How many more come when the store is full, and drive out what is fresh or nearest to it.
const MORE: usize = 200_000;

pub(crate) fn run(pace: &Pace) -> Findings {
    if resident().is_none() {
        return Findings::left_out("A million keys in process", "this system does not say how much memory is resident");
    }
    let mut findings = Findings::default();
    let mut table = Table::new(
        "A million keys in process",
        format!(
            "Text keys of 21 bytes, each spent from once, one bucket of a thousand an hour each; growth of the resident \
             memory of a process of its own. The *longest pause* is the dearest single check in processor time, so that \
             neighbours do not count: while a million keys come in, and while {MORE} more come to a full store (governor \
             forgets nothing by itself). A turn is a process of its own."
        ),
        &["", "bytes per key", "ns per new key", "longest pause µs, filling", "longest pause µs, full"],
    );
    let cases = ["tollgate", "governor"].map(|name| Case::new(name, move |_| probed(name)));
    // A turn is as long as its work. One more goes before those that count.
    let series = alternate(Rounds { count: pace.load.count, turn: Duration::ZERO }, cases.into());
    for one in &series {
        let [bytes, new, filling, full] = std::array::from_fn(|at| one.median(|probe| probe[at]));
        if one.name == "tollgate" {
            findings.goal("1 M keys in process, bytes per key", Target::AtMost(100.0), bytes, "");
            let longest = f64::max(filling, full);
            findings.goal("1 M keys in process, longest pause", Target::AtMost(1_000.0), longest, " µs");
        }
        table.row(std::iter::once(one.name.clone()).chain([bytes, new, filling, full].map(figure)));
    }
    findings.tables.push(table);
    findings
}

/// Asks a process of its own.
fn probed(name: &str) -> [f64; 4] {
    let this = env::current_exe().expect("a running program is somewhere");
    let output = Command::new(this).args(["probe", name]).output().expect("this program starts again");
    let said = String::from_utf8_lossy(&output.stdout);
    let figures: Vec<f64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    figures.try_into().unwrap_or_else(|_| panic!("the probe ended with {}: {said}", output.status))
}

/// The other end of [`probed`].
pub(crate) fn probe(words: &[String]) {
    machine::stay_on_the_client_core();
    let figures = match words.first().map(String::as_str) {
        Some("tollgate") => {
            let max = NonZeroUsize::MIN.saturating_add(KEYS - 1);
            let store = MemoryStore::builder().max_keys(max).build();
            let limiter = Limiter::new(store.clone(), Policy::token_bucket("a", Quota::per_hour(1_000)));
            let figures = fill(|key| {
                let answer = limiter.check(key.as_str()).into_ready().expect("an in-process store answers at once");
                answer.expect("an in-process store decides").is_allowed()
            });
            // What the bound is for: kept, and not by forgetting much more than asked.
            assert!((KEYS * 9 / 10..=KEYS).contains(&store.len()), "{} states", store.len());
            figures
        }
        Some("governor") => {
            let limiter = RateLimiter::keyed(governor::Quota::per_hour(NonZeroU32::MIN.saturating_add(999)));
            fill(|key| limiter.check_key(key).is_ok())
        }
        _ => panic!("a probe of whom?"),
    };
    println!("{}", figures.map(|figure| figure.to_string()).join(" "));
}

/// Bytes per key, nanoseconds per new key, and the longest pauses in microseconds.
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
    let before = resident().unwrap_or(0);
    let (filling, took) = longest(1..KEYS);
    let bytes = resident().unwrap_or(0).saturating_sub(before) as f64 / KEYS as f64;
    let (full, _) = longest(KEYS..KEYS + MORE);
    [bytes, took.as_nanos() as f64 / KEYS as f64, filling, full]
}

/// Bytes of this process that are in memory.
fn resident() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size())
}
