//! A log in a sorted set on a real server, beside our script on the same server.

use std::time::Duration;

use tollgate::{Key, Policy, PolicySet, Quota};
use tollgate_test_support::{InRedis, Subject};

use super::{SECOND, START, assert_same_admissions, trace};

/// Removes entries that are older than the window, and adds one if fewer than the limit are left.
const SCRIPT: &str = "
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[2])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[4])
redis.call('EXPIRE', KEYS[1], 3600)
return 1";

#[test]
fn a_sliding_log_admits_what_a_sorted_set_admits() {
    const WINDOW: u64 = 60 * SECOND;
    let (mut peer, mut redis) = (InRedis::new(), InRedis::new());
    let policies = PolicySet::from(Policy::sliding_log(
        "api",
        Quota::new(10, Duration::from_micros(WINDOW)),
    ));
    let mut next = 0;
    let sorted_set = |now: u64| {
        next += 1;
        let [cutoff, score] = [START + now - WINDOW, START + now].map(|time| time.to_string());
        let member = format!("{score}-{next}");
        peer.run(&[
            "EVAL",
            SCRIPT,
            "1",
            "log:client",
            "10",
            &cutoff,
            &score,
            &member,
        ])
        .int()
            == 1
    };
    let ours = |now| {
        redis.set_now(START + now);
        redis.check(&policies, &Key::from("client"), 1).is_allowed()
    };
    let gaps = [0, 1, SECOND, 5 * SECOND, 10 * SECOND, WINDOW - 1, WINDOW];
    let mut times = trace(1, 1_000, &gaps[..5]);
    let end = times[times.len() - 1];
    times.extend(trace(2, 500, &gaps).iter().map(|now| end + now));
    assert_same_admissions(&times, sorted_set, ours);
}
