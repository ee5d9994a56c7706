//! `RedisStore::diagnose` finds wrong settings of a server, and the documented rights are enough.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate::{
    Algorithm, Policy, PolicySet, Quota, RedisStore, store::Clock, testing::ALGORITHMS,
};
use tollgate_test_support::{PATIENCE, connected_store, patient_limiter};
use tollgate_tests::{Mode, Proxy, RedisServer};

const PAGE: &str = include_str!("../../../docs/redis.md");

fn set(algorithms: &[Algorithm]) -> PolicySet {
    let policy = |(at, &algorithm): (usize, &Algorithm)| {
        Policy::try_new(format!("p{at}"), algorithm, Quota::per_hour(1_000)).expect("a policy")
    };
    PolicySet::try_new(algorithms.iter().enumerate().map(policy)).expect("a set")
}

/// Returns sets of eight policies at most, in which all these algorithms are.
fn sets(algorithms: &[Algorithm]) -> Vec<PolicySet> {
    algorithms.rchunks(8).map(set).collect()
}

/// The rights that the diagnosis does not try: a PING may be refused, and the others repair a log
/// or remove an entry from its middle.
const UNTRIED: [&str; 5] = ["+ping", "+lrange", "+lrem", "+lset", "+rpush"];

/// The algorithms that are no log.
fn counters() -> Vec<Algorithm> {
    ALGORITHMS
        .into_iter()
        .filter(|&algorithm| algorithm != Algorithm::SlidingLog)
        .collect()
}

/// Returns the rights of the documented lines of every store. Those of the third, for exceptions, are
/// tried in `tollgate-cli/tests/it/rights.rs`.
fn documented() -> [Vec<&'static str>; 2] {
    let lines: Vec<_> = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("ACL SETUSER tollgate "))
        .collect();
    let [least, logs, _exceptions] = lines.as_slice() else {
        panic!("three lines: {lines:?}")
    };
    [least, logs].map(|line| {
        line.split_whitespace()
            .map(|word| if word == ">PASSWORD" { ">secret" } else { word })
            .collect()
    })
}

fn user(server: &RedisServer, rights: &[&str]) -> RedisStore {
    server.command(&["ACL", "DELUSER", "tollgate"]);
    let reply = server.command(&[&["ACL", "SETUSER", "tollgate"], rights].concat());
    assert!(!reply.is_error(), "{}", reply.text());
    let url = server.url();
    RedisStore::open(url.replacen("redis://", "redis://tollgate:secret@", 1)).expect("a store")
}

async fn codes(store: &RedisStore, sets: impl IntoIterator<Item = PolicySet>) -> Vec<&'static str> {
    let findings = store.diagnose(sets).await.expect("it answers");
    findings.iter().map(|finding| finding.code()).collect()
}

/// The refund of the dry run reaches a distant server late.
#[tokio::test]
async fn a_slow_connection_is_not_reported_as_a_missing_right() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let store = RedisStore::builder(proxy.url())
        .connect_timeout(PATIENCE)
        .build()
        .expect("a store");
    proxy.set(Mode::Delay(Duration::from_millis(5)));
    for algorithm in ALGORITHMS {
        assert!(
            codes(&store, [set(&[algorithm])]).await.is_empty(),
            "{algorithm:?}"
        );
    }
}

#[tokio::test]
async fn a_server_that_is_too_far_for_the_default_deadline_is_found() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    proxy.set(Mode::Delay(Duration::from_millis(70)));
    let store = RedisStore::builder(proxy.url())
        .connect_timeout(PATIENCE)
        .build()
        .expect("a store");
    let [finding] = &store.diagnose([]).await.expect("it answers")[..] else {
        panic!("one finding")
    };
    assert_eq!(finding.code(), "TOLLGATE-DISTANT");
    let detail = finding.detail();
    assert!(
        detail.starts_with("the round trip to redis takes "),
        "{detail}"
    );
    assert!(
        detail.contains("a deadline of 50ms")
            && detail.contains("set LimiterBuilder::deadline to "),
        "{detail}"
    );
    proxy.set(Mode::Pass);
    assert_eq!(codes(&store, []).await, [""; 0]);
}

#[tokio::test]
async fn a_server_in_order_has_no_findings_and_keeps_no_key() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let each = ALGORITHMS.into_iter().map(|algorithm| set(&[algorithm]));
    assert_eq!(
        store
            .diagnose(each.chain(sets(&ALGORITHMS)))
            .await
            .expect("it answers"),
        []
    );
    assert_eq!(server.keys_and_expires(), (0, 0));
}

#[tokio::test]
async fn eviction_is_found() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    for policy in ["allkeys-lru", "volatile-ttl", "volatile-random"] {
        server.command(&["CONFIG", "SET", "maxmemory-policy", policy]);
        let [finding] = &store.diagnose([]).await.expect("it answers")[..] else {
            panic!("one finding")
        };
        assert_eq!(finding.code(), "TOLLGATE-EVICTION");
        assert!(
            finding
                .detail()
                .starts_with(&format!("maxmemory-policy is {policy}")),
            "{finding}"
        );
    }
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    assert_eq!(codes(&store, []).await, [""; 0]);
}

#[tokio::test]
async fn a_wrong_clock_is_found() {
    let server = RedisServer::start();
    let now = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970")
            .as_micros() as u64
    };
    // A store can have a clock of its own: wrong by two hours, or right.
    for (off, found) in [
        (-7_200_000_000_i64, vec!["TOLLGATE-CLOCK"]),
        (7_200_000_000, vec!["TOLLGATE-CLOCK"]),
        (0, vec![]),
    ] {
        let clock = match off {
            0 => Clock::monotonic(),
            off => Clock::manual(now().saturating_add_signed(off)),
        };
        let store = RedisStore::builder(server.url())
            .clock(clock)
            .build()
            .expect("a store");
        assert_eq!(codes(&store, []).await, found, "off by {off} us");
    }
}

#[tokio::test]
async fn exactly_the_documented_rights_are_enough() {
    let server = RedisServer::start();
    let [least, logs] = documented();
    let store = user(&server, &least);
    assert_eq!(codes(&store, sets(&counters())).await, [""; 0]);
    for algorithm in counters() {
        assert_eq!(
            codes(&store, [set(&[algorithm])]).await,
            [""; 0],
            "{algorithm:?}"
        );
    }
    assert!(
        codes(&store, [set(&[Algorithm::SlidingLog])])
            .await
            .contains(&"TOLLGATE-ACL")
    );

    // In use: many checks of many keys at once, a refund, and a reset.
    for (rights, algorithms) in [
        (least.clone(), counters()),
        ([&least[..], &logs].concat(), ALGORITHMS.to_vec()),
    ] {
        let store = user(&server, &rights);
        for set in sets(&algorithms) {
            let has_log = set
                .iter()
                .any(|policy| policy.algorithm() == Algorithm::SlidingLog);
            let limiter = patient_limiter(store.clone(), set);
            let callers: Vec<_> = (0..200_u64)
                .map(|at| tokio::spawn(limiter.check(at % 20).into_future()))
                .collect();
            for caller in callers {
                assert!(
                    caller
                        .await
                        .expect("a task")
                        .expect("a decision")
                        .is_allowed()
                );
            }
            let decision = limiter.check(7_u64).await.expect("a decision");
            limiter
                .refund(7_u64, decision.cost())
                .of(&decision)
                .await
                .expect("a refund");
            limiter.reset(7_u64).await.expect("a reset");
            if has_log {
                assert_eq!(limiter.entries(8_u64, 100).await.expect("a list").len(), 10);
            }
            server.command(&["FLUSHALL"]);
        }
    }
}

#[tokio::test]
async fn every_documented_right_is_needed_and_its_absence_is_found() {
    let server = RedisServer::start();
    let [least, logs] = documented();
    let whole: Vec<_> = least.into_iter().chain(logs).collect();
    // A policy that is alone is read by another command than those of a set.
    let sets = || {
        [
            set(&counters()[1..]),
            set(&counters()[..1]),
            set(&[Algorithm::SlidingLog]),
        ]
    };
    let findings = user(&server, &whole)
        .diagnose(sets())
        .await
        .expect("it answers");
    assert_eq!(findings, []);
    for &right in whole
        .iter()
        .filter(|right| right.starts_with('+') || right.starts_with('~'))
    {
        if UNTRIED.contains(&right) {
            continue;
        }
        server.command(&["SCRIPT", "FLUSH"]);
        let without: Vec<_> = whole
            .iter()
            .copied()
            .filter(|&other| other != right)
            .collect();
        let found = codes(&user(&server, &without), sets()).await;
        assert!(!found.is_empty(), "without {right}");
        assert!(
            found.iter().all(|&code| code == "TOLLGATE-ACL"),
            "without {right}: {found:?}"
        );
    }
}
