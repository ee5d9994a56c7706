//! Mistakes of other limiters. Each test is named after the mistake and shows that it is not made
//! here.

use std::{sync::Barrier, time::Duration};

use tollgate::{Algorithm, Cost, Key, Policy, PolicySet, Quota, testing::ALGORITHMS};
use tollgate_test_support::{InRedis, START_US, Subject, calls::Script, integers, patient_limiter};
use tollgate_tests::{Client, RedisServer};

fn key() -> Key {
    Key::from("subject")
}

/// The same quota under every algorithm.
fn every(quota: Quota, check: impl Fn(&mut InRedis, PolicySet, Algorithm)) {
    let mut redis = InRedis::new();
    for algorithm in ALGORITHMS {
        // A log of millions of entries is not a valid policy.
        let Ok(policy) = Policy::try_new("p", algorithm, quota) else {
            continue;
        };
        redis.run(&["FLUSHALL"]);
        redis.set_now(START_US - START_US % 3_600_000_000);
        check(&mut redis, PolicySet::from(policy), algorithm);
    }
}

fn passed(redis: &mut InRedis, set: &PolicySet, attempts: u32) -> u32 {
    (0..attempts)
        .map(|_| u32::from(redis.check(set, &key(), 1).is_allowed()))
        .sum()
}

/// Spring's `request_rate_limiter.lua`: TTL = ⌊2 · capacity / rate⌋ seconds, which may be 0, and
/// then nothing is stored: 15 of 15 admitted.
#[test]
fn expiry_floored_to_whole_seconds() {
    let mut redis = InRedis::new();
    let set = PolicySet::from(Policy::token_bucket(
        "p",
        Quota::per_second(100).with_burst(10),
    ));
    assert_eq!(passed(&mut redis, &set, 15), 10);
    every(
        Quota::new(10, Duration::from_millis(100)),
        |redis, set, algorithm| {
            assert_eq!(passed(redis, &set, 15), 10, "{algorithm:?}");
        },
    );
}

/// The clock of the same script: around the edge of a second 20 of 10 are admitted, and no rate
/// below one per second can be configured.
#[test]
fn whole_second_clock() {
    let mut redis = InRedis::new();
    let set = PolicySet::from(Policy::token_bucket("p", Quota::per_second(10)));
    redis.set_now(4_000_000_000_999_999);
    assert_eq!(passed(&mut redis, &set, 20), 10);
    redis.advance(1);
    assert_eq!(passed(&mut redis, &set, 20), 0);
    every(
        Quota::one_every(Duration::from_secs(10)),
        |redis, set, algorithm| {
            assert_eq!(passed(redis, &set, 3), 1, "{algorithm:?}");
            redis.advance(9_999_999);
            assert_eq!(passed(redis, &set, 3), 0, "{algorithm:?}");
        },
    );
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

/// Two keys for one bucket: eviction takes one of them, and the bucket is torn.
#[test]
fn two_keys_for_one_bucket() {
    every(Quota::per_hour(10), |redis, set, algorithm| {
        let _ = redis.check(&set, &key(), 1);
        assert_eq!(redis.server.keys_and_expires(), (1, 1), "{algorithm:?}");
    });
}

/// `EXPIRE` on every hit: under load the window never ends.
#[test]
fn expire_on_every_hit() {
    every(Quota::per_minute(10), |redis, set, algorithm| {
        if !matches!(
            algorithm,
            Algorithm::FixedWindow | Algorithm::WindowFromFirstHit
        ) {
            return;
        }
        let mut admitted = 0;
        for _ in 0..60 {
            admitted += passed(redis, &set, 1);
            redis.advance(5_000_000);
        }
        assert_eq!(admitted, 50, "{algorithm:?}: 10 in each of 5 minutes");
    });
}

/// `INCR`, then `EXPIRE` in a second trip: a caller that dies in between leaves a key for ever.
#[test]
fn expiry_in_a_second_trip() {
    every(Quota::per_minute(10), |redis, set, algorithm| {
        let before = redis.server.info("commandstats").len();
        let _ = redis.check(&set, &key(), 1);
        let (keys, expires) = redis.server.keys_and_expires();
        assert_eq!(
            (keys, expires),
            (1, 1),
            "{algorithm:?}: one call makes the key and its expiry, {before}"
        );
    });
}

/// `GET`, compare, `INCR`: sixteen consumers all read 99, and all pass.
#[test]
fn read_then_write_race() {
    let server = RedisServer::start();
    for algorithm in ALGORITHMS {
        let set = PolicySet::from(
            Policy::try_new("race", algorithm, Quota::per_hour(100)).expect("a policy"),
        );
        let script = Script::new(set.clone());
        let mut first = server.client();
        assert!(
            !first
                .command(&["SCRIPT", "LOAD", script.text()])
                .expect("a reply")
                .is_error()
        );
        let key = Key::from(format!("{algorithm:?}"));
        let decide = |client: &mut Client, cost: u64| {
            let reply = client
                .command(&script.check(&key, Cost::new(cost), None))
                .expect("a reply");
            script
                .decision(Cost::new(cost), &integers(&reply))
                .expect("a decision")
                .is_allowed()
        };
        assert!(decide(&mut first, 99));
        let start = Barrier::new(16);
        let admitted: u32 = std::thread::scope(|scope| {
            let consumers: Vec<_> = (0..16)
                .map(|_| {
                    scope.spawn(|| {
                        let mut client = server.client();
                        start.wait();
                        u32::from(decide(&mut client, 1))
                    })
                })
                .collect();
            consumers
                .into_iter()
                .map(|consumer| consumer.join().expect("a consumer"))
                .sum()
        });
        assert_eq!(admitted, 1, "{algorithm:?}");
    }
}

/// The timestamp advances, the elapsed time is floored: a fast poller never gets a token.
#[test]
fn floored_elapsed_time_starves_a_fast_poller() {
    let mut redis = InRedis::new();
    let set = PolicySet::from(Policy::token_bucket("p", Quota::per_second(3)));
    assert_eq!(passed(&mut redis, &set, 4), 3);
    let mut admitted = 0;
    for _ in 0..3_000 {
        redis.advance(333);
        admitted += passed(&mut redis, &set, 1);
    }
    assert_eq!(admitted, 2, "0.999 s at 3 per second");
}

/// `elapsed == 0` taken for the first request: a drained bucket refills twice in one tick.
#[test]
fn no_time_elapsed_is_not_the_first_request() {
    every(Quota::per_minute(10), |redis, set, algorithm| {
        assert_eq!(passed(redis, &set, 100), 10, "{algorithm:?}");
    });
}

/// The caller's clock: 5 s behind, 20 of 20 are admitted at limit 5. Here the server's clock
/// decides: a call carries no time.
#[test]
fn the_callers_clock() {
    let script = Script::new(Policy::token_bucket("p", Quota::per_second(5)));
    let call = script.check(&key(), Cost::ONE, None);
    assert_eq!(call[2], b"1", "one key");
    assert_eq!(
        call[4][..8],
        (-1.0_f64).to_le_bytes(),
        "below zero is the server's clock"
    );
    assert_eq!(call.len(), 5, "the call has no other arguments");
}

/// Float state: a fresh bucket of 10 shows 8 after one hit.
#[test]
fn a_fresh_bucket_is_short_of_a_unit() {
    for amount in [1, 3, 7, 10, 99, 1_000] {
        every(Quota::per_second(amount), |redis, set, algorithm| {
            let decision = redis.check(&set, &key(), 1);
            let left = decision.states().next().expect("a state").remaining();
            assert_eq!(left, amount - 1, "{algorithm:?}");
        });
    }
}

/// An over-ask stored as negative tokens: each retry digs deeper.
#[test]
fn each_retry_digs_deeper() {
    every(Quota::per_minute(10), |redis, set, algorithm| {
        let _ = redis.check(&set, &key(), 8);
        let first = redis.check(&set, &key(), 5).retry_after();
        for _ in 0..50 {
            assert_eq!(
                redis.check(&set, &key(), 5).retry_after(),
                first,
                "{algorithm:?}"
            );
        }
        assert_eq!(passed(redis, &set, 5), 2, "{algorithm:?}");
    });
}

/// Above 1000 per second the interval becomes 0, and the limit is gone.
#[test]
fn a_rate_above_a_thousand_per_second_is_unlimited() {
    for amount in [1_001, 30_000, 3_000_000] {
        every(Quota::per_second(amount), |redis, set, algorithm| {
            assert!(redis.check(&set, &key(), amount).is_allowed());
            let denied = redis.check(&set, &key(), 1);
            assert!(denied.is_denied(), "{algorithm:?} at {amount}");
            assert!(denied.retry_after() > Some(Duration::ZERO));
        });
    }
}

/// Members that are only a time: two requests in one microsecond count once.
#[test]
fn two_requests_in_one_microsecond_count_once() {
    every(Quota::per_minute(10), |redis, set, algorithm| {
        for left in (0..10).rev() {
            let decision = redis.check(&set, &key(), 1);
            assert_eq!(
                decision.states().next().expect("a state").remaining(),
                left,
                "{algorithm:?}"
            );
        }
    });
}

/// Denied attempts stored in the log: memory follows the attack, and the client never comes back.
#[test]
fn denied_attempts_are_stored() {
    every(Quota::per_minute(10), |redis, set, algorithm| {
        assert_eq!(passed(redis, &set, 10), 10);
        let policy = set.iter().next().expect("a policy").clone();
        let before = redis.stored(&policy, &key());
        for _ in 0..5_000 {
            redis.advance(1_000);
            let _ = redis.check(&set, &key(), 1);
        }
        if algorithm == Algorithm::SlidingLog {
            assert_eq!(
                redis.stored(&policy, &key()),
                before,
                "the attack left a trace"
            );
        }
        redis.advance(120_000_000);
        assert_eq!(passed(redis, &set, 20), 10, "{algorithm:?}");
    });
}

/// A burst of 10 after idling 2, 5 or 8 seconds admits 11, 14 or 17.
#[test]
fn idling_adds_to_the_burst() {
    for idle in [2, 5, 8, 3_600] {
        every(Quota::per_second(1).with_burst(1), |redis, _, _| {
            let set = PolicySet::from(Policy::token_bucket(
                "b",
                Quota::per_second(1).with_burst(10),
            ));
            assert_eq!(passed(redis, &set, 1), 1);
            redis.advance(idle * 1_000_000);
            assert_eq!(passed(redis, &set, 40), 10, "after {idle} s");
            redis.reset(&set, &key());
        });
    }
}

/// `SCRIPT EXISTS` before each `EVALSHA`: an extra trip per request.
#[tokio::test]
async fn a_look_for_the_script_before_each_call() {
    let server = RedisServer::start();
    let store = tollgate::RedisStore::connect(server.url())
        .await
        .expect("a store");
    let limiter = patient_limiter(store, Policy::token_bucket("p", Quota::per_hour(100)));
    for _ in 0..20 {
        let _ = limiter.check("acme").await.expect("a decision");
    }
    assert_eq!(server.calls("script|exists"), 0);
    assert_eq!(server.calls("script|load"), 0);
    assert_eq!((server.calls("evalsha"), server.calls("eval")), (19, 1));
}
