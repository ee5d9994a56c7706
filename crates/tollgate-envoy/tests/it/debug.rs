//! The pages for operators.

use tollgate_envoy::RateLimitService;
use tollgate_rules::{Compat, Rules};

use crate::support::{RULES, Running, http, limiter, service, tenant};

#[tokio::test]
async fn the_rules_in_force_are_printed() {
    let server = Running::start(service()).await;
    let (status, text) = http(server.page("debug pages"), "GET /rlconfig", "").await;
    assert_eq!(status, 200);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[0],
        "shop.tenant: unit=DAY requests_per_unit=10, shadow_mode: false, quota_mode: false"
    );
    assert!(
        text.contains("shop.tenant_free: unit=UNKNOWN requests_per_unit=0, unlimited: true,"),
        "{text}"
    );
    assert!(
        text.contains("shop.route_/never: unit=MINUTE requests_per_unit=0,"),
        "{text}"
    );
}

#[tokio::test]
async fn mistakes_of_a_reload_are_printed_below_the_rules() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.yaml");
    std::fs::write(&path, RULES).unwrap();
    let rules = Rules::load(&path).unwrap();
    let limiter = tollgate_rules::RuleLimiter::new(rules.clone(), tollgate::MemoryStore::new());
    let server = Running::start(RateLimitService::new(limiter)).await;
    std::fs::write(&path, "domain: ''").unwrap();
    assert!(rules.reload().is_err());
    let (_, text) = http(server.page("debug pages"), "GET /rlconfig", "").await;
    assert!(text.contains("shop.tenant: unit=DAY"), "{text}");
    assert!(
        text.contains("# refused") && text.contains("must not be empty"),
        "{text}"
    );
}

#[tokio::test]
async fn names_of_rules_cannot_forge_lines() {
    let long = "x".repeat(10_000);
    let yaml = format!(
        "domain: shop\ndescriptors:\n- {{key: \"a\\nshop.b: unit=DAY\\e[2J\", rate_limit: {{unit: hour, requests_per_unit: 1}}}}\n\
         - {{key: {long}, rate_limit: {{unit: hour, requests_per_unit: 1}}}}\n"
    );
    let server = Running::start(RateLimitService::new(limiter(&yaml, Compat::Native))).await;
    let (_, text) = http(server.page("debug pages"), "GET /rlconfig", "").await;
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[0],
        "shop.a_shop.b_ unit=DAY_[2J: unit=HOUR requests_per_unit=1, shadow_mode: false, quota_mode: false"
    );
    assert!(
        lines.len() == 2 && lines[1].len() < 400,
        "{} lines",
        lines.len()
    );
}

#[tokio::test]
async fn the_counters_are_printed() {
    let service = RateLimitService::new(limiter(RULES, Compat::Native));
    let server = Running::start(service.clone()).await;
    service.decide(&tenant("acme")).await.unwrap();
    let (_, text) = http(server.page("debug pages"), "GET /stats", "").await;
    assert!(
        text.contains("ratelimit.service.rate_limit.shop.tenant.total_hits: 1\n"),
        "{text}"
    );
    assert!(
        text.contains("ratelimit.service.config_load_success: 1\n"),
        "{text}"
    );
    let (_, text) = http(server.page("debug pages"), "GET /", "").await;
    assert!(text.contains("/rlconfig") && text.contains("/stats"));
}
