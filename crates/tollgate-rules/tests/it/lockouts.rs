//! Lockouts in a file of rules.

use std::{convert::Infallible, time::Duration};

use http::{Request, Response, StatusCode};
use tollgate::{MemoryStore, Policy, Quota, store::Clock};
use tollgate_rules::{Descriptor, Limit, RuleLimiter, Rules};
use tollgate_tower::{RateLimitLayer, key::Global};
use tower::{Layer, ServiceExt, service_fn};

use super::{refused, rules};

const RULES: &str = "
domain: d
rate_limits:
- actions: [{request_headers: {header_name: x-account, descriptor_key: account}}]
descriptors:
- key: account
  rate_limit: {name: login, quota: 3/10m, algorithm: 'lockout(1m, 4m)'}
";

#[test]
fn a_lockout_has_the_times_of_its_file() {
    let set = rules(RULES);
    let descriptor = Descriptor::from([("account", "ann")]);
    let found = set.find("d", &descriptor).unwrap();
    let Limit::Policies(policies) = found.rule().limit() else {
        panic!("{found:?}")
    };
    let [minute, ten] = [1, 10].map(|minutes| Duration::from_secs(60 * minutes));
    let expected = Policy::lockout("login", Quota::new(3, ten), minute, 4 * minute);
    assert_eq!(policies.iter().collect::<Vec<_>>(), [&expected]);
}

#[test]
fn times_that_make_no_sense_are_refused_with_their_value() {
    for (algorithm, words) in [
        (
            "lockout",
            "algorithm \"lockout\" needs its first and its longest time, as in lockout(1m, 1h)",
        ),
        (
            "lockout(1m)",
            "algorithm \"lockout(1m)\" needs its first and its longest time, as in lockout(1m, 1h)",
        ),
        ("lockout(1m, soon)", "period \"soon\""),
        (
            "lockout(1h, 1m)",
            "algorithm \"lockout(1h, 1m)\" must not have a first time above its longest time",
        ),
    ] {
        let text = RULES.replace("lockout(1m, 4m)", algorithm);
        let error = refused(&text).to_string();
        assert!(
            error.contains("rate_limit") && error.contains(words),
            "{algorithm}: {error}"
        );
    }
    let error = refused(&RULES.replace("3/10m", "3/10m burst 5")).to_string();
    assert!(error.contains("burst"), "{error}");
}

#[tokio::test]
async fn failures_lock_out_for_twice_the_time_and_a_success_forgives() {
    let clock = Clock::manual(1_000_000_000);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let limiter = RuleLimiter::new(Rules::new(rules(RULES)), store);
    let layer = RateLimitLayer::builder(limiter.for_requests("d"), Global)
        .charge_on(|status| status == StatusCode::UNAUTHORIZED)
        .clear_on(|status| status.is_success())
        .build();
    let service = layer.layer(service_fn(|request: Request<u16>| async move {
        Ok::<_, Infallible>(
            Response::builder()
                .status(*request.body())
                .body(String::new())
                .unwrap(),
        )
    }));
    let log_in = async |account: &str, answer: u16| {
        let request = Request::get("/")
            .header("x-account", account)
            .body(answer)
            .unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        let wait = response
            .headers()
            .get("retry-after")
            .map(|wait| wait.to_str().unwrap().parse().unwrap());
        (response.status().as_u16(), wait)
    };
    // Two failures, and a success that forgives them.
    for answer in [401, 401, 200, 401, 401, 200] {
        assert_eq!(log_in("ann", answer).await, (answer, None));
    }
    for seconds in [60, 120, 240, 240] {
        for _ in 0..3 {
            assert_eq!(log_in("ann", 401).await, (401, None));
        }
        for _ in 0..2 {
            assert_eq!(log_in("ann", 200).await, (429, Some(seconds)));
        }
        assert_eq!(log_in("bob", 200).await, (200, None));
        clock.advance(Duration::from_secs(seconds) - Duration::from_micros(1));
        assert_eq!(log_in("ann", 200).await, (429, Some(1)));
        clock.advance(Duration::from_micros(1));
    }
    assert_eq!(log_in("ann", 200).await, (200, None));
    for _ in 0..3 {
        assert_eq!(log_in("ann", 401).await, (401, None));
    }
    assert_eq!(
        log_in("ann", 401).await,
        (429, Some(60)),
        "the success forgave the lockouts before, too"
    );
}
