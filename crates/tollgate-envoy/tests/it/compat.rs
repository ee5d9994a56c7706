//! The mode `envoy`, in which answers are those of Envoy's service.

use tollgate_envoy::{RateLimitService, proto::ratelimit::rate_limit_response::Code};
use tollgate_rules::Compat;

use crate::support::{limiter, tenant};

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
