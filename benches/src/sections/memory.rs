//! Measures the bytes that a key takes in process.

use std::{
    env,
    num::{NonZeroU32, NonZeroUsize},
    process::Command,
    time::Duration,
};

use governor::RateLimiter;
use tollgate::{Limiter, MemoryStore, Policy, Quota};

use crate::{
    keys, machine,
    pace::{Pace, Rounds},
    report::{Findings, Table, Target, figure},
    rounds::{Case, alternate},
};

/// The name of the probe, on the command line.
pub(super) const PROBE: &str = "memory";

const TITLE: &str = "A million keys in process";

const KEYS: usize = 1_000_000;

pub(crate) fn run(pace: &Pace) -> Findings {
    if machine::resident().is_none() {
        return Findings::left_out(TITLE, "this system does not report resident memory");
    }
    // A turn ends when its work is done, so no length is set.
    let rounds = Rounds {
        count: pace.load.count,
        turn: Duration::ZERO,
    };
    let cases = ["tollgate", "governor"].map(|name| Case::new(name, move |_| probed(name)));
    let about = "Each text key of 21 bytes is checked once. Its limit is one bucket of ten an hour. *Bytes per \
                 key* is the growth of the resident memory of a process that holds nothing else.";
    let mut table = Table::new(TITLE, about, &["", "bytes per key"]);
    let series = alternate(rounds, cases.into());
    for one in &series {
        table.row([one.name.clone(), figure(one.median(|&bytes| bytes))]);
    }
    let mut findings = Findings::default();
    let bytes = series[0].median(|&bytes| bytes);
    let measure = "1 M keys in process, bytes per key";
    findings.goal(measure, Target::AtMost(100.0), bytes, "");
    findings.tables.push(table);
    findings
}

/// Measures the contestant with this name in a new process, so that the resident memory belongs to
/// it alone.
fn probed(name: &str) -> f64 {
    let mut command = Command::new(env::current_exe().expect("this program has a path"));
    let output = command.args(["probe", PROBE, name]).output();
    let output = output.expect("this program starts again");
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim()
        .parse()
        .unwrap_or_else(|_| panic!("the probe said {said:?}: {output:?}"))
}

/// Fills the store of this contestant, and returns the bytes per key.
pub(super) fn probe(name: &str) -> f64 {
    match name {
        "tollgate" => {
            let max = NonZeroUsize::MIN.saturating_add(KEYS - 1);
            let store = MemoryStore::builder().max_keys(max).build();
            let policy = Policy::token_bucket("a", Quota::per_hour(10));
            let limiter = Limiter::new(store.clone(), policy);
            let bytes = fill(|key| {
                let answer = limiter.check(key.as_str()).into_future().into_ready();
                let answer = answer.expect("an in-process store does not wait");
                answer.expect("an in-process store decides").is_allowed()
            });
            // The store keeps its bound, and does not remove many more keys than necessary.
            let held = store.len();
            assert!((KEYS * 9 / 10..=KEYS).contains(&held), "{held} states");
            bytes
        }
        "governor" => {
            let ten = NonZeroU32::MIN.saturating_add(9);
            let limiter = RateLimiter::keyed(governor::Quota::per_hour(ten));
            fill(|key| limiter.check_key(key).is_ok())
        }
        other => panic!("no contestant has the name {other:?}"),
    }
}

fn fill(mut check: impl FnMut(&String) -> bool) -> f64 {
    let mut add = |number| assert!(check(&keys::key(number)), "a new key is admitted");
    add(0);
    let before = machine::resident().unwrap_or(0);
    (1..KEYS).for_each(add);
    machine::resident().unwrap_or(0).saturating_sub(before) as f64 / KEYS as f64
}
