//! The limiter of Spring Cloud Gateway: its script on a real server, and a model of it for short
//! expiries.

use tollgate::{Key, Policy, PolicySet, Quota};
use tollgate_rules::{Format, RuleSet, spring};
use tollgate_test_support::{Dice, InRedis, Subject};

use super::{SECOND, START, assert_same_admissions, in_process, trace};

/// Decides as `request_rate_limiter.lua` does, in other words. It gets the time as an argument,
/// which that script allows.
const SCRIPT: &str = "
local rate, capacity, now, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local tokens = tonumber(redis.call('GET', KEYS[1]) or capacity)
local refilled = tonumber(redis.call('GET', KEYS[2]) or 0)
tokens = math.min(capacity, tokens + math.max(0, now - refilled) * rate)
local passes = tokens >= wanted
if passes then tokens = tokens - wanted end
local ttl = math.floor(capacity / rate * 2)
if ttl > 0 then
  redis.call('SETEX', KEYS[1], ttl, tokens)
  redis.call('SETEX', KEYS[2], ttl, now)
end
return passes and 1 or 0";

/// Returns the policy of a route, as the command converts it.
fn policy(rate: u64, burst: u64, requested: u64) -> Policy {
    let text = format!(
        "spring.cloud.gateway.routes:\n- id: users\n  filters:\n  - name: RequestRateLimiter\n    args:\n      \
         redis-rate-limiter: {{replenish-rate: {rate}, burst-capacity: {burst}, requested-tokens: {requested}}}\n"
    );
    let rules = RuleSet::parse(
        &spring::convert(&text, &[], &|_| None).expect("rules"),
        Format::Yaml,
    )
    .expect("rules");
    let policies = rules
        .rules()
        .find_map(|rule| rule.policies())
        .expect("a policy");
    policies.iter().next().expect("a policy").clone()
}

/// Returns the whole seconds of the gateway's clock.
fn seconds(now: u64) -> u64 {
    (START + now) / SECOND
}

/// Decides as the script does where no state expires too early.
fn model(rate: u64, burst: u64, requested: u64) -> impl FnMut(u64) -> bool {
    let (mut tokens, mut refilled) = (burst, 0);
    move |now| {
        tokens = burst.min(tokens + (seconds(now) - refilled) * rate);
        refilled = seconds(now);
        let passes = tokens >= requested;
        tokens -= if passes { requested } else { 0 };
        passes
    }
}

#[test]
fn a_route_admits_at_whole_seconds_what_the_script_of_the_gateway_admits() {
    // The state of these buckets lives for minutes, so a slow machine changes nothing.
    for (at, (rate, burst, requested)) in [(1, 60, 1), (1, 60, 60), (3, 200, 7)]
        .into_iter()
        .enumerate()
    {
        let (mut peer, mut redis) = (InRedis::new(), InRedis::new());
        let policies = PolicySet::from(policy(rate, burst, requested));
        let script = |now: u64| {
            let arguments = [rate, burst, seconds(now), requested].map(|number| number.to_string());
            let keys = [
                "EVAL",
                SCRIPT,
                "2",
                "request_rate_limiter.{users.u}.tokens",
                "request_rate_limiter.{users.u}.timestamp",
            ];
            peer.run(&[&keys[..], &arguments.each_ref().map(String::as_str)].concat())
                .int()
                == 1
        };
        let mut model = model(rate, burst, requested);
        let ours = |now| {
            redis.set_now(START + now);
            let allowed = redis
                .check(&policies, &Key::from("u"), requested)
                .is_allowed();
            assert_eq!(model(now), allowed, "the model");
            allowed
        };
        let gaps = [vec![0; 60], vec![SECOND, 2 * SECOND, 30 * SECOND]].concat();
        assert_same_admissions(&trace(at as u64, 1_000, &gaps), script, ours);
    }
}

#[test]
fn a_fast_route_admits_at_whole_seconds_what_the_gateway_admits() {
    let policy = policy(10, 20, 1);
    for seed in 0..20 {
        let times = trace(
            seed,
            1_000,
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, SECOND, 5 * SECOND],
        );
        assert_same_admissions(&times, model(10, 20, 1), in_process(policy.clone()));
    }
}

#[test]
fn around_the_edge_of_a_second_the_gateway_admits_twice_the_burst_and_the_exact_bucket_once() {
    let edge: Vec<_> = [SECOND - 1, SECOND]
        .iter()
        .flat_map(|now| [*now; 10])
        .collect();
    let (mut theirs, mut ours) = (model(10, 10, 1), in_process(policy(10, 10, 1)));
    let count =
        |admits: &mut dyn FnMut(u64) -> bool| edge.iter().filter(|now| admits(**now)).count();
    assert_eq!((count(&mut theirs), count(&mut ours)), (20, 10));
}

#[test]
fn a_client_that_sends_each_second_not_quite_exactly_needs_a_burst_of_two() {
    let mut dice = Dice::new(1);
    // In the middle of a second, up to half a millisecond early or late.
    let times: Vec<_> = (0..2_000)
        .map(|tick| tick * SECOND + SECOND / 2 + dice.pick(&[0, 250, 500, 750, 1_000]))
        .collect();
    let count =
        |mut admits: Box<dyn FnMut(u64) -> bool>| times.iter().filter(|now| admits(**now)).count();
    let ours = |burst| {
        in_process(Policy::token_bucket(
            "users",
            Quota::per_second(1).with_burst(burst),
        ))
    };
    let [spring, one, two] = [
        count(Box::new(model(1, 1, 1))),
        count(Box::new(ours(1))),
        count(Box::new(ours(2))),
    ];
    assert_eq!([spring, two], [2_000, 2_000]);
    assert!(
        (1_200..1_500).contains(&one),
        "{one} of 2 000 came a second or more after the one before"
    );
}
