//! Networks of clients that are never limited, or never served.

use std::{
    convert::Infallible,
    fs,
    net::{IpAddr, SocketAddr},
    path::Path,
};

use http::{Request, Response};
use tollgate::{Enforcement, Key, MemoryStore, store::Clock};
use tollgate_rules::{
    Code, Descriptor, GlobalModes, RuleErrorKind, RuleLimiter, RuleSet, Rules, Treatment,
};
use tollgate_tower::{RateLimitLayer, key::Global};
use tower::{Layer, ServiceExt, service_fn};

use super::{envoy_refused, refused, rules, until};

const RULES: &str = "
domain: d
networks:
  allow: [10.0.0.0/8, 192.0.2.7]
  deny: [192.0.2.0/24, '2001:db8::/32']
rate_limits:
- actions: [{generic_key: {descriptor_value: all}}]
descriptors:
- {key: generic_key, rate_limit: {name: all, quota: 1/h}}
";

fn store() -> MemoryStore {
    MemoryStore::builder()
        .clock(Clock::manual(1_000_000_000))
        .build()
}

fn of(address: &'static str) -> [Descriptor<'static>; 2] {
    [
        Descriptor::from([("generic_key", "all")]),
        Descriptor::from([("remote_address", address)]),
    ]
}

async fn status<R>(layer: &RateLimitLayer<Global, R>, address: &str) -> u16
where
    R: tollgate_tower::Respond<String>,
{
    let service =
        service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    let peer = SocketAddr::new(address.parse().unwrap(), 443);
    let request = Request::get("/").extension(peer).body(()).unwrap();
    layer
        .layer(service)
        .oneshot(request)
        .await
        .unwrap()
        .status()
        .as_u16()
}

#[tokio::test]
async fn a_layer_exempts_allowed_clients_and_refuses_denied_ones() {
    let limiter = RuleLimiter::new(Rules::new(rules(RULES)), store());
    let layer = RateLimitLayer::new(limiter.for_requests("d"), Global);
    for address in ["10.1.2.3", "192.0.2.7", "::ffff:10.0.0.1"] {
        assert_eq!(
            [status(&layer, address).await, status(&layer, address).await],
            [200, 200],
            "{address}"
        );
    }
    for address in ["192.0.2.8", "2001:db8::1"] {
        assert_eq!(status(&layer, address).await, 403, "{address}");
    }
    // Neither has spent the one unit.
    assert_eq!(
        [
            status(&layer, "203.0.113.1").await,
            status(&layer, "203.0.113.1").await
        ],
        [200, 429]
    );
    let service =
        service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    let nobody = layer
        .layer(service)
        .oneshot(Request::new(()))
        .await
        .unwrap();
    assert_eq!(
        nobody.status(),
        500,
        "the server does not give the address of the client"
    );
}

#[tokio::test]
async fn a_denied_client_is_limited_as_others_in_shadow_mode_and_outside_of_the_share() {
    let enforcement = Enforcement::share(50);
    for host in 10..60 {
        let limiter = RuleLimiter::new(Rules::new(rules(RULES)), store());
        let layer = RateLimitLayer::builder(limiter.for_requests("d"), Global)
            .enforcement(enforcement.clone())
            .build();
        let address = format!("192.0.2.{host}");
        let is_enforced = enforcement.applies_to(&Key::from(address.parse::<IpAddr>().unwrap()));
        assert_eq!(
            status(&layer, &address).await,
            if is_enforced { 403 } else { 200 },
            "{address}"
        );
    }
    let modes = GlobalModes {
        shadow: true,
        ..GlobalModes::default()
    };
    let limiter = RuleLimiter::builder(Rules::new(rules(RULES)), store())
        .modes(modes)
        .build();
    let layer = RateLimitLayer::new(limiter.for_requests("d"), Global);
    assert_eq!(
        [
            status(&layer, "192.0.2.8").await,
            status(&layer, "192.0.2.8").await
        ],
        [200, 200]
    );
}

#[tokio::test]
async fn the_entry_with_the_address_decides_without_a_layer() {
    let limiter = RuleLimiter::new(Rules::new(rules(RULES)), store());
    for _ in 0..3 {
        let decision = limiter.check("d", &of("10.9.9.9"), 1).await.unwrap();
        assert!(decision.is_allowed());
        let decision = limiter.check("d", &of("192.0.2.9"), 1).await.unwrap();
        let codes: Vec<_> = decision
            .verdict()
            .statuses()
            .iter()
            .map(|status| status.code())
            .collect();
        assert_eq!(
            (decision.is_denied(), codes),
            (true, vec![Code::OverLimit; 2])
        );
        assert_eq!(
            (decision.retry_after(), decision.verdict().nearest()),
            (None, None)
        );
    }
    assert!(
        limiter
            .check("d", &of("198.51.100.0/24"), 1)
            .await
            .unwrap()
            .is_allowed(),
        "a network is no address"
    );
    assert!(
        limiter
            .check("d", &of("203.0.113.1"), 1)
            .await
            .unwrap()
            .is_denied()
    );
    let both = [Descriptor::from([
        ("remote_address", "10.0.0.1"),
        ("remote_address", "192.0.2.9"),
    ])];
    let set = limiter.rules().current();
    let treatments = |request: &[Descriptor<'_>]| {
        set.plan("d", request, 1)
            .unwrap()
            .iter()
            .map(|planned| planned.treatment())
            .collect::<Vec<_>>()
    };
    assert_eq!(treatments(&both), [Treatment::NetworkDenied]);
    assert_eq!(treatments(&of("10.0.0.1")), [Treatment::NetworkAllowed; 2]);
}

#[test]
fn mistakes_name_the_field_the_line_and_the_value() {
    let error = |networks: &str| refused(&format!("domain: d\nnetworks: {networks}\n")).to_string();
    let shape = "network must be an address or an address with a prefix, such as 10.0.0.0/8";
    assert_eq!(
        error("{deny: [10.0.0.0/8, 10.0.0.0/33]}"),
        format!("line 2, column 31: networks.deny[1]: {shape}, got \"10.0.0.0/33\"")
    );
    assert_eq!(
        error("{allow: [10.0.0.0/8], deny: [10.0.0.0/8]}"),
        "line 2, column 11: networks: network of 10.0.0.0 must not be both allowed and denied"
    );
    assert!(
        error("{block: []}").contains(
            "networks.block: unknown field, expected allow, deny, allow_file or deny_file"
        )
    );
    assert!(error("{deny_file: ''}").contains("networks.deny_file: must not be empty"));
    assert!(error("{deny: 10.0.0.0/8}").contains("networks.deny: expected a list"));
    let error = envoy_refused("{domain: d, networks: {}}").to_string();
    assert!(
        error.contains("field networks is an addition of Tollgate"),
        "{error}"
    );
}

fn write(path: &Path, text: &str) {
    let next = path.with_extension("next");
    fs::write(&next, text).unwrap();
    fs::rename(next, path).unwrap();
}

fn is_denied(set: &RuleSet, address: &'static str) -> bool {
    set.plan("d", &of(address), 1)
        .unwrap()
        .iter()
        .all(|planned| planned.treatment() == Treatment::NetworkDenied)
}

#[test]
fn mistakes_in_a_file_of_networks_refuse_the_load_and_name_both_files() {
    let directory = tempfile::tempdir().unwrap();
    let (path, list) = (
        directory.path().join("rules.yaml"),
        directory.path().join("blocked.txt"),
    );
    fs::write(&path, "domain: d\nnetworks: {deny_file: blocked.txt}\n").unwrap();
    let errors = RuleSet::load(&path).unwrap_err();
    assert_eq!(errors.iter().next().unwrap().kind(), RuleErrorKind::Io);
    let expected = format!(
        "networks.deny_file: {}: cannot read the file: it does not exist",
        list.display()
    );
    assert!(errors.to_string().ends_with(&expected), "{errors}");
    fs::write(
        &list,
        "10.0.0.0/8\n\n# a comment\n10.0.0.0/8 # another\n2001:db8::/129\n",
    )
    .unwrap();
    let errors = RuleSet::load(&path).unwrap_err().to_string();
    assert!(
        errors.contains(&format!("{}: line 5: network must be", list.display())),
        "{errors}"
    );
    fs::write(&list, "10.0.0.0/8 # one\n").unwrap();
    let set = RuleSet::load(&path).unwrap();
    assert!(is_denied(&set, "10.0.0.1") && !is_denied(&set, "11.0.0.1"));
}

#[test]
fn a_file_of_networks_is_watched_as_the_rules_are() {
    let directory = tempfile::tempdir().unwrap();
    let lists = tempfile::tempdir().unwrap();
    let (path, list) = (
        directory.path().join("rules.yaml"),
        lists.path().join("blocked.txt"),
    );
    let with = |file: &Path| format!("domain: d\nnetworks: {{deny_file: {}}}\n", file.display());
    fs::write(&list, "10.0.0.0/8\n").unwrap();
    fs::write(&path, with(&list)).unwrap();
    let rules = Rules::load(&path).unwrap();
    let _guard = rules.watch().unwrap();
    let denied = |address| is_denied(&rules.current(), address);
    assert!(denied("10.0.0.1"));
    write(&list, "11.0.0.0/8\n");
    until("the list was replaced", || {
        denied("11.0.0.1") && !denied("10.0.0.1")
    });
    write(&list, "no network\n");
    until("a wrong list was refused", || rules.last_error().is_some());
    assert!(denied("11.0.0.1"), "the old list stays in force");
    write(&list, "12.0.0.0/8\n");
    until("the list was mended", || denied("12.0.0.1"));

    // Rules that name another file, in another directory, which comes later.
    let other = tempfile::tempdir().unwrap();
    let late = other.path().join("late.txt");
    write(&path, &with(&late));
    until("the missing list was refused", || {
        rules.last_error().is_some()
    });
    fs::write(&late, "13.0.0.0/8\n").unwrap();
    until("the list appeared", || denied("13.0.0.1"));
    let loads = rules.loads().succeeded;
    write(&late, "14.0.0.0/8\n");
    until("the other list was replaced", || denied("14.0.0.1"));
    assert!(rules.loads().succeeded > loads && rules.last_error().is_none());
}
