//! Mistakes of other limiters that no stream of checks shows: they are of the clock and of the
//! calls. The others are mutants, see `mutations.rs`.

use tollgate::{Cost, Key, Policy, PolicySet, Quota, testing::ALGORITHMS};
use tollgate_test_support::{
    InRedis, Subject, calls::Script, decided, integers, opened_store, patient_limiter,
};
use tollgate_tests::RedisServer;

fn key() -> Key {
    Key::from("subject")
}

/// The server's clock is read in microseconds.
#[test]
fn the_servers_clock_is_read_in_microseconds() {
    let mut redis = InRedis::new();
    let script = Script::new(Policy::fixed_window("p", Quota::per_day(1_000)));
    redis.load(script.text());
    let stamps: Vec<i64> = (0..50)
        .map(|_| {
            *integers(&redis.run(&script.check(&key(), Cost::ONE, None)))
                .last()
                .expect("the time")
        })
        .collect();
    assert!(
        stamps.windows(2).all(|pair| pair[0] < pair[1]),
        "{stamps:?}"
    );
    assert!(stamps.iter().any(|stamp| stamp % 1_000 != 0), "{stamps:?}");
    let time = redis.run(&["TIME".to_owned()]);
    let now = time.items()[0].int() * 1_000_000 + time.items()[1].int();
    assert!(
        (0..60_000_000).contains(&(now - stamps[0])),
        "the decision carries the server's time"
    );
}

/// Two keys for one bucket: eviction takes one of them, and the bucket is torn. `INCR`, then `EXPIRE`
/// in a second trip: a caller that dies in between leaves a key for ever.
#[test]
fn a_call_makes_one_key_with_its_expiry() {
    let mut redis = InRedis::new();
    for algorithm in ALGORITHMS {
        redis.run(&["FLUSHALL"]);
        let policy = Policy::try_new("p", algorithm, Quota::per_hour(10)).expect("a policy");
        let _ = redis.check(&PolicySet::from(policy), &key(), 1);
        assert_eq!(redis.server.keys_and_expires(), (1, 1), "{algorithm:?}");
    }
}

/// `SCRIPT EXISTS` before each `EVALSHA`: an extra trip per request.
#[tokio::test]
async fn a_look_for_the_script_before_each_call() {
    let server = RedisServer::start();
    let store = opened_store(server.url());
    let limiter = patient_limiter(store, Policy::token_bucket("p", Quota::per_hour(100)));
    for _ in 0..20 {
        let _ = decided(&limiter, "acme").await;
    }
    assert_eq!(server.calls("script|exists"), 0);
    assert_eq!(server.calls("script|load"), 0);
    assert_eq!((server.calls("evalsha"), server.calls("eval")), (19, 1));
}
