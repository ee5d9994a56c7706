//! The limits of a Spring Cloud Gateway, as they stand in its file, converted into rules.

use tollgate::{MemoryStore, store::Clock};
use tollgate_rules::{
    Descriptor, Format, RuleErrorKind, RuleErrors, RuleLimiter, RuleSet, Rules, spring,
};

fn convert(text: &str) -> Result<String, RuleErrors> {
    spring::convert(text, &[], &|_| None)
}

fn converted(text: &str) -> String {
    convert(text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn rules(text: &str) -> RuleSet {
    RuleSet::parse(&converted(text), Format::Yaml).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Returns the message of a text with one mistake.
fn mistake(text: &str) -> String {
    let errors = convert(text).expect_err("the text is wrong");
    assert_eq!(errors.count(), 1, "{errors}");
    errors.to_string()
}

fn with_args(args: &str) -> String {
    format!(
        "spring.cloud.gateway.routes:\n- id: a\n  filters:\n  - name: RequestRateLimiter\n    args:\n      {}\n",
        args.replace('\n', "\n      ")
    )
}

fn descriptor<'a>(route: &'a str, key: &'a str) -> Descriptor<'a> {
    Descriptor::from([("route", route), ("key", key)])
}

/// Returns the algorithm and the quota of a route.
fn limit(rules: &RuleSet, route: &str) -> String {
    let descriptor = descriptor(route, "x");
    let found = rules.find("spring", &descriptor).unwrap();
    found
        .rule()
        .policies()
        .unwrap()
        .iter()
        .map(|policy| format!("{} {}", policy.algorithm(), policy.quota()))
        .collect()
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
spring.cloud.gateway:
  routes: [{id: a, filters: [{name: RequestRateLimiter}]}]
  filter.requestRateLimiter.denyEmptyKey: false
  redis-rate-limiter:
    config[a].replenish-rate: 10
    config.[a].burst-capacity: 20
    config..a.requested-tokens.: 3",
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
        let expected = "domain: spring\ndescriptors:\n# A request costs 3. Without a key it passes.\n- key: route\n  \
                        value: \"a\"\n  descriptors:\n  - key: key\n    rate_limit: {name: \"a\", window: 1s, algorithm: \
                        token_bucket, requests_per_unit: 10, burst: 20}\n";
        let found = converted(text).replace(" The key is that of \"#{@user}\".", "");
        assert!(found.starts_with(expected), "{found}");
        assert_eq!(limit(&rules(text), "a"), "token_bucket 10/s burst 20");
    }
}

#[test]
fn what_rules_have_no_field_for_stands_in_a_comment() {
    let text = with_args("redis-rate-limiter: {replenish-rate: 1, burst-capacity: 1}");
    let comment = |text: &str| {
        converted(text)
            .lines()
            .find(|line| line.starts_with('#'))
            .unwrap()
            .to_owned()
    };
    let answered = |status: &str| {
        format!("# A request costs 1. Without a key it is answered with {status:?}.")
    };
    assert_eq!(comment(&text), answered("403"));
    let status = format!(
        "{text}\nspring.cloud.gateway.filter.request-rate-limiter.empty-key-status-code: not_found"
    );
    assert_eq!(comment(&status), answered("not_found"));

    // The filter's own settings come first.
    let own = text.replace(
        "redis-rate",
        "deny-empty-key: true\n      empty-key-status: 401\n      redis-rate",
    );
    let own =
        format!("{own}\nspring.cloud.gateway.filter.request-rate-limiter.deny-empty-key: false");
    assert_eq!(comment(&own), answered("401"));
    let named = text.replace(
        "redis-rate",
        "statusCode: 503\n      key-resolver: \"a\\nb\"\n      redis-rate",
    );
    let rest = " A denial is answered with \"503\". The key is that of \"a\\nb\".";
    assert_eq!(comment(&named), answered("403") + rest);
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
    let text = converted(DEFAULTS);
    let costs: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| &line[..20])
        .collect();
    assert_eq!(
        costs,
        [
            "# A request costs 1.",
            "# A request costs 2.",
            "# A request costs 1."
        ]
    );
    let rules = rules(DEFAULTS);
    assert_eq!(
        ["plain", "own", "gone"].map(|route| limit(&rules, route)),
        [
            "token_bucket 5/s burst 8",
            "token_bucket 1/s burst 4",
            "token_bucket 5/s burst 8"
        ]
    );

    let store = MemoryStore::builder().clock(Clock::manual(0)).build();
    let limiter = RuleLimiter::new(Rules::new(rules), store);
    let mut admitted = Vec::new();
    for (route, key) in [
        ("plain", "x"),
        ("plain", "y"),
        ("own", "x"),
        ("of java", "x"),
        ("other", "x"),
    ] {
        let mut count = 0;
        while limiter
            .check("spring", &[descriptor(route, key)], 1)
            .await
            .unwrap()
            .is_allowed()
        {
            count += 1;
        }
        admitted.push(count);
    }
    assert_eq!(
        admitted,
        [8, 8, 4, 8, 8],
        "each route and each key has a bucket"
    );
}

#[test]
fn a_rate_above_the_burst_is_a_bucket_that_is_filled_each_second_and_a_burst_of_zero_denies() {
    let args = |numbers: &str| with_args(&format!("redis-rate-limiter: {{{numbers}}}"));
    assert_eq!(
        limit(&rules(&args("replenish-rate: 2")), "a"),
        "interval_bucket 2/s burst 1"
    );
    let denied = rules(&args(
        "replenish-rate: 1, burst-capacity: 0, requested-tokens: 3",
    ));
    assert_eq!(denied.rules().next().unwrap().amount().unwrap().0, 0);
}

#[test]
fn requested_tokens_above_the_burst_are_refused_where_they_stand() {
    let args = |tokens: u64| {
        format!(
            "redis-rate-limiter: {{replenish-rate: 1, burst-capacity: 2, requested-tokens: {tokens}}}"
        )
    };
    assert_eq!(
        mistake(&with_args(&args(3))),
        "line 4, column 5: spring.cloud.gateway.routes[0].filters[0]: a request spends 3 units, above burst-capacity (2): \
         every request is denied, write burst-capacity: 0 if that is meant"
    );
    assert!(converted(&with_args(&args(2))).contains("# A request costs 2."));
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
        let found = convert(&with_args(args)).unwrap_err();
        assert_eq!(
            found.iter().next().unwrap().to_string(),
            format!("{base}{expected}")
        );
    }
    let base = "spring.cloud.gateway.routes[0].filters[0].args.redis-rate-limiter";
    for (numbers, expected) in [
        (
            "{replenish-rate: fast}",
            format!(
                "line 6, column 44: {base}.replenish-rate: expected an integer from 1 to 2147483647, got \"fast\""
            ),
        ),
        (
            "{replenish-rate: 0, burst-capacity: 1}",
            format!(
                "line 6, column 44: {base}.replenish-rate: expected an integer from 1 to 2147483647, got \"0\""
            ),
        ),
        (
            "{replenish-rate: 010, burst-capacity: 10}",
            format!(
                "line 6, column 44: {base}.replenish-rate: expected an integer from 1 to 2147483647, got \"010\"; the gateway may read a number that starts with 0 as octal"
            ),
        ),
        (
            "{replenish-rate: 10, burst-capacity: 5}",
            format!(
                "line 6, column 64: {base}.burst-capacity: must be 0 or at least replenish-rate (10), got 5"
            ),
        ),
        (
            "{replenish-rate: 10}",
            format!(
                "line 4, column 5: {base}.burst-capacity: is missing, and its default of 1 makes the gateway limit nothing at this replenish-rate"
            ),
        ),
        (
            "{burst-capacity: 10}",
            format!(
                "line 4, column 5: {base}.replenish-rate: is missing, expected an integer from 1 to 2147483647"
            ),
        ),
        (
            "{replenish-rate: '${RATE}', burst-capacity: 10}",
            format!(
                "line 6, column 44: {base}.replenish-rate: the placeholder ${{RATE}} has no value and no default"
            ),
        ),
    ] {
        assert_eq!(
            mistake(&with_args(&format!("redis-rate-limiter: {numbers}"))),
            expected
        );
    }
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
    let syntax = convert("spring: [").unwrap_err();
    assert_eq!(syntax.iter().next().unwrap().kind(), RuleErrorKind::Syntax);
    assert_eq!(
        converted(""),
        "domain: spring\ndescriptors: []\n",
        "an empty file limits nothing"
    );
}

#[test]
fn every_mistake_is_collected_with_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("application.yml");
    std::fs::write(
        &path,
        with_args("typo: 1\nredis-rate-limiter: {replenish-rate: x}\ndeny-empty-key: maybe"),
    )
    .unwrap();
    let load = |path| spring::convert_file(path, &[], &|_| None);
    let errors = load(path.clone()).unwrap_err();
    let places: Vec<_> = errors
        .iter()
        .map(|error| (error.file().unwrap(), error.line().unwrap()))
        .collect();
    assert_eq!(places, [6, 7, 8].map(|line| (path.as_path(), line)));
    std::fs::write(&path, DEFAULTS).unwrap();
    assert_eq!(load(path).unwrap(), converted(DEFAULTS));
    assert!(load(directory.path().join("application.properties")).is_err());
}

#[test]
fn placeholders_are_resolved_or_refused() {
    let text = with_args(
        "redis-rate-limiter.replenish-rate: ${RATE}\n\
         redis-rate-limiter.burst-capacity: \"${NONE:${RATE}}0\"\n\
         redis-rate-limiter.requested-tokens: ${NONE:2}",
    );
    let resolved =
        |text: &str| spring::convert(text, &[], &|name| (name == "RATE").then(|| "3".to_owned()));
    let rules = resolved(&text).unwrap();
    assert!(
        rules.contains("costs 2.") && rules.contains("requests_per_unit: 3, burst: 30}"),
        "{rules}"
    );
    let error = resolved(&text.replace("${NONE:2}", "${NONE}"))
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("the placeholder ${NONE} has no value and no default"),
        "{error}"
    );
    let deep = (0..10_000).fold("1".to_owned(), |inner, _| format!("${{A:{inner}}}"));
    assert!(convert(&text.replace("${RATE}", &deep)).is_err());
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
    for (profiles, numbers, empty_key) in [
        (
            &[] as &[&str],
            "requests_per_unit: 10, burst: 20",
            "it passes",
        ),
        (&["test"], "requests_per_unit: 1, burst: 2", "it passes"),
        (
            &["stage", "other"],
            "requests_per_unit: 1, burst: 2",
            "answered with \"401\"",
        ),
    ] {
        let names: Vec<_> = profiles.iter().map(|name| (*name).to_owned()).collect();
        let rules = spring::convert(text, &names, &|_| None).unwrap();
        assert!(
            rules.contains(numbers) && rules.contains(empty_key),
            "{profiles:?}: {rules}"
        );
    }
    // An anchor ends with its document.
    assert!(convert(&text.replace("{replenish-rate: 1, burst-capacity: 2}", "*bucket")).is_err());
}

proptest::proptest! {
    /// Any text is refused, or becomes rules that can be read.
    #[test]
    fn any_text_is_read_or_refused(
        lines in proptest::collection::vec("[ -]{0,6}(spring|cloud|gateway|routes|args|id|name|filters|RequestRateLimiter|redis-rate-limiter|\\$\\{|[é.\\[\\]:{}'*&#0-9]{1,4}){0,4}(: ?)?", 0..12),
    ) {
        if let Ok(rules) = spring::convert(&lines.join("\n"), &[], &|_| Some("1".to_owned())) {
            proptest::prop_assert!(RuleSet::parse(&rules, Format::Yaml).is_ok(), "{rules}");
        }
    }
}
