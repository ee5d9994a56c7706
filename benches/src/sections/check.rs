//! Measures one decision in process, for Tollgate, governor, quota and tower-rate-tier, with 10 000
//! keys and one thread, and a denial over Redis that the process remembers.

use std::{hint::black_box, num::NonZeroU32, time::Duration};

use futures_util::FutureExt;
use governor::RateLimiter;
use tokio::runtime::Runtime;
use tollgate::{Limiter, MemoryStore, Policy, Quota, RedisStore};
use tower_rate_tier::RateTier;

use super::PLENTY;
use crate::{
    keys, load, machine,
    pace::Pace,
    report::{Findings, Table, Target, figure},
    rounds::{Case, Series, alternate},
    server::Server,
};

/// A limit that each key has used up after its first request.
const SCARCE: Policy = Policy::token_bucket("scarce", Quota::per_day(1));

/// The keys whose denials are remembered: few enough to be denied again in a moment.
const REMEMBERED: usize = 100;

pub(crate) fn run(pace: &Pace) -> Findings {
    let keys = keys::shuffled(keys::all().to_vec());
    let (server, runtime) = (Server::start(), load::runtime());
    let mut findings = Findings::default();
    for admits in [true, false] {
        let mut cases = vec![
            governor(&keys, admits),
            ours(&keys, admits),
            tiers(&keys, admits),
            quota(&keys, admits),
        ];
        if !admits {
            cases.push(remembered(&keys[..REMEMBERED], &runtime, &server));
        }
        let series = alternate(pace.inside, cases);
        let outcome = if admits { "admitted" } else { "denied" };
        let measure = format!("in-process check, keyed, {outcome}, to governor");
        let ratio = series[1].ratio(&series[0], |&ns| ns);
        findings.goal(measure, Target::AtMost(1.6), ratio, " ×");
        findings.tables.push(table(outcome, &series));
    }
    findings
}

fn table(outcome: &str, series: &[Series<f64>]) -> Table {
    let about = "One thread checks 10 000 text keys of 21 bytes in random order, through the public interface: \
                 `Limiter::check` on a `MemoryStore`, `RateLimiter::check_key`, `RateTier::check`, \
                 `QuotaPool::check`. quota answers with yes or no alone; governor knows the time to retry, too. *Over Redis, \
                 remembered* is a denial of the server that the process still knows, for 100 keys.";
    let heads = ["", "ns of CPU per check", "to governor"];
    let mut table = Table::new(&format!("In process, {outcome}"), about, &heads);
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
            assert_eq!(as_expected, calls, "not all checks gave {expected}");
            return elapsed.as_nanos() as f64 / calls as f64;
        }
    }
}

/// Creates the case of a limiter that decides in process. Without units, the first check of each key
/// is admitted, and does not count.
fn case<'a>(
    name: &str,
    keys: &'a [String],
    admits: bool,
    check: impl Fn(&String) -> bool + 'a,
) -> Case<'a, f64> {
    if !admits {
        keys.iter().for_each(|key| assert!(check(key)));
    }
    Case::new(name, move |time| per_call(time, keys, admits, &check))
}

fn ours(keys: &[String], admits: bool) -> Case<'_, f64> {
    let policy = if admits { PLENTY } else { SCARCE };
    let limiter = Limiter::new(MemoryStore::new(), policy);
    case("tollgate, token bucket", keys, admits, move |key| {
        let answer = limiter.check(key.as_str()).into_future().into_ready();
        let answer = answer.expect("an in-process store does not wait");
        answer.expect("an in-process store decides").is_allowed()
    })
}

/// Measures denials that the process remembers for a second. Before that is over, the server denies
/// the keys again, which does not count.
fn remembered<'a>(keys: &'a [String], runtime: &'a Runtime, server: &Server) -> Case<'a, f64> {
    let store = runtime.block_on(RedisStore::connect(server.url()));
    let limiter = Limiter::new(store.expect("the server is up"), SCARCE);
    Case::new("tollgate over Redis, remembered", move |time| {
        let _inside = runtime.enter();
        let (mut spent, mut denied) = (Duration::ZERO, 0_u64);
        while spent < time {
            for key in keys.iter().chain(keys) {
                let decision = runtime.block_on(limiter.check(key.as_str()).into_future());
                let _ = decision.expect("the server decides");
            }
            let started = machine::thread_cpu();
            for key in keys.iter().cycle().take(2_000) {
                // One that waits for the server is dropped, and is no denial.
                let answer = limiter.check(key.as_str()).into_future().into_ready();
                let is_denied =
                    answer.is_ok_and(|answer| answer.is_ok_and(|decision| decision.is_denied()));
                denied += u64::from(black_box(is_denied));
            }
            spent += machine::thread_cpu() - started;
        }
        spent.as_nanos() as f64 / denied.max(1) as f64
    })
}

/// The quotas of governor are rates, so "one a day" is one unit that takes a day to return.
fn governor(keys: &[String], admits: bool) -> Case<'_, f64> {
    let million = NonZeroU32::MIN.saturating_add(999_999);
    let quota = if admits {
        let burst = NonZeroU32::MIN.saturating_add(999_999_999);
        governor::Quota::per_second(million).allow_burst(burst)
    } else {
        let day = Duration::from_secs(86_400);
        governor::Quota::with_period(day).expect("a day is above zero")
    };
    let limiter = RateLimiter::keyed(quota);
    case("governor, keyed", keys, admits, move |key| {
        limiter.check_key(key).is_ok()
    })
}

/// A unit of quota is a whole number of nanoseconds, and it keeps each key until it is removed by
/// hand.
fn quota(keys: &[String], admits: bool) -> Case<'_, f64> {
    use quota::{QuotaPolicy, QuotaPool, RefillRate};
    let (burst, rate) = if admits {
        (1_000_000_000_u32, RefillRate::per_sec(1_000_000))
    } else {
        (1, RefillRate::per_day(1))
    };
    let policy = QuotaPolicy::new().set_capacity(burst.into());
    let pool = QuotaPool::new(policy.set_refill_rate(rate), burst.into());
    case("quota", keys, admits, move |key| pool.check(key, 1))
}

fn tiers(keys: &[String], admits: bool) -> Case<'_, f64> {
    use tower_rate_tier::Quota;
    let quota = if admits {
        Quota::per_second(1_000_000_000)
    } else {
        Quota::per_day(1)
    };
    let limiter = RateTier::builder().tier("pro", quota).disable_gc().build();
    case("tower-rate-tier", keys, admits, move |key| {
        let answer = limiter.check(key, "pro", 1).now_or_never();
        let answer = answer.expect("its in-process store does not wait");
        answer.expect("its in-process store decides").is_ok()
    })
}
