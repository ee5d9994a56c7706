//! Decisions on a real Redis server.

use tollgate::{Outage, RedisStore};
use tollgate_envoy::{RateLimitService, proto::ratelimit::rate_limit_response::Code};
use tollgate_rules::{Compat, RuleLimiter};
use tollgate_tests::{RedisServer, no_server};

use crate::support::{LIMIT, RULES, Running, rules, tenant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_share_one_limit() {
    if no_server() {
        return;
    }
    let redis = RedisServer::start();
    let years = RULES.replace("unit: day", "unit: year");
    let mut clients = Vec::new();
    let mut servers = Vec::new();
    for _ in 0..2 {
        let store = RedisStore::connect(redis.url().as_str()).await.unwrap();
        // A busy machine must not make an outage of a slow answer.
        let limiter = RuleLimiter::builder(rules(&years, Compat::Native), store)
            .deadline(LIMIT)
            .on_outage(Outage::Closed);
        let server = Running::start(RateLimitService::new(limiter.build())).await;
        clients.push(server.client().await);
        servers.push(server);
    }
    let calls = (0..60).map(|call| {
        let mut client = clients[call % 2].clone();
        tokio::spawn(async move {
            client
                .should_rate_limit(tenant("acme"))
                .await
                .unwrap()
                .into_inner()
                .overall_code()
        })
    });
    let mut passed = 0;
    for call in calls.collect::<Vec<_>>() {
        passed += usize::from(call.await.unwrap() == Code::Ok);
    }
    assert_eq!(passed, 10);
}

fn store_errors(service: &RateLimitService) -> u64 {
    let counters = service
        .metrics()
        .counters(service.limiter().rules().loads());
    counters
        .iter()
        .find(|(name, _)| name.ends_with(".redis_error"))
        .map_or(0, |(_, count)| *count)
}

#[tokio::test]
async fn an_outage_has_the_stated_answer_and_is_counted() {
    if no_server() {
        return;
    }
    for (outage, is_answered) in [
        (Outage::Open, true),
        (Outage::default(), true),
        (Outage::Closed, false),
    ] {
        let redis = RedisServer::start();
        let store = RedisStore::connect(redis.url().as_str()).await.unwrap();
        let limiter = RuleLimiter::builder(rules(RULES, Compat::Native), store)
            .deadline(LIMIT)
            .on_outage(outage);
        let service = RateLimitService::new(limiter.build());
        assert!(service.decide(&tenant("acme")).await.is_ok());
        assert_eq!(store_errors(&service), 0);
        redis.kill();
        match service.decide(&tenant("acme")).await {
            Ok(response) => assert!(
                is_answered && response.overall_code() == Code::Ok,
                "{outage:?}"
            ),
            Err(status) => assert!(
                !is_answered && status.code() == tonic::Code::Unavailable,
                "{status}"
            ),
        }
        assert_eq!(store_errors(&service), 1, "{outage:?}");
    }
}

#[tokio::test]
async fn replicas_in_the_mode_envoy_share_the_memory_of_an_exceeded_limit() {
    if no_server() {
        return;
    }
    const RULES: &str = "{domain: shop, descriptors: [{key: tenant, rate_limit: {unit: year, requests_per_unit: 10}}]}";
    let redis = RedisServer::start();
    let mut services = Vec::new();
    for _ in 0..2 {
        let store = RedisStore::connect(redis.url().as_str()).await.unwrap();
        let limiter = RuleLimiter::builder(rules(RULES, Compat::Envoy), store)
            .deadline(LIMIT)
            .on_outage(Outage::Closed);
        services.push(RateLimitService::new(limiter.build()));
    }
    let ask = async |service: &RateLimitService, hits| {
        let mut request = tenant("acme");
        request.descriptors[0].hits_addend = Some(hits);
        service.decide(&request).await.unwrap().overall_code()
    };
    let [first, second] = &*services else {
        panic!("there are two")
    };
    assert_eq!(ask(first, 10).await, Code::Ok);
    // The window is full, and nobody has asked for more.
    assert_eq!(ask(second, 0).await, Code::Ok);
    assert_eq!(ask(first, 1).await, Code::OverLimit);
    assert_eq!(ask(second, 0).await, Code::OverLimit);
}
