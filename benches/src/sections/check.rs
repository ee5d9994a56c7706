//! Measures one decision in process, for Tollgate, governor and tower-rate-tier, with 10 000 keys
//! and one thread.

use std::{
    hint::black_box,
    num::NonZeroU32,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use governor::{RateLimiter, middleware::StateInformationMiddleware};
use tollgate::{Decision, Limiter, MemoryStore, Policy, PolicySet, Quota};
use tower_rate_tier::RateTier;

use crate::{
    keys::{KEYS, shuffled},
    machine,
    pace::Pace,
    report::{Findings, Table, Target, figure},
    rounds::{Case, Series, alternate},
};

const PLENTY: Quota = Quota::per_second(1_000_000).with_burst(1_000_000_000);
const SCARCE: Quota = Quota::per_day(1);

pub(crate) fn run(pace: &Pace) -> Findings {
    let keys = shuffled(KEYS);
    let mut findings = Findings::default();

    let admitted = alternate(
        pace.inside,
        vec![
            governor("governor, keyed", &keys, true),
            ours(
                "tollgate, token bucket",
                &keys,
                Policy::token_bucket("a", PLENTY),
                true,
                |_| (),
            ),
            ours(
                "tollgate, fixed window",
                &keys,
                Policy::fixed_window("a", Quota::per_day(90_000_000)),
                true,
                |_| (),
            ),
            ours("tollgate, three policies", &keys, three(), true, |_| ()),
            governor_with_state("governor, keyed, with units left", &keys),
            ours(
                "tollgate, token bucket, with units left",
                &keys,
                Policy::token_bucket("a", PLENTY),
                true,
                remains,
            ),
            tiers("tower-rate-tier", &keys, true),
            clock(),
        ],
    );
    let denied = alternate(
        pace.inside,
        vec![
            governor("governor, keyed", &keys, false),
            ours(
                "tollgate, token bucket",
                &keys,
                Policy::token_bucket("a", SCARCE),
                false,
                |_| (),
            ),
            ours(
                "tollgate, token bucket, with time to retry",
                &keys,
                Policy::token_bucket("a", SCARCE),
                false,
                retry,
            ),
            tiers("tower-rate-tier", &keys, false),
        ],
    );
    for (outcome, series) in [("admitted", &admitted), ("denied", &denied)] {
        let measure = format!("in-process check, keyed, {outcome}, to governor");
        findings.goal(
            measure,
            Target::AtMost(1.3),
            series[1].ratio(&series[0], |&ns| ns),
            " ×",
        );
        findings.tables.push(table(outcome, series));
    }
    findings
}

fn table(outcome: &str, series: &[Series<f64>]) -> Table {
    let about = "One thread checks 10 000 text keys of 21 bytes in random order, through the public interface: \
                 `Limiter::check` on a `MemoryStore`, `RateLimiter::check_key`, `RateTier::check`. *With \
                 units left* and *with time to retry* mean that these parts of the answer are read too.";
    let mut table = Table::new(
        &format!("In process, {outcome}"),
        about,
        &["", "ns of CPU per check", "to governor"],
    );
    for one in series {
        let ratio = one.ratio(&series[0], |&ns| ns);
        table.row([
            one.name.clone(),
            figure(one.median(|&ns| ns)),
            figure(ratio),
        ]);
    }
    table
}

/// Calls `check` for all keys again and again, and returns the nanoseconds of processor time per
/// call.
///
/// # Panics
///
/// When a call does not return `expected`.
fn per_call(
    time: Duration,
    keys: &[String],
    expected: bool,
    mut check: impl FnMut(&String) -> bool,
) -> f64 {
    let (mut calls, mut as_expected) = (0_u64, 0_u64);
    let started = machine::thread_cpu();
    loop {
        for key in keys {
            as_expected += u64::from(black_box(check(black_box(key))) == expected);
        }
        calls += keys.len() as u64;
        let elapsed = machine::thread_cpu() - started;
        if elapsed >= time {
            assert_eq!(
                as_expected,
                calls,
                "not all checks were {}",
                if expected { "admitted" } else { "denied" }
            );
            return elapsed.as_nanos() as f64 / calls as f64;
        }
    }
}

fn ours<'a>(
    name: &str,
    keys: &'a [String],
    policies: impl Into<PolicySet>,
    admits: bool,
    look: fn(&Decision),
) -> Case<'a, f64> {
    let limiter = Limiter::new(MemoryStore::new(), policies);
    let check = move |key: &String| {
        let answer = limiter
            .check(key.as_str())
            .into_future()
            .into_ready()
            .expect("an in-process store does not wait");
        let decision = answer.expect("an in-process store decides");
        look(&decision);
        decision.is_allowed()
    };
    if !admits {
        keys.iter().for_each(|key| assert!(check(key)));
    }
    Case::new(name, move |time| per_call(time, keys, admits, &check))
}

fn remains(decision: &Decision) {
    let strictest = decision.strictest().expect("the limiter has a policy");
    black_box((strictest.remaining(), strictest.reset_after()));
}

fn retry(decision: &Decision) {
    black_box(decision.retry_after());
}

fn three() -> [Policy; 3] {
    [
        Policy::token_bucket("a", PLENTY),
        Policy::fixed_window("b", Quota::per_day(90_000_000)),
        Policy::window_from_first_hit("c", Quota::per_day(90_000_000)),
    ]
}

/// Returns the quota for governor. Its quotas are rates, so "one a day" is one unit that takes a
/// day to return.
fn governor_quota(admits: bool) -> governor::Quota {
    match (
        NonZeroU32::new(1_000_000),
        governor::Quota::with_period(Duration::from_secs(86_400)),
    ) {
        (Some(million), _) if admits => governor::Quota::per_second(million)
            .allow_burst(NonZeroU32::new(1_000_000_000).unwrap_or(million)),
        (_, Some(scarce)) => scarce,
        _ => unreachable!("neither is zero"),
    }
}

fn governor<'a>(name: &str, keys: &'a [String], admits: bool) -> Case<'a, f64> {
    let limiter = RateLimiter::keyed(governor_quota(admits));
    let check = move |key: &String| limiter.check_key(key).is_ok();
    if !admits {
        keys.iter().for_each(|key| assert!(check(key)));
    }
    Case::new(name, move |time| per_call(time, keys, admits, &check))
}

fn governor_with_state<'a>(name: &str, keys: &'a [String]) -> Case<'a, f64> {
    let limiter =
        RateLimiter::keyed(governor_quota(true)).with_middleware::<StateInformationMiddleware>();
    let check = move |key: &String| {
        limiter
            .check_key(key)
            .is_ok_and(|state| state.remaining_burst_capacity() > 0)
    };
    Case::new(name, move |time| per_call(time, keys, true, &check))
}

fn tiers<'a>(name: &str, keys: &'a [String], admits: bool) -> Case<'a, f64> {
    use tower_rate_tier::Quota;
    let quota = if admits {
        Quota::per_second(1_000_000_000)
    } else {
        Quota::per_day(1)
    };
    let limiter = RateTier::builder().tier("pro", quota).disable_gc().build();
    let check = move |key: &String| {
        let answer = limiter
            .check(key, "pro", 1)
            .now_or_never()
            .expect("its in-process store does not wait");
        answer.expect("its in-process store decides").is_ok()
    };
    if !admits {
        keys.iter().for_each(|key| assert!(check(key)));
    }
    Case::new(name, move |time| per_call(time, keys, admits, &check))
}

/// Measures one reading of the standard library's clock, a cost of each limiter that uses this
/// clock.
fn clock<'a>() -> Case<'a, f64> {
    let (keys, started) = (vec![String::new(); KEYS], Instant::now());
    Case::new("`Instant::now` alone", move |time| {
        per_call(time, &keys, true, |_| Instant::now() >= started)
    })
}
