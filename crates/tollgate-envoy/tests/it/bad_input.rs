//! Requests that are wrong, large, or come at a bad moment.

use tollgate_envoy::{
    RateLimitService,
    proto::ratelimit::{
        RateLimitRequest, rate_limit_descriptor::RateLimitOverride, rate_limit_response::Code,
    },
};
use tollgate_rules::{Compat, Format, RuleLimiter, RuleSet, Rules};
use tonic::Code as Grpc;

use crate::support::{RULES, Running, descriptor, limiter, request, service, tenant};

async fn refused(service: &RateLimitService, asked: &RateLimitRequest) -> (Grpc, String) {
    let status = service.decide(asked).await.unwrap_err();
    (status.code(), status.message().to_owned())
}

fn errors(service: &RateLimitService) -> Vec<(String, u64)> {
    let loads = service.limiter().rules().loads();
    let counters = service.metrics().counters(loads).into_iter();
    counters
        .filter(|(name, _)| name.contains("_error") || name.contains("not_found"))
        .collect()
}

#[tokio::test]
async fn a_wrong_request_is_an_invalid_argument() {
    for mode in [Compat::Native, Compat::Envoy] {
        let service = RateLimitService::new(limiter(
            "{domain: shop, descriptors: [{key: tenant}]}",
            mode,
        ));
        let mut no_domain = tenant("acme");
        no_domain.domain.clear();
        let message = "rate limit domain must not be empty".to_owned();
        assert_eq!(
            refused(&service, &no_domain).await,
            (Grpc::InvalidArgument, message)
        );
        let message = "rate limit descriptor list must not be empty".to_owned();
        assert_eq!(
            refused(&service, &request([])).await,
            (Grpc::InvalidArgument, message)
        );
        for unit in [0, 8, -1] {
            let mut asked = tenant("acme");
            asked.descriptors[0].limit = Some(RateLimitOverride {
                requests_per_unit: 5,
                unit,
            });
            let (code, message) = refused(&service, &asked).await;
            assert_eq!(code, Grpc::InvalidArgument);
            assert!(
                message.starts_with("descriptors[0].limit.unit: "),
                "{message}"
            );
        }
        assert_eq!(
            errors(&service),
            [(
                "ratelimit.service.call.should_rate_limit.service_error".to_owned(),
                5
            )]
        );
    }
}

#[tokio::test]
async fn an_unknown_domain_passes_and_is_counted() {
    let service = service();
    let mut asked = request([descriptor("tenant", "acme"), descriptor("tenant", "once")]);
    asked.domain = "elsewhere".to_owned();
    asked.descriptors[1].limit = Some(RateLimitOverride {
        requests_per_unit: 0,
        unit: 1,
    });
    let response = service.decide(&asked).await.unwrap();
    assert_eq!(
        (response.overall_code(), response.statuses.len()),
        (Code::Ok, 2)
    );
    assert_eq!(
        errors(&service),
        [(
            "ratelimit.service.rate_limit.unknown.domain_not_found".to_owned(),
            2
        )]
    );
}

#[tokio::test]
async fn a_request_before_the_rules_is_unavailable() {
    let rules = Rules::empty(RuleSet::builder(), None);
    let service = RateLimitService::new(RuleLimiter::new(
        rules.clone(),
        tollgate::MemoryStore::new(),
    ));
    let (code, message) = refused(&service, &tenant("acme")).await;
    assert_eq!(
        (code, message.as_str()),
        (Grpc::Unavailable, "no rate limit configuration loaded")
    );
    rules.replace(RuleSet::parse(RULES, Format::Yaml).unwrap());
    assert!(service.decide(&tenant("acme")).await.is_ok());
}

#[tokio::test]
async fn ten_thousand_descriptors_are_refused_unless_allowed() {
    let many = request((0..10_000).map(|count| descriptor("tenant", &count.to_string())));
    let server = Running::start(service()).await;
    let status = server
        .client()
        .await
        .should_rate_limit(many.clone())
        .await
        .unwrap_err();
    assert_eq!(status.code(), Grpc::InvalidArgument);
    assert_eq!(
        status.message(),
        "a request must have at most 1000 descriptors, got 10000"
    );

    let service = RateLimitService::builder(limiter(RULES, Compat::Native))
        .max_descriptors(10_000)
        .build();
    let response = service.decide(&many).await.unwrap();
    assert_eq!(
        (response.overall_code(), response.statuses.len()),
        (Code::Ok, 10_000)
    );
    assert!(
        response
            .statuses
            .iter()
            .all(|status| status.limit_remaining == 9)
    );
}

#[tokio::test]
async fn too_many_entries_and_too_large_a_message_are_refused() {
    let server = Running::start(service()).await;
    let mut client = server.client().await;
    let mut wide = tenant("acme");
    wide.descriptors[0].entries = vec![wide.descriptors[0].entries[0].clone(); 10_001];
    assert_eq!(
        client.should_rate_limit(wide).await.unwrap_err().code(),
        Grpc::InvalidArgument
    );
    let large = tenant(&"x".repeat(2 << 20));
    assert_eq!(
        client.should_rate_limit(large).await.unwrap_err().code(),
        Grpc::OutOfRange
    );
    assert_eq!(
        client
            .should_rate_limit(tenant("acme"))
            .await
            .unwrap()
            .into_inner()
            .overall_code(),
        Code::Ok
    );
}

#[tokio::test]
async fn keys_of_a_hundred_kilobytes_are_limited() {
    let server = Running::start(service()).await;
    let mut client = server.client().await;
    let long = "x".repeat(100_000);
    for remaining in [9, 8] {
        let response = client
            .should_rate_limit(tenant(&long))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(response.statuses[0].limit_remaining, remaining);
    }
    let other = format!("{long}y");
    assert_eq!(
        client
            .should_rate_limit(tenant(&other))
            .await
            .unwrap()
            .into_inner()
            .statuses[0]
            .limit_remaining,
        9
    );
    let unknown = client
        .should_rate_limit(request([descriptor(&long, &long)]))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(unknown.overall_code(), Code::Ok);
}
