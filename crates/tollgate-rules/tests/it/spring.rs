//! The limits of a Spring Cloud Gateway, as they stand in its file.

use std::time::Duration;

use tollgate::{Limiter, MemoryStore, Quota, store::Clock};
use tollgate_rules::{
    RuleErrorKind, RuleLimiter, Rules,
    spring::{EmptyKey, Gateway},
};

fn gateway(text: &str) -> Gateway {
    Gateway::parse(text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Returns the message of a text with one mistake.
fn mistake(text: &str) -> String {
    let errors = Gateway::parse(text).expect_err("the text is wrong");
    assert_eq!(errors.count(), 1, "{errors}");
    errors.to_string()
}

fn with_args(args: &str) -> String {
    format!(
        "spring.cloud.gateway.routes:\n- id: a\n  filters:\n  - name: RequestRateLimiter\n    args:\n      {}\n",
        args.replace('\n', "\n      ")
    )
}

fn numbers(gateway: &Gateway, route: &str) -> (u64, u64, u64) {
    let limit = gateway.limit(route).unwrap();
    (limit.replenish_rate(), limit.burst_capacity(), limit.requested_tokens())
}

#[test]
fn both_spellings_nested_and_joined_names_and_both_prefixes_are_one() {
    for text in [
        "
spring:
  cloud:
    gateway:
      routes:
      - id: a
        filters:
        - name: RequestRateLimiter
          args:
            redis-rate-limiter.replenishRate: 10
            redis-rate-limiter.burstCapacity: 20
            redis-rate-limiter.requestedTokens: 3
            keyResolver: '#{@user}'
            denyEmptyKey: false",
        "
spring.cloud.gateway.server.webflux:
  routes:
  - id: a
    filters:
    - name: RequestRateLimiter
      args:
        redis-rate-limiter:
          replenish-rate: '10'
          burst-capacity: 20
          requested_tokens: 3
        key-resolver: '#{@user}'
        deny-empty-key: 'FALSE'",
        "
spring.cloud:
  gateway.routes:
  - {id: a, filters: [{name: RequestRateLimiter}]}
  gateway.redis-rate-limiter.config.a: {replenish-rate: 10, burstCapacity: 20, requested-tokens: 3}
  gateway.filter.requestRateLimiter.denyEmptyKey: false
  gateway.default-filters:",
        "
spring:
  cloud:
    gateway:
      server:
        webflux:
          defaultFilters:
          - name: RequestRateLimiter
            args.redis-rate-limiter: {replenish-rate: 10, burst-capacity: 20, requested-tokens: 3}
            args.deny-empty-key: off
          routes:
          - a=https://example.org,Path=/",
    ] {
        let gateway = gateway(text);
        assert_eq!(numbers(&gateway, "a"), (10, 20, 3), "{text}");
        let limit = gateway.limit("a").unwrap();
        assert_eq!((limit.empty_key(), limit.cost(), limit.status()), (EmptyKey::Allow, 3, 429), "{text}");
        assert_eq!(limit.policy().unwrap().quota(), Quota::per_second(10).with_burst(20));
    }
}

#[test]
fn a_request_without_a_key_is_answered_as_the_gateway_says() {
    let text = with_args("redis-rate-limiter: {replenish-rate: 1, burst-capacity: 1}");
    assert_eq!(gateway(&text).limit("a").unwrap().empty_key(), EmptyKey::Deny(403));
    let status = format!("{text}\nspring.cloud.gateway.filter.request-rate-limiter.empty-key-status-code: not_found");
    assert_eq!(gateway(&status).limit("a").unwrap().empty_key(), EmptyKey::Deny(404));
    let allow = format!("{text}\nspring.cloud.gateway.filter.request-rate-limiter.deny-empty-key: false");
    assert_eq!(gateway(&allow).limit("a").unwrap().empty_key(), EmptyKey::Allow);

    // The filter's own settings come first.
    let own = text.replace("redis-rate", "deny-empty-key: true\n      empty-key-status: 401\n      redis-rate");
    let own = format!("{own}\nspring.cloud.gateway.filter.request-rate-limiter.deny-empty-key: false");
    assert_eq!(gateway(&own).limit("a").unwrap().empty_key(), EmptyKey::Deny(401));
    let named = text.replace("redis-rate", "empty-key-status: UNAUTHORIZED\n      statusCode: 503\n      redis-rate");
    let limit = gateway(&named).limit("a").unwrap().clone();
    assert_eq!((limit.empty_key(), limit.status()), (EmptyKey::Deny(401), 503));
}

const DEFAULTS: &str = "
spring.cloud.gateway:
  default-filters:
  - name: RequestRateLimiter
    args: {redis-rate-limiter: {replenish-rate: 5, burst-capacity: 8}}
  routes:
  - {id: plain, filters: [StripPrefix=1]}
  - id: own
    filters:
    - {name: RequestRateLimiter, args: {redis-rate-limiter: {replenish-rate: 1, burst-capacity: 4}}}
  - {id: gone, enabled: false, filters: [{name: RequestRateLimiter, args: {typo: 1}}]}
";

#[tokio::test]
async fn default_filters_limit_every_route_and_join_its_own_filter_in_one_bucket() {
    let gateway = gateway(DEFAULTS);
    let costs = ["plain", "own", "gone", "of java"].map(|route| gateway.limit(route).unwrap().cost());
    assert_eq!((numbers(&gateway, "plain"), costs), ((5, 8, 1), [1, 2, 1, 1]));
    assert_eq!(numbers(&gateway, "own"), (1, 4, 1));
    assert_eq!(
        gateway.limits().iter().map(|limit| limit.route()).collect::<Vec<_>>(),
        [Some("plain"), Some("own"), None]
    );

    let store = MemoryStore::builder().clock(Clock::manual(0)).build();
    let limiter = RuleLimiter::new(Rules::new(gateway.rules().clone()), store);
    let mut admitted = Vec::new();
    for (route, key) in [("plain", "x"), ("plain", "y"), ("own", "x"), ("of java", "x"), ("other", "x")] {
        let request = [gateway.descriptor(route, key).unwrap()];
        let mut count = 0;
        while limiter.check(Gateway::DOMAIN, &request, 1).await.unwrap().is_allowed() {
            count += 1;
        }
        admitted.push(count);
    }
    assert_eq!(admitted, [8, 8, 2, 8, 8], "each route and each key has a bucket");
}

#[tokio::test]
async fn rules_and_policies_of_a_route_admit_the_same() {
    let gateway = gateway(&with_args(
        "redis-rate-limiter.replenish-rate: 1\nredis-rate-limiter.burst-capacity: 60\nredis-rate-limiter.requested-tokens: 20",
    ));
    let limit = gateway.limit("a").unwrap();
    assert_eq!(gateway.rules().rules().next().unwrap().policies().unwrap().iter().next(), limit.policy());

    let clock = Clock::manual(0);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let rules = RuleLimiter::new(Rules::new(gateway.rules().clone()), store.clone());
    let policy = Limiter::new(store, limit.policy().unwrap().clone());
    let mut admitted = 0;
    for _ in 0..120 {
        let by_rule =
            rules.check(Gateway::DOMAIN, &[gateway.descriptor("a", "x").unwrap()], 1).await.unwrap().is_allowed();
        assert_eq!(policy.check("x").cost(tollgate::Cost::new(limit.cost())).await.unwrap().is_allowed(), by_rule);
        admitted += u32::from(by_rule);
        clock.advance(Duration::from_secs(1));
    }
    assert_eq!(admitted, 3 + 119 / 20, "60 units at once, and 20 more every 20 seconds");
}

#[tokio::test]
async fn the_rate_that_is_configured_is_shown_also_above_the_burst() {
    use http::{Request, Response};
    use tollgate_tower::{HeaderFormat, RateLimitLayer, key::Global};
    use tower::{Layer, ServiceExt, service_fn};

    let gateway = gateway(&with_args("redis-rate-limiter.replenish-rate: 2"));
    let policy = gateway.limit("a").unwrap().policy().unwrap();
    assert_eq!(gateway.rules().rules().next().unwrap().policies().unwrap().iter().next(), Some(policy));

    let clock = Clock::manual(0);
    let limiter = Limiter::new(MemoryStore::builder().clock(clock.clone()).build(), policy.clone());
    let layer = RateLimitLayer::builder(limiter, Global).header_format(HeaderFormat::Spring).build();
    let service =
        layer.layer(service_fn(async |_: Request<()>| Ok::<_, std::convert::Infallible>(Response::new(String::new()))));
    // The gateway fills the bucket of one unit each second, whatever the rate.
    for status in [200, 429, 200, 429] {
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(response.headers()["x-ratelimit-replenish-rate"], "2");
        assert_eq!(response.headers()["x-ratelimit-burst-capacity"], "1");
        clock.advance(Duration::from_millis(500));
    }
}

#[tokio::test]
async fn a_burst_of_zero_denies_every_request() {
    let gateway =
        gateway(&with_args("redis-rate-limiter: {replenish-rate: 1, burst-capacity: 0, requested-tokens: 3}"));
    let limiter = RuleLimiter::new(Rules::new(gateway.rules().clone()), MemoryStore::new());
    let request = [gateway.descriptor("a", "x").unwrap()];
    assert!(limiter.check(Gateway::DOMAIN, &request, 1).await.unwrap().is_denied());
}

#[test]
fn requested_tokens_above_the_burst_are_refused_where_they_stand() {
    let args = |tokens: u64| {
        format!("redis-rate-limiter: {{replenish-rate: 1, burst-capacity: 2, requested-tokens: {tokens}}}")
    };
    assert_eq!(
        mistake(&with_args(&args(3))),
        "line 4, column 5: spring.cloud.gateway.routes[0].filters[0]: a request spends 3 units, above burst-capacity (2): \
         every request is denied, write burst-capacity: 0 if that is meant"
    );
    assert_eq!(numbers(&gateway(&with_args(&args(2))), "a"), (1, 2, 2));
}

#[test]
fn mistakes_are_reported_with_place_and_field() {
    let base = "line 6, column 7: spring.cloud.gateway.routes[0].filters[0].args";
    for (args, expected) in [
        (
            "redis-rate-limiter.replenishRte: 10",
            ".redis-rate-limiter.replenishRte: unknown field, did you mean replenish-rate?",
        ),
        (
            "redisRateLimiter.replenishRate: 10",
            ".redisRateLimiter.replenishRate: the gateway ignores redisRateLimiter, write redis-rate-limiter",
        ),
        (
            "key-resolvr: x\nredis-rate-limiter: {replenish-rate: 1}",
            ".key-resolvr: unknown field, did you mean key-resolver?",
        ),
        (
            "rate-limiter: '#{@mine}'\nredis-rate-limiter: {replenish-rate: 1}",
            ".rate-limiter: the limit of a bean is not in the file, remove rate-limiter and write redis-rate-limiter",
        ),
        (
            "bucket4j-rate-limiter.capacity: 20\nredis-rate-limiter: {replenish-rate: 1}",
            ".bucket4j-rate-limiter.capacity: a Bucket4j limiter is not read, write a rule for it",
        ),
    ] {
        let found = Gateway::parse(&with_args(args)).unwrap_err();
        assert_eq!(found.iter().next().unwrap().to_string(), format!("{base}{expected}"));
    }
    let base = "spring.cloud.gateway.routes[0].filters[0].args.redis-rate-limiter";
    for (numbers, expected) in [
        (
            "{replenish-rate: fast}",
            format!("line 6, column 44: {base}.replenish-rate: expected an integer from 1 to 2147483647, got \"fast\""),
        ),
        (
            "{replenish-rate: 0, burst-capacity: 1}",
            format!("line 6, column 44: {base}.replenish-rate: expected an integer from 1 to 2147483647, got \"0\""),
        ),
        (
            "{replenish-rate: 010, burst-capacity: 10}",
            format!(
                "line 6, column 44: {base}.replenish-rate: expected an integer from 1 to 2147483647, got \"010\"; the gateway may read a number that starts with 0 as octal"
            ),
        ),
        (
            "{replenish-rate: 10, burst-capacity: 5}",
            format!("line 6, column 64: {base}.burst-capacity: must be 0 or at least replenish-rate (10), got 5"),
        ),
        (
            "{replenish-rate: 10}",
            format!(
                "line 4, column 5: {base}.burst-capacity: is missing, and its default of 1 makes the gateway limit nothing at this replenish-rate"
            ),
        ),
        (
            "{burst-capacity: 10}",
            format!("line 4, column 5: {base}.replenish-rate: is missing, expected an integer from 1 to 2147483647"),
        ),
        (
            "{replenish-rate: '${RATE:10}', burst-capacity: 10}",
            format!(
                "line 6, column 44: {base}.replenish-rate: the placeholder ${{RATE:10}} is not resolved, set placeholders or write the value"
            ),
        ),
    ] {
        assert_eq!(mistake(&with_args(&format!("redis-rate-limiter: {numbers}"))), expected);
    }
    assert_eq!(numbers(&gateway(&with_args("redis-rate-limiter: {replenish-rate: 2}")), "a"), (2, 1, 1));
}

#[test]
fn a_file_that_would_be_read_wrongly_is_refused() {
    let limited = "{name: RequestRateLimiter, args: {redis-rate-limiter: {replenish-rate: 1, burst-capacity: 1}}}";
    for (text, expected) in [
        (
            "spring.cloud.gateway.routes:\n- {id: a, filters: ['RequestRateLimiter=10, 20, #{@user}']}".to_owned(),
            "routes[0].filters[0]: the gateway ignores arguments behind the name of this filter",
        ),
        (
            "spring.cloud.gateway.routes:\n- {id: a, filters: [RequestRateLimiter]}".to_owned(),
            "a limit that is set in Java",
        ),
        (format!("spring.cloud.gateway.routes:\n- {{filters: [{limited}]}}"), "routes[0].id: is missing"),
        (
            format!(
                "spring.cloud.gateway.routes:\n- {{id: a, filters: [{limited}]}}\n- {{id: a, filters: [{limited}]}}"
            ),
            "routes[1].id: two routes have the id \"a\"",
        ),
        (format!("spring.cloud.gateway.routes[0].id: a\n# {limited}"), "write the list in YAML"),
        (
            format!(
                "spring.cloud.gateway:\n  routes:\n  - {{id: a, filters: [{limited}]}}\n  server.webflux.routes: []"
            ),
            "must stand once in a document",
        ),
        (
            format!(
                "spring.cloud.gateway.routes:\n- {{id: a, filters: [{limited}, {{name: RequestRateLimiter, args: {{key-resolver: x}}}}]}}"
            ),
            "different key resolvers",
        ),
        (
            "spring.cloud.gateway.filter.request-rate-limiter.deny-empty-keys: false".to_owned(),
            "did you mean deny-empty-key?",
        ),
        ("spring.cloud.gateway.redis-rate-limiter.config.a.burst: 1".to_owned(), "unknown field"),
        (
            format!("spring.cloud.gateway.default-filters: [{}]", [limited; 101].join(", ")),
            "must have at most 100 filters RequestRateLimiter",
        ),
        ("spring.cloud.gateway.routes: 5".to_owned(), "expected a list, got the number 5"),
        (format!("spring.config.activate.on-profile: a & b\n---\n# {limited}"), "expected names of profiles"),
    ] {
        let found = mistake(&text);
        assert!(found.contains(expected), "{found}");
    }
    let syntax = Gateway::parse("spring: [").unwrap_err();
    assert_eq!(syntax.iter().next().unwrap().kind(), RuleErrorKind::Syntax);
    assert_eq!(gateway("").limits().len(), 0, "an empty file limits nothing");
}

#[test]
fn every_mistake_is_collected_with_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("application.yml");
    std::fs::write(&path, with_args("typo: 1\nredis-rate-limiter: {replenish-rate: x}\ndeny-empty-key: maybe"))
        .unwrap();
    let errors = Gateway::load(&path).unwrap_err();
    let places: Vec<_> = errors.iter().map(|error| (error.file().unwrap(), error.line().unwrap())).collect();
    assert_eq!(places, [6, 7, 8].map(|line| (path.as_path(), line)));
    std::fs::write(&path, DEFAULTS).unwrap();
    let rules = Gateway::load(&path).unwrap();
    assert_eq!(rules.rules().rules().next().unwrap().file(), Some(path.as_path()));
    assert!(Gateway::load(directory.path().join("application.properties")).is_err());
}

#[test]
fn placeholders_are_resolved_or_refused() {
    let text = with_args(
        "redis-rate-limiter.replenish-rate: ${RATE}\n\
         redis-rate-limiter.burst-capacity: \"${NONE:${RATE}}0\"\n\
         redis-rate-limiter.requested-tokens: ${NONE:2}",
    );
    let builder = Gateway::builder().placeholders(|name| (name == "RATE").then(|| "3".to_owned()));
    assert_eq!(numbers(&builder.parse(&text).unwrap(), "a"), (3, 30, 2));
    let error = builder.parse(&text.replace("${NONE:2}", "${NONE}")).unwrap_err().to_string();
    assert!(error.ends_with("the placeholder ${NONE} has no value and no default"), "{error}");
    let endless = Gateway::builder().placeholders(|_| None);
    let deep = (0..10_000).fold("1".to_owned(), |inner, _| format!("${{A:{inner}}}"));
    assert!(endless.parse(&text.replace("${RATE}", &deep)).is_err());
}

#[test]
fn later_documents_replace_lists_and_profiles_select_documents() {
    let text = "
spring.cloud.gateway:
  default-filters:
  - {name: RequestRateLimiter, args: {redis-rate-limiter: &bucket {replenish-rate: 10, burst-capacity: 20}}}
  filter.request-rate-limiter.empty-key-status-code: 401
---
spring.config.activate.on-profile: [test, stage]
spring.cloud.gateway.default-filters:
- {name: RequestRateLimiter, args: {redis-rate-limiter: {replenish-rate: 1, burst-capacity: 2}}}
---
spring.config.activate.on-profile: '!stage'
spring.cloud.gateway.filter.request-rate-limiter.deny-empty-key: false
";
    for (profiles, numbers_expected, empty_key) in [
        (&[] as &[&str], (10, 20, 1), EmptyKey::Allow),
        (&["test"], (1, 2, 1), EmptyKey::Allow),
        (&["stage", "other"], (1, 2, 1), EmptyKey::Deny(401)),
    ] {
        let builder = profiles.iter().fold(Gateway::builder(), |builder, profile| builder.profile(*profile));
        let gateway = builder.parse(text).unwrap();
        assert_eq!(numbers(&gateway, "any"), numbers_expected, "{profiles:?}");
        assert_eq!(gateway.limit("any").unwrap().empty_key(), empty_key, "{profiles:?}");
    }
    // An anchor ends with its document.
    assert!(Gateway::parse(&text.replace("{replenish-rate: 1, burst-capacity: 2}", "*bucket")).is_err());
}

proptest::proptest! {
    /// Any text is read or refused, and never panics.
    #[test]
    fn any_text_is_read_or_refused(
        lines in proptest::collection::vec("[ -]{0,6}(spring|cloud|gateway|routes|args|id|name|filters|RequestRateLimiter|redis-rate-limiter|\\$\\{|[é.\\[\\]:{}'*&#0-9]{1,4}){0,4}(: ?)?", 0..12),
    ) {
        let _ = Gateway::builder().placeholders(|_| Some("1".to_owned())).parse(&lines.join("\n"));
    }
}
