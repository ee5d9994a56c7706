//! Measures the memory of tenants and of limiters, and the first seconds of many limiters on one
//! store.

use std::{sync::Arc, time::Duration};

use tollgate::{Algorithm, Policy, PolicySet, Quota, RedisStore};

use super::probed;
use crate::{
    keys::KEYS,
    load::{self, Answer, Crowd, Decide},
    machine,
    pace::Pace,
    peers::{Costs, Many, Tenants},
    report::{Table, figure},
    server::Server,
    steady::{self, Flow},
};

/// Units per second for which a unit takes a whole number of microseconds, as with most limits.
const WHOLE: [u64; 12] = [
    1_000, 2_000, 4_000, 5_000, 8_000, 10_000, 20_000, 40_000, 50_000, 100_000, 500_000, 1_000_000,
];

/// The burst of a limit that is never used up.
const BURST: u64 = 500_000_000;

/// The policy of all tenants.
const TENANT: Policy = Policy::token_bucket("tenants", Quota::per_second(1_000));

/// The time in which the first decisions of many limiters are counted.
const FIRST: Duration = Duration::from_secs(2);

/// Returns the number of tenants.
pub(super) fn count(pace: &Pace) -> usize {
    if pace.is_quick { 2_000 } else { 100_000 }
}

/// Returns a set with one token bucket. Each number has a quota of its own, which is never used up.
pub(super) fn set(name: &str, number: usize) -> PolicySet {
    Policy::try_new(name, Algorithm::TokenBucket, quota(number))
        .expect("the quota is in range")
        .into()
}

/// Returns the set of a tenant. All tenants have one policy, with quotas of their own.
pub(super) fn tenant(number: usize) -> PolicySet {
    TENANT
        .with_quota(quota(number))
        .expect("the quota is in range")
        .into()
}

fn quota(number: usize) -> Quota {
    Quota::per_second(WHOLE[number % WHOLE.len()]).with_burst(BURST + number as u64)
}

/// Returns the bytes of a set of policies, of the same after its first check, and of a limiter
/// after its first check.
pub(super) fn memory(count: usize) -> [f64; 4] {
    let count = count.to_string();
    let sets = probed(&["tenants", &count]);
    let limiters = probed(&["limiters", &count]);
    [sets[0], sets[1], limiters[1], f64::NAN]
}

/// Measures the first seconds of many limiters on one store.
pub(super) fn many_limiters(pace: &Pace) -> Table {
    let count = if pace.is_quick { 1_000 } else { 20_000 };
    let [created, used, per_second, without] = probed(&["limiters", &count.to_string()]);
    let about = format!(
        "One store, and {count} limiters with policies and quotas of their own, all token buckets, in a process of their \
         own. 256 callers begin when the limiters are created. Decisions of the store are counted for the first {} \
         seconds. Bytes are the growth of the resident memory.",
        FIRST.as_secs()
    );
    let heads = [
        "limiters",
        "bytes per limiter",
        "after the first checks",
        "decisions/s",
        "without the store",
    ];
    let mut table = Table::new(
        "Diversity: the first seconds of many limiters",
        about,
        &heads,
    );
    let without = format!("{} %", figure(100.0 * without));
    table.row([
        count.to_string(),
        figure(created),
        figure(used),
        figure(per_second),
        without,
    ]);
    table
}

/// Measures tenants or limiters, in a process of its own.
///
/// Returns the bytes of each, its bytes after the first checks, the decisions per second in the
/// first seconds, and the share of the decisions that were made without the store.
pub(super) fn probe(kind: &str, count: &str) -> [f64; 4] {
    machine::stay_on_the_client_core();
    let count: usize = count.parse().expect("a number");
    let (runtime, server) = (load::runtime(), Server::start());
    let store = runtime
        .block_on(RedisStore::connect(server.url()))
        .expect("the server is up");
    // The buffers of the connection and of the callers grow before the measurement.
    let first = Arc::new(Many::usual(&store, &[set("first", 0)], KEYS, Costs::one()));
    let crowd = Crowd {
        callers: 256,
        keys: KEYS,
    };
    let _: Flow = steady::run(&runtime, &server, &first, crowd, Duration::ZERO, FIRST / 4);

    let before = machine::resident().unwrap_or(0);
    let bytes = || machine::resident().unwrap_or(0).saturating_sub(before) as f64 / count as f64;
    match kind {
        "tenants" => {
            let sets: Vec<PolicySet> = (0..count).map(tenant).collect();
            let created = bytes();
            // The keys belong to the requests, not to the tenants.
            let tenants = Arc::new(Tenants::new(&store, sets));
            let with_keys = bytes();
            runtime.block_on(each(&tenants, count));
            [created, created + bytes() - with_keys, f64::NAN, f64::NAN]
        }
        _ => {
            let sets: Vec<PolicySet> = (0..count)
                .map(|number| set(&format!("policy-{number:06}"), number))
                .collect();
            let limiters = Arc::new(Many::usual(&store, &sets, count, Costs::one()));
            let created = bytes();
            let crowd = Crowd {
                callers: 256,
                keys: count,
            };
            let flow = steady::run(&runtime, &server, &limiters, crowd, Duration::ZERO, FIRST);
            runtime.block_on(each(&limiters, count));
            [created, bytes(), flow.per_second(), flow.share_without()]
        }
    }
}

/// Makes a decision for each key, 256 at a time.
async fn each<D: Decide>(decide: &Arc<D>, keys: usize) {
    const CALLERS: usize = 256;
    let call = |caller: usize| {
        let decide = Arc::clone(decide);
        tokio::spawn(async move {
            for key in (caller..keys).step_by(CALLERS) {
                let answer = decide.decide(key).await;
                assert_ne!(answer, Answer::Denied, "all requests are within the limit");
            }
        })
    };
    let callers: Vec<_> = (0..CALLERS).map(call).collect();
    for caller in callers {
        caller.await.expect("a caller ends without a panic");
    }
}
