//! The mode `envoy`, in which answers are those of Envoy's service.

use std::time::{Duration, SystemTime};

use tollgate_envoy::{
    LimitHeaderNames, RateLimitService,
    proto::ratelimit::{RateLimitResponse, rate_limit_response::Code},
};
use tollgate_rules::Compat;

use crate::support::{descriptor, limiter, request, tenant};

const RULES: &str = "
domain: shop
descriptors:
  - {key: tenant, rate_limit: {unit: day, requests_per_unit: 4}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: one, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: two, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 2}}
";

fn service() -> RateLimitService {
    RateLimitService::builder(limiter(RULES, Compat::Envoy))
        .limit_headers(LimitHeaderNames::default())
        .build()
}

fn remaining(response: &RateLimitResponse) -> Vec<u32> {
    response
        .statuses
        .iter()
        .map(|status| status.limit_remaining)
        .collect()
}

/// Returns the whole seconds to midnight in UTC.
fn to_midnight() -> u64 {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    86_400 - now % 86_400
}

#[tokio::test]
async fn a_descriptor_that_stands_again_finds_the_counter_that_its_denial_raised() {
    const OVER: i32 = Code::OverLimit as i32;
    // The units of the descriptors, and for each one its code and the units that are left.
    for (hits, expected) in [
        (&[5, 1][..], &[(OVER, 0), (OVER, 0)][..]),
        (&[3, 3, 0, 1], &[(1, 1), (OVER, 0), (OVER, 0), (OVER, 0)]),
        (&[2, 2, 0], &[(1, 2), (1, 0), (1, 0)]),
    ] {
        let service = service();
        let mut asked = request(hits.iter().map(|_| descriptor("tenant", "a")));
        for (descriptor, hits) in asked.descriptors.iter_mut().zip(hits) {
            descriptor.hits_addend = Some(*hits);
        }
        let response = service.decide(&asked).await.unwrap();
        let found: Vec<_> = response
            .statuses
            .iter()
            .map(|status| (status.code, status.limit_remaining))
            .collect();
        assert_eq!(found, expected, "{hits:?}");
        let counters = service
            .metrics()
            .counters(service.limiter().rules().loads());
        let over: u64 = counters
            .iter()
            .filter(|(name, _)| name.ends_with("tenant.over_limit"))
            .map(|one| one.1)
            .sum();
        assert_eq!(
            over,
            hits.iter().sum::<u64>().saturating_sub(4),
            "{counters:?}"
        );
        // The window is used up.
        assert_eq!(
            service.decide(&tenant("a")).await.unwrap().overall_code(),
            Code::OverLimit
        );
    }
}

/// The cases of Envoy's service.
#[tokio::test]
async fn units_that_are_given_back_lower_the_counter() {
    // The units that are given back are below 0. The last column is the units that are left.
    for (limit, steps) in [
        (50, &[(5, 45), (-3, 48), (1, 47)][..]),
        (10, &[(2, 8), (-5, 10)]),
        (10, &[(8, 2), (2, 0), (1, 0), (-3, 2)]),
        (10, &[(15, 0), (-3, 0), (-4, 2)]),
    ] {
        let rules = format!(
            "{{domain: shop, descriptors: [{{key: tenant, rate_limit: {{unit: day, requests_per_unit: {limit}}}}}]}}"
        );
        let service = RateLimitService::new(limiter(&rules, Compat::Envoy));
        let (mut spent, mut returned) = (0, 0);
        for (hits, left) in steps {
            let mut asked = tenant("acme");
            asked.descriptors[0].hits_addend = Some(i64::unsigned_abs(*hits));
            asked.descriptors[0].is_negative_hits = *hits < 0;
            let response = service.decide(&asked).await.unwrap();
            let sum = if *hits < 0 {
                assert_eq!(response.overall_code(), Code::Ok, "{steps:?}");
                &mut returned
            } else {
                &mut spent
            };
            *sum += hits.unsigned_abs();
            let status = &response.statuses[0];
            assert_eq!(status.limit_remaining, *left, "{steps:?}");
            assert_eq!(
                status.current_limit.as_ref().unwrap().requests_per_unit,
                limit
            );
        }
        let loads = service.limiter().rules().loads();
        let counters = service.metrics().counters(loads);
        for (name, count) in [("total_hits", spent), ("total_negative_hits", returned)] {
            let name = format!("ratelimit.service.rate_limit.shop.tenant.{name}");
            assert!(counters.contains(&(name, count)), "{counters:?}");
        }
    }
}

#[tokio::test]
async fn the_reset_is_the_whole_seconds_to_the_end_of_the_window() {
    let service = service();
    let mut look = tenant("fresh");
    look.descriptors[0].hits_addend = Some(0);
    for asked in [look, tenant("spent")] {
        let before = to_midnight();
        let response = service.decide(&asked).await.unwrap();
        let after = to_midnight();
        let reset: Duration = response.statuses[0]
            .duration_until_reset
            .unwrap()
            .try_into()
            .unwrap();
        assert_eq!(reset.subsec_nanos(), 0);
        let is_near = (after..=before).contains(&reset.as_secs()) || after > before;
        assert!(is_near, "{reset:?}, {before} to {after}");
        let field = response
            .response_headers_to_add
            .iter()
            .find(|field| field.key == "RateLimit-Reset")
            .unwrap();
        assert_eq!(field.value, reset.as_secs().to_string());
    }
}

#[tokio::test]
async fn shadowed_rules_pass_and_tell_that_nothing_is_left() {
    let service = service();
    let shadow = request([descriptor("shadow", "x")]);
    service.decide(&shadow).await.unwrap();
    let response = service.decide(&shadow).await.unwrap();
    assert_eq!(
        (response.overall_code(), remaining(&response)),
        (Code::Ok, vec![0])
    );
    assert_eq!(response.statuses[0].code(), Code::Ok);
}
