//! Rules that are enforced for a share of the keys.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
};

use http::{Request, Response, request::Parts};
use tollgate::{Cost, Enforcement, Key};
use tollgate_rules::{Code, Descriptor, RuleLimiter, Rules};
use tollgate_tower::{RateLimitLayer, key::Global};
use tower::{Layer, ServiceExt, service_fn};

use super::{envoy_refused, refused, rules, still};

const RULES: &str = "
domain: d
rate_limits:
- actions: [{request_headers: {header_name: x-tenant, descriptor_key: tenant}}]
- actions: [{request_headers: {header_name: x-route, descriptor_key: route}}]
descriptors:
- {key: tenant, enforce: 40%, rate_limit: {name: tenants, quota: 1/h}}
- {key: route, rate_limit: {name: routes, quota: 1000/h}}
";

const KEYS: usize = 200;

fn at(percent: u8) -> String {
    RULES.replace("40%", &format!("{percent}%"))
}

fn limiter(yaml: &str) -> RuleLimiter {
    RuleLimiter::new(Rules::new(rules(yaml)), still())
}

/// Checks each tenant once. Returns those that are denied.
async fn denied(limiter: &RuleLimiter) -> Vec<usize> {
    let mut denied = Vec::new();
    for key in 0..KEYS {
        let request = [
            Descriptor::from([("tenant", format!("t{key}"))]),
            Descriptor::from([("route", "/".to_owned())]),
        ];
        if limiter.check("d", &request, 1).await.unwrap().is_denied() {
            denied.push(key);
        }
    }
    denied
}

#[tokio::test]
async fn a_reload_turns_the_share_up_for_the_same_keys_on_every_replica() {
    let (one, other) = (limiter(&at(0)), limiter(&at(0)));
    assert_eq!((denied(&one).await, denied(&other).await), (vec![], vec![]));
    let mut before = Vec::new();
    for percent in [10, 40, 41, 100] {
        for limiter in [&one, &other] {
            limiter.rules().replace(rules(&at(percent)));
        }
        let now = denied(&one).await;
        assert_eq!(now, denied(&other).await);
        assert!(before.iter().all(|key| now.contains(key)), "{percent} %");
        assert!(
            now.len().abs_diff(KEYS * usize::from(percent) / 100) <= 25,
            "{} at {percent} %",
            now.len()
        );
        before = now;
    }
    assert_eq!(before.len(), KEYS);
}

#[tokio::test]
async fn a_key_outside_of_the_share_counts_as_in_shadow_mode() {
    let limiter = limiter(RULES);
    denied(&limiter).await;
    let mut met = [false; 2];
    for key in 0..40 {
        let request = [Descriptor::from([("tenant", format!("t{key}"))])];
        let set = limiter.rules().current();
        let is_shadow = set.find("d", &request[0]).unwrap().is_shadow();
        let decision = limiter.check("d", &request, 1).await.unwrap();
        let status = &decision.verdict().statuses()[0];
        let expected = if is_shadow {
            (Code::Ok, 1)
        } else {
            (Code::OverLimit, 0)
        };
        assert_eq!((status.code(), status.usage().shadow), expected);
        assert_eq!(status.usage().over, 1);
        met[usize::from(is_shadow)] = true;
    }
    assert_eq!(met, [true; 2]);
}

#[tokio::test]
async fn a_layer_hides_the_rule_from_keys_outside_of_the_share() {
    let limiter = limiter(RULES);
    let layer = RateLimitLayer::new(limiter.for_requests("d"), Global);
    let service = layer.layer(service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let send = async |tenant: &str| {
        let request = Request::get("/")
            .header("x-tenant", tenant)
            .header("x-route", "/")
            .body(())
            .unwrap();
        service.clone().oneshot(request).await.unwrap()
    };
    let mut met = [false; 2];
    for key in 0..30 {
        let tenant = format!("t{key}");
        let is_shadow = limiter
            .rules()
            .current()
            .find("d", &Descriptor::from([("tenant", &*tenant)]))
            .unwrap()
            .is_shadow();
        let (first, second) = (send(&tenant).await, send(&tenant).await);
        let policies = first.headers()["ratelimit-policy"]
            .to_str()
            .unwrap()
            .to_owned();
        assert_eq!(policies.contains("tenants"), !is_shadow, "{policies}");
        assert_eq!(second.status(), if is_shadow { 200 } else { 429 });
        met[usize::from(is_shadow)] = true;
    }
    assert_eq!(met, [true; 2]);
}

const TENANT_AND_HOST: &str = "
domain: d
rate_limits:
- actions: [{request_headers: {header_name: x-tenant, descriptor_key: tenant}}]
- actions: [{request_headers: {header_name: x-host, descriptor_key: host}}]
networks: {deny: [192.0.2.0/24]}
descriptors:
- {key: tenant, rate_limit: {name: tenants, quota: 3/h}}
- {key: host, rate_limit: {name: hosts, quota: 10/h}}
- {key: tenant, value: never-*, rate_limit: {quota: 0/h}}
";

/// Returns the first name of which a test holds.
fn name(prefix: &str, holds: impl Fn(&str) -> bool) -> String {
    let mut names = (0..).map(|at| format!("{prefix}{at}"));
    names.find(|name| holds(name)).unwrap()
}

#[tokio::test]
async fn a_key_outside_of_the_share_of_a_layer_does_not_open_the_limit_of_another_key() {
    let enforcement = Enforcement::share(50);
    let limiter = limiter(TENANT_AND_HOST);
    let set = limiter.rules().current();
    let applies = |key: &'static str, value: &str| {
        enforcement.applies_to(
            &set.find("d", &Descriptor::from([(key, value)]))
                .unwrap()
                .key(),
        )
    };
    let address = |is_enforced: bool| {
        let addresses = (1..=254).map(|host| IpAddr::from([192, 0, 2, host]));
        addresses
            .clone()
            .find(|address| enforcement.applies_to(&Key::from(*address)) == is_enforced)
            .unwrap()
    };
    // A request of such a tenant asks for more units than a tenant ever has.
    let is_big = |parts: &Parts| parts.headers["x-tenant"].as_bytes().starts_with(b"big");
    let builder =
        RateLimitLayer::builder(limiter.for_requests("d"), Global).enforcement(enforcement.clone());
    let layer = builder
        .cost(move |parts| Cost::new(if is_big(parts) { 4 } else { 1 }))
        .build();
    let service = layer.layer(service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let statuses = async |tenant: &str, host: &str, client: IpAddr| {
        let mut statuses = Vec::new();
        for _ in 0..12 {
            let request = Request::get("/").extension(SocketAddr::from((client, 443)));
            let request = request
                .header("x-tenant", tenant)
                .header("x-host", host)
                .body(())
                .unwrap();
            statuses.push(
                service
                    .clone()
                    .oneshot(request)
                    .await
                    .unwrap()
                    .status()
                    .as_u16(),
            );
        }
        statuses
    };
    let ten_then = |status: u16| [vec![200; 10], vec![status; 2]].concat();
    let client = IpAddr::from([203, 0, 113, 1]);
    let tenant = name("t", |tenant| !applies("tenant", tenant));
    let host = |at: usize| name(&format!("h{at}-"), |host| applies("host", host));
    // The tenant is over its limit from the fourth request on, and denies nothing.
    assert_eq!(statuses(&tenant, &host(1), client).await, ten_then(429));
    // Neither does a tenant that has no quota, nor a client whose network is denied.
    let never = name("never-", |tenant| !applies("tenant", tenant));
    assert_eq!(statuses(&never, &host(2), client).await, ten_then(429));
    assert_eq!(
        statuses(&tenant, &host(3), address(false)).await,
        ten_then(429)
    );
    // Neither does a cost that never fits.
    let big = name("big", |tenant| !applies("tenant", tenant));
    assert_eq!(
        statuses(&big, &host(4), client).await,
        [vec![200; 2], vec![429; 10]].concat()
    );
    // Those that are enforced deny alone.
    let open = name("h", |host| !applies("host", host));
    let enforced = name("t", |tenant| applies("tenant", tenant));
    assert_eq!(
        statuses(&enforced, &open, client).await,
        [vec![200; 3], vec![429; 9]].concat()
    );
    let never = name("never-", |tenant| applies("tenant", tenant));
    assert_eq!(statuses(&never, &open, client).await, [429; 12]);
    let big = name("big", |tenant| applies("tenant", tenant));
    assert_eq!(statuses(&big, &open, client).await, [413; 12]);
    assert_eq!(statuses(&big, &host(2), client).await, [413; 12]);
    assert_eq!(statuses(&tenant, &open, address(true)).await, [403; 12]);
    assert_eq!(statuses(&tenant, &open, client).await, [200; 12]);
}

#[test]
fn a_share_that_makes_no_sense_is_refused_with_its_value() {
    let error = |field: &str| {
        let text = format!(
            "domain: d\ndescriptors:\n- key: a\n  enforce: {field}\n  rate_limit: {{quota: 1/s}}\n"
        );
        refused(&text).to_string()
    };
    for (value, shown) in [
        ("101%", "the text \"101%\""),
        ("-1", "the number -1"),
        ("+5%", "the text \"+5%\""),
        ("half", "the text \"half\""),
        ("0.5", "the number 0.5"),
        ("true", "true"),
    ] {
        assert_eq!(
            error(value),
            format!("line 4, column 12: descriptors[0].enforce: must be 0% to 100%, got {shown}")
        );
    }
    assert_eq!(
        error("5%\n  shadow_mode: false"),
        "line 4, column 3: descriptors[0].enforce: must not stand beside shadow_mode, which is the share 0%"
    );
    let error =
        envoy_refused("{domain: d, descriptors: [{key: a, enforce: 5%, rate_limit: {unit: day}}]}")
            .to_string();
    assert!(
        error.contains("field enforce is an addition of Tollgate"),
        "{error}"
    );
}

#[test]
fn the_share_is_read_and_explained() {
    for (text, percent) in [("25%", 25), ("25", 25), ("0%", 0), ("100%", 100)] {
        let set = rules(&format!(
            "{{domain: d, descriptors: [{{key: a, enforce: {text}, rate_limit: {{quota: 1/s}}}}]}}"
        ));
        assert_eq!(set.rules().next().unwrap().enforced_percent(), percent);
    }
    let explained = rules(RULES)
        .explain("d", &Descriptor::from([("tenant", "t")]))
        .to_string();
    assert!(
        explained
            .trim_end()
            .ends_with("enforced for 40 % of the keys"),
        "{explained}"
    );
}
