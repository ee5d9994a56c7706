//! Tests the fields of responses.

use std::time::Duration;

use prost_types::value::Kind;
use tollgate::{MemoryStore, Outage, test_util::FaultyStore};
use tollgate_envoy::{
    LimitHeaderNames, NearLimit, RateLimitService,
    proto::ratelimit::{
        RateLimitResponse, RateLimitUnit,
        rate_limit_descriptor::RateLimitOverride,
        rate_limit_response::{Code, rate_limit::Unit},
    },
};
use tollgate_rules::{Compat, GlobalModes, RuleLimiter};

use crate::support::{RULES, Running, descriptor, limiter, request, rules, service, tenant};

fn fields(response: &RateLimitResponse) -> Vec<(String, String)> {
    response
        .response_headers_to_add
        .iter()
        .map(|field| (field.key.clone(), field.value.clone()))
        .collect()
}

#[tokio::test]
async fn statuses_stand_in_the_order_of_the_descriptors() {
    let names = [
        ("tenant", "acme"),
        ("tenant", "internal"),
        ("tenant", "free"),
        ("x", "y"),
        ("tenant", "once"),
    ];
    let asked = request(names.map(|(key, value)| descriptor(key, value)));
    let response = service().decide(&asked).await.unwrap();
    assert_eq!(response.overall_code(), Code::Ok);
    let told: Vec<_> = response
        .statuses
        .iter()
        .map(|status| {
            let limit = status
                .current_limit
                .clone()
                .map(|limit| (limit.requests_per_unit, limit.unit(), limit.name));
            (status.code(), limit, status.limit_remaining)
        })
        .collect();
    assert_eq!(
        told,
        [
            (Code::Ok, Some((10, Unit::Day, String::new())), 9),
            (Code::Ok, None, 0),
            (Code::Ok, None, u32::MAX),
            (Code::Ok, None, 0),
            (Code::Ok, Some((1, Unit::Day, "once".to_owned())), 0),
        ]
    );
}

#[tokio::test]
async fn a_native_wait_is_exact() {
    let service = service();
    let burst = request([descriptor("route", "/burst")]);
    for _ in 0..2 {
        assert_eq!(
            service.decide(&burst).await.unwrap().overall_code(),
            Code::Ok
        );
    }
    let denied = service.decide(&burst).await.unwrap();
    assert_eq!(denied.overall_code(), Code::OverLimit);
    let wait: Duration = denied.statuses[0]
        .duration_until_reset
        .unwrap()
        .try_into()
        .unwrap();
    // A token returns after one minute, some of which has passed.
    assert!(
        wait < Duration::from_secs(60) && wait.subsec_nanos() > 0,
        "{wait:?}"
    );
}

#[tokio::test]
async fn hits_are_those_of_the_descriptor_or_else_of_the_request() {
    let service = service();
    let mut asked = request([
        descriptor("tenant", "a"),
        descriptor("tenant", "b"),
        descriptor("tenant", "c"),
    ]);
    asked.hits_addend = 3;
    asked.descriptors[1].hits_addend = Some(5);
    asked.descriptors[2].hits_addend = Some(0);
    let remaining = |response: RateLimitResponse| -> Vec<_> {
        response
            .statuses
            .iter()
            .map(|status| status.limit_remaining)
            .collect()
    };
    assert_eq!(remaining(service.decide(&asked).await.unwrap()), [7, 5, 10]);
    // A look spends nothing, and is denied when no unit is left.
    asked.descriptors[2].hits_addend = Some(10);
    asked.descriptors.swap_remove(0);
    asked.descriptors.truncate(1);
    assert_eq!(remaining(service.decide(&asked).await.unwrap()), [0]);
    asked.descriptors[0].hits_addend = Some(0);
    assert_eq!(
        service.decide(&asked).await.unwrap().overall_code(),
        Code::OverLimit
    );
}

#[tokio::test]
async fn a_request_that_passes_near_a_limit_has_a_sign_for_the_service_behind_envoy() {
    const RULES: &str = "
domain: shop
descriptors:
  - {key: tenant, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: wide, rate_limit: {unit: day, requests_per_unit: 100}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: plan, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
";
    for mode in [Compat::Native, Compat::Envoy] {
        let near = NearLimit::new("x-left").unwrap();
        let signs = async |service: &RateLimitService, names: &[&str], hits| {
            let mut asked = request(names.iter().map(|name| descriptor(name, "a")));
            asked.hits_addend = hits;
            let response = service.decide(&asked).await.unwrap();
            let signs = response.request_headers_to_add.iter();
            let signs = signs.map(|field| format!("{}: {}", field.key, field.value));
            (response.overall_code(), signs.collect::<Vec<_>>())
        };
        let service = RateLimitService::builder(limiter(RULES, mode))
            .near_limit(near.clone())
            .build();
        let left = |units: &str| vec![format!("x-left: {units}")];
        for (names, hits, expected) in [
            (&["tenant"][..], 8, (Code::Ok, vec![])),
            (&["wide"], 82, (Code::Ok, left("18"))),
            (&["tenant", "wide"], 1, (Code::Ok, left("1"))),
            (&["shadow", "other"], 1, (Code::Ok, vec![])),
            (&["tenant"], 1, (Code::Ok, left("0"))),
            (&["tenant"], 1, (Code::OverLimit, vec![])),
            (&["plan"], 1, (Code::Ok, left("0"))),
        ] {
            assert_eq!(signs(&service, names, hits).await, expected, "{names:?}");
        }
        let early = RateLimitService::builder(limiter(RULES, mode))
            .near_limit(near.share(0.0))
            .build();
        assert_eq!(signs(&early, &["tenant"], 1).await, (Code::Ok, left("9")));
    }
}

#[tokio::test]
async fn an_override_replaces_the_limit_of_the_rules() {
    let service = service();
    let with = |requests_per_unit, unit| {
        let mut asked = tenant("acme");
        asked.descriptors[0].limit = Some(RateLimitOverride {
            requests_per_unit,
            unit,
        });
        asked
    };
    let response = service
        .decide(&with(42, RateLimitUnit::Day.into()))
        .await
        .unwrap();
    let limit = response.statuses[0].current_limit.clone().unwrap();
    assert_eq!(
        (
            limit.requests_per_unit,
            limit.unit(),
            response.statuses[0].limit_remaining
        ),
        (42, Unit::Day, 41)
    );
    // The type of the field has no week, but its number is read.
    let response = service.decide(&with(7, 7)).await.unwrap();
    assert_eq!(
        response.statuses[0].current_limit.clone().unwrap().unit(),
        Unit::Week
    );
    let response = service
        .decide(&with(0, RateLimitUnit::Day.into()))
        .await
        .unwrap();
    assert_eq!(response.overall_code(), Code::OverLimit);
}

#[tokio::test]
async fn header_fields_are_those_that_were_asked_for() {
    let both = request([descriptor("tenant", "acme"), descriptor("tenant", "once")]);
    assert!(
        service()
            .decide(&both)
            .await
            .unwrap()
            .response_headers_to_add
            .is_empty()
    );

    let names = LimitHeaderNames::new("x-limit", "x-left", "x-reset").unwrap();
    let service = RateLimitService::builder(limiter(RULES, Compat::Native))
        .limit_headers(names)
        .build();
    let response = service.decide(&both).await.unwrap();
    let told = fields(&response);
    assert_eq!(
        told[..2],
        [
            ("x-limit".to_owned(), "1".to_owned()),
            ("x-left".to_owned(), "0".to_owned())
        ]
    );
    let reset: u64 = told[2].1.parse().unwrap();
    assert!(
        told[2].0 == "x-reset" && (1..=86_400).contains(&reset),
        "{told:?}"
    );
    assert!(
        service
            .decide(&tenant("internal"))
            .await
            .unwrap()
            .response_headers_to_add
            .is_empty()
    );
}

#[tokio::test]
async fn standard_header_fields_tell_the_policies_and_an_exact_wait() {
    let service = RateLimitService::builder(limiter(RULES, Compat::Native))
        .standard_headers(true)
        .build();
    let burst = request([descriptor("route", "/burst")]);
    let told = fields(&service.decide(&burst).await.unwrap());
    assert_eq!(
        told[0],
        (
            "RateLimit-Policy".to_owned(),
            "\"burst\";q=60;w=3600".to_owned()
        )
    );
    assert_eq!(
        told[1],
        ("RateLimit".to_owned(), "\"burst\";r=1;t=60".to_owned())
    );
    assert_eq!(told.len(), 2);
    service.decide(&burst).await.unwrap();
    let told = fields(&service.decide(&burst).await.unwrap());
    let wait: u64 = told[2].1.parse().unwrap();
    assert!(
        told[2].0 == "Retry-After" && (1..=60).contains(&wait),
        "{told:?}"
    );
    // No wait helps where every request is denied.
    let never = fields(
        &service
            .decide(&request([descriptor("route", "/never")]))
            .await
            .unwrap(),
    );
    assert!(never.is_empty(), "{never:?}");
}

#[tokio::test]
async fn standard_header_fields_omit_limits_in_shadow_mode() {
    let text = "
domain: shop
descriptors:
  - {key: tried, shadow_mode: true, rate_limit: {name: tried, quota: 1/d}}
  - {key: route, rate_limit: {name: routes, quota: 1000/h}}
";
    let service = RateLimitService::builder(limiter(text, Compat::Native))
        .standard_headers(true)
        .build();
    let both = request([descriptor("tried", "a"), descriptor("route", "a")]);
    // The second request is over the limit in shadow mode.
    for _ in 0..2 {
        let response = service.decide(&both).await.unwrap();
        assert_eq!(response.overall_code(), Code::Ok);
        let told = fields(&response);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].1.starts_with("\"routes\";q="), "{told:?}");
        assert!(told[1].1.starts_with("\"routes\";r="), "{told:?}");
        assert!(!format!("{told:?}").contains("tried"), "{told:?}");
    }
    // Nor do they show a denial that only the global mode lets pass.
    let modes = GlobalModes {
        shadow: true,
        ..GlobalModes::default()
    };
    let limiter = RuleLimiter::builder(rules(RULES, Compat::Native), MemoryStore::new());
    let service = RateLimitService::builder(limiter.modes(modes).build())
        .standard_headers(true)
        .build();
    service.decide(&tenant("once")).await.unwrap();
    let response = service.decide(&tenant("once")).await.unwrap();
    assert_eq!(response.overall_code(), Code::Ok);
    let told = fields(&response);
    assert!(told.is_empty(), "{told:?}");
}

#[tokio::test]
async fn a_hidden_limit_denies_and_stands_in_no_field() {
    const RULES: &str = "
domain: shop
descriptors:
  - {key: flood, rate_limit: {name: flood, quota: 2/d, hidden: true}}
  - {key: pair, rate_limit: {limits: [{name: flood, quota: 3/d, hidden: true}, {name: slow, quota: 100/d}]}}
  - {key: small, rate_limit: {limits: [{name: wide, quota: 7/d, hidden: true}, {name: small, quota: 5/d}]}}
  - {key: route, rate_limit: {name: routes, quota: 10/d}}
  - {key: never, rate_limit: {quota: 0/d, hidden: true}}
";
    let service = RateLimitService::builder(limiter(RULES, Compat::Native))
        .limit_headers(LimitHeaderNames::new("x-limit", "x-left", "x-reset").unwrap())
        .standard_headers(true)
        .near_limit(NearLimit::new("x-near").unwrap().share(0.0))
        .build();
    let passed = |limit: &str, left: &str, name: &str| {
        vec![
            format!("x-limit: {limit}"),
            format!("x-left: {left}"),
            format!("RateLimit-Policy: \"{name}\";q={limit};w=86400"),
            format!("RateLimit: \"{name}\";r={left}"),
            format!("x-near: {left}"),
        ]
    };
    let texts =
        |texts: &[&str]| -> Vec<String> { texts.iter().map(|text| (*text).to_owned()).collect() };
    let (none, retry) = (Vec::new(), texts(&["Retry-After"]));
    let slow = texts(&[
        "RateLimit-Policy: \"slow\";q=100;w=86400",
        "RateLimit: \"slow\";r=97",
        "Retry-After",
    ]);
    let small = texts(&[
        "x-limit: 5",
        "x-left: 0",
        "RateLimit-Policy: \"small\";q=5;w=86400",
        "RateLimit: \"small\";r=0",
        "Retry-After",
    ]);
    let (yes, no) = (Code::Ok, Code::OverLimit);
    for (keys, hits, code, statuses, expected) in [
        (&["flood"][..], 1, yes, &[(None, 0)][..], none.clone()),
        (
            &["flood", "route"],
            1,
            yes,
            &[(None, 0), (Some(10), 9)],
            passed("10", "9", "routes"),
        ),
        (
            &["flood", "route"],
            1,
            no,
            &[(None, 0), (Some(10), 9)],
            retry.clone(),
        ),
        (
            &["pair"],
            2,
            yes,
            &[(Some(100), 98)],
            passed("100", "98", "slow"),
        ),
        (
            &["pair"],
            1,
            yes,
            &[(Some(100), 97)],
            passed("100", "97", "slow"),
        ),
        (&["pair"], 1, no, &[(None, 0)], slow.clone()),
        (&["pair"], 0, no, &[(None, 0)], slow),
        (&["pair"], 50, no, &[(None, 0)], none.clone()),
        (&["never"], 1, no, &[(None, 0)], none),
        (
            &["small"],
            5,
            yes,
            &[(Some(5), 0)],
            passed("5", "0", "small"),
        ),
        (&["small"], 0, no, &[(Some(5), 0)], small.clone()),
        (
            &["small", "flood"],
            1,
            no,
            &[(Some(5), 0), (None, 0)],
            small.clone(),
        ),
        (
            &["flood", "small"],
            1,
            no,
            &[(None, 0), (Some(5), 0)],
            small,
        ),
    ] {
        let mut asked = request(keys.iter().map(|key| descriptor(key, "a")));
        for one in &mut asked.descriptors {
            one.hits_addend = Some(hits);
        }
        let response = service.decide(&asked).await.unwrap();
        assert_eq!(response.overall_code(), code, "{keys:?} {hits}");
        let shown = response.statuses.iter().map(|status| {
            let limit = status.current_limit.as_ref();
            (
                limit.map(|limit| limit.requests_per_unit),
                status.limit_remaining,
            )
        });
        assert_eq!(shown.collect::<Vec<_>>(), statuses, "{keys:?} {hits}");
        assert!(
            response
                .statuses
                .iter()
                .all(|status| status.duration_until_reset.is_some())
        );
        let added = response.response_headers_to_add.iter();
        let added = added.chain(&response.request_headers_to_add);
        let added = added.filter(|field| field.key != "x-reset");
        let added = added.map(|field| match field.key.as_str() {
            "Retry-After" => field.key.clone(),
            name => format!("{name}: {}", field.value.split(";t=").next().unwrap()),
        });
        assert_eq!(added.collect::<Vec<_>>(), expected, "{keys:?} {hits}");
    }
}

#[tokio::test]
async fn standard_header_fields_name_a_policy_once_with_its_strictest_state() {
    let text = "
domain: shop
descriptors:
  - {key: tenant, rate_limit: {name: tenants, quota: 5/d burst 10}}
";
    let service = RateLimitService::builder(limiter(text, Compat::Native))
        .standard_headers(true)
        .build();
    let spent = request([descriptor("tenant", "spent")]);
    service.decide(&spent).await.unwrap();
    for (names, remaining) in [(["spent", "fresh"], 8), (["fresh", "spent"], 7)] {
        let both = request(names.map(|name| descriptor("tenant", name)));
        let told = fields(&service.decide(&both).await.unwrap());
        // Two days give back the burst, which is the most that can be left.
        assert_eq!(told[0].1, "\"tenants\";q=10;w=172800", "{names:?}");
        let (state, _) = told[1].1.split_once(";t=").unwrap();
        assert_eq!(state, format!("\"tenants\";r={remaining}"), "{names:?}");
        assert_eq!(told[1].1.matches("tenants").count(), 1, "{told:?}");
    }
}

#[tokio::test]
async fn dynamic_metadata_describes_the_request() {
    let text = "
domain: shop
descriptors:
  - {key: tenant, metadata: {tier: gold, weight: 2, nested: {list: [1, true, null]}}, rate_limit: {quota: 5/h}}
";
    let service = RateLimitService::builder(limiter(text, Compat::Native))
        .dynamic_metadata(true)
        .build();
    let mut asked = tenant("acme");
    asked.hits_addend = 2;
    let metadata = service
        .decide(&asked)
        .await
        .unwrap()
        .dynamic_metadata
        .unwrap();
    let kind = |name: &str| metadata.fields[name].kind.clone().unwrap();
    assert_eq!(kind("domain"), Kind::StringValue("shop".to_owned()));
    assert_eq!(kind("hitsAddend"), Kind::NumberValue(2.0));
    let Kind::StructValue(rule) = kind("metadata") else {
        panic!("{metadata:?}")
    };
    assert_eq!(
        rule.fields["tier"].kind,
        Some(Kind::StringValue("gold".to_owned()))
    );
    assert_eq!(rule.fields["weight"].kind, Some(Kind::NumberValue(2.0)));
}

#[tokio::test]
async fn a_grpc_client_gets_the_answers() {
    let server = Running::start(service()).await;
    let mut client = server.client().await;
    let first = client
        .should_rate_limit(tenant("once"))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(first.overall_code(), Code::Ok);
    let second = client
        .should_rate_limit(tenant("once"))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(second.overall_code(), Code::OverLimit);
    drop(client);
    server.end().await.unwrap();
}

#[tokio::test]
async fn an_outage_has_the_stated_answer_and_is_counted() {
    let errors = |service: &RateLimitService| {
        let counters = service
            .metrics()
            .counters(service.limiter().rules().loads());
        let mut found = counters
            .iter()
            .filter(|(name, _)| name.ends_with(".redis_error"));
        found.next().map_or(0, |(_, count)| *count)
    };
    for (outage, expected) in [
        (Outage::Open, Ok(Code::Ok)),
        (Outage::default(), Ok(Code::Ok)),
        (Outage::Closed, Err(tonic::Code::Unavailable)),
    ] {
        let store = FaultyStore::default();
        let limiter = RuleLimiter::builder(rules(RULES, Compat::Native), store.clone());
        let service = RateLimitService::new(limiter.on_outage(outage).build());
        assert!(service.decide(&tenant("acme")).await.is_ok());
        assert_eq!(errors(&service), 0);
        store.fail();
        let answer = service.decide(&tenant("acme")).await;
        let answer = answer.map(|response| response.overall_code());
        assert_eq!(
            answer.map_err(|status| status.code()),
            expected,
            "{outage:?}"
        );
        assert_eq!(errors(&service), 1, "{outage:?}");
    }
}
