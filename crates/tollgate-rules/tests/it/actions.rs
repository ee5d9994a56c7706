//! Descriptors of requests.

use std::net::SocketAddr;

use http::{Request, request::Parts};
use tollgate_rules::{
    Actions, ClientIp, Compat, Descriptor, Descriptors, Format, HeaderMatch, RuleSet,
};
use tollgate_tower::key::{ForwardedIp, KeyErrorKind, TrustedProxies};

use super::{refused, rules};

fn request(path: &str, headers: &[(&str, &[u8])]) -> Parts {
    let mut request = Request::post(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let peer: SocketAddr = "[::ffff:192.0.2.7]:50000".parse().unwrap();
    request.extension(peer).body(()).unwrap().into_parts().0
}

/// Returns the entries of the one descriptor, as text.
fn made(descriptors: &Descriptors, parts: &Parts) -> Option<String> {
    let all = descriptors.extract(parts, &ClientIp::Peer).unwrap();
    assert!(all.len() < 2, "{all:?}");
    let entries = |descriptor: &Descriptor<'_>| {
        let entries = descriptor
            .entries()
            .iter()
            .map(|entry| format!("{}={}", entry.key(), entry.value()));
        entries.collect::<Vec<_>>().join(" ")
    };
    all.first().map(entries)
}

/// Reads one descriptor's actions from a file.
fn from_file(actions: &str) -> Descriptors {
    let set = rules(&format!(
        "domain: d\nrate_limits:\n- actions:\n  - {actions}\n"
    ));
    set.descriptors("d").unwrap().clone()
}

#[test]
fn each_action_makes_the_same_entry_in_code_and_in_the_file() {
    let name = http::HeaderName::from_static;
    for (file, code, expected) in [
        (
            "remote_address: {}",
            Actions::new().client_ip("remote_address"),
            Some("remote_address=192.0.2.7"),
        ),
        (
            "masked_remote_address: {v4_prefix_mask_len: 24}",
            Actions::new().client_network("masked_remote_address", 24, 128),
            Some("masked_remote_address=192.0.2.0/24"),
        ),
        (
            "request_headers: {header_name: X-Tenant, descriptor_key: tenant}",
            Actions::new().header("x-tenant", "tenant"),
            Some("tenant=acme"),
        ),
        (
            "request_headers: {header_name: x-none, descriptor_key: none}",
            Actions::new().header("x-none", "none"),
            None,
        ),
        (
            "request_headers: {header_name: x-empty, descriptor_key: none}",
            Actions::new().header("x-empty", "none"),
            None,
        ),
        (
            "generic_key: {descriptor_value: v}",
            Actions::new().fixed("generic_key", "v"),
            Some("generic_key=v"),
        ),
        (
            "generic_key: {descriptor_value: v, descriptor_key: k}",
            Actions::new().fixed("k", "v"),
            Some("k=v"),
        ),
        (
            "header_value_match: {descriptor_value: v, headers: [{name: x-tenant, string_match: {prefix: ac}}]}",
            Actions::new().when(
                "header_match",
                "v",
                [HeaderMatch::prefix(name("x-tenant"), "ac")],
            ),
            Some("header_match=v"),
        ),
        (
            "header_value_match: {descriptor_value: v, headers: [{name: x-tenant, string_match: {suffix: no}}]}",
            Actions::new().when(
                "header_match",
                "v",
                [HeaderMatch::suffix(name("x-tenant"), "no")],
            ),
            None,
        ),
        (
            "method:",
            Actions::new().method("method"),
            Some("method=POST"),
        ),
        (
            "path: {descriptor_key: p}",
            Actions::new().path("p"),
            Some("p=/pkg.Shop/Buy"),
        ),
        (
            "grpc_method:",
            Actions::new().grpc_method("grpc_method"),
            Some("grpc_method=pkg.Shop/Buy"),
        ),
        (
            "grpc_service:",
            Actions::new().grpc_service("grpc_service"),
            Some("grpc_service=pkg.Shop"),
        ),
        ("matched_path:", Actions::new().matched_path("route"), None),
    ] {
        let parts = request(
            "http://host/pkg.Shop/Buy?x=1",
            &[("x-tenant", b"acme"), ("x-empty", b"")],
        );
        assert_eq!(
            made(&from_file(file), &parts).as_deref(),
            expected,
            "{file}"
        );
        assert_eq!(
            made(&Descriptors::from(code), &parts).as_deref(),
            expected,
            "{file}"
        );
    }
}

#[test]
fn a_missing_value_removes_the_descriptor_or_with_skip_if_absent_the_entry() {
    let set = rules(
        "
domain: d
rate_limits:
  - actions:
      - generic_key: {descriptor_value: one}
      - request_headers: {header_name: x-none, descriptor_key: none}
  - actions:
      - generic_key: {descriptor_value: two}
      - request_headers: {header_name: x-none, descriptor_key: none, skip_if_absent: true}
  - actions:
      - request_headers: {header_name: x-none, descriptor_key: none, skip_if_absent: true}
",
    );
    assert_eq!(
        made(set.descriptors("d").unwrap(), &request("/", &[])).as_deref(),
        Some("generic_key=two")
    );
}

#[test]
fn header_fields_are_tested_in_all_ways() {
    let parts = request("/", &[("x-a", b"Hello World")]);
    for (test, expected) in [
        ("string_match: {exact: Hello World}", true),
        ("exact_match: Hello World", true),
        ("exact_match: hello world", false),
        (
            "string_match: {exact: hello world, ignore_case: true}",
            true,
        ),
        ("string_match: {contains: lo wo}", false),
        ("string_match: {contains: LO WO, ignore_case: true}", true),
        ("string_match: {suffix: World}, invert_match: true", false),
        ("present_match: true", true),
        ("present_match: false", false),
        ("present_match: false, invert_match: true", true),
    ] {
        for expect_match in [true, false] {
            let file = format!(
                "header_value_match: {{descriptor_value: v, expect_match: {expect_match}, headers: [{{name: x-a, {test}}}]}}"
            );
            assert_eq!(
                made(&from_file(&file), &parts).is_some(),
                expected == expect_match,
                "{file}"
            );
        }
    }
    // All tests must match. A missing field matches no text, and matches the opposite of one.
    let both = |second: &str| {
        let file = format!(
            "header_value_match: {{descriptor_value: v, headers: [{{name: x-a}}, {{name: x-b, {second}}}]}}"
        );
        made(&from_file(&file), &parts).is_some()
    };
    assert!(!both("string_match: {contains: x}"));
    assert!(both("string_match: {contains: x}, invert_match: true"));
}

#[test]
fn repeated_and_foreign_header_values_are_texts() {
    let descriptors = Descriptors::from(Actions::new().header("x-a", "a"));
    assert_eq!(
        made(&descriptors, &request("/", &[("x-a", b"1"), ("x-a", b"2")])).as_deref(),
        Some("a=1,2")
    );
    assert_eq!(
        made(&descriptors, &request("/", &[("x-a", "ä".as_bytes())])).as_deref(),
        Some("a=ä")
    );
    assert_eq!(
        made(&descriptors, &request("/", &[("x-a", b"\xe4")])).as_deref(),
        Some("a=ä")
    );
}

#[test]
fn the_address_comes_from_trusted_proxies_alone() {
    let descriptors = Descriptors::from(Actions::new().client_network("net", 32, 48));
    let parts = request("/", &[("x-forwarded-for", b"2001:db8:1:2::3")]);
    let address = |client_ip: &ClientIp| {
        let all = descriptors.extract(&parts, client_ip).unwrap();
        all[0].entries()[0].value().to_owned()
    };
    assert_eq!(address(&ClientIp::Peer), "192.0.2.7/32");
    let trusted = TrustedProxies::networks(["192.0.2.0/24".parse().unwrap()]);
    assert_eq!(
        address(&ForwardedIp::x_forwarded_for(trusted).into()),
        "2001:db8:1::/48"
    );
    let others = TrustedProxies::networks(["10.0.0.0/8".parse().unwrap()]);
    assert_eq!(
        address(&ForwardedIp::x_forwarded_for(others).into()),
        "192.0.2.7/32"
    );
}

#[test]
fn a_server_without_addresses_is_an_error() {
    let descriptors = Descriptors::from(Actions::new().client_ip("ip"));
    let (parts, ()) = Request::new(()).into_parts();
    let error = descriptors.extract(&parts, &ClientIp::Peer).unwrap_err();
    assert_eq!(error.kind(), KeyErrorKind::Misconfigured);
}

#[test]
fn mistakes_in_actions_are_reported_with_their_place() {
    let error = |actions: &str| {
        refused(&format!(
            "domain: d\nrate_limits:\n- actions:\n  - {actions}\n"
        ))
        .to_string()
    };
    for (actions, expected) in [
        (
            "remote_adress: {}",
            "line 4, column 5: rate_limits[0].actions[0].remote_adress: unknown field, did you mean remote_address?",
        ),
        (
            "{method: , path: }",
            "rate_limits[0].actions[0]: an action must be one field, got 2",
        ),
        (
            "request_headers: {header_name: x}",
            "request_headers.descriptor_key: is missing",
        ),
        (
            "request_headers: {header_name: \"x y\", descriptor_key: k}",
            "header_name: must be the name of a header field, got \"x y\"",
        ),
        (
            "request_headers: {header_name: \":path\", descriptor_key: path}",
            "header_name: must be the name of a header field, got \":path\": use the action path",
        ),
        (
            "request_headers: {header_name: \":method\", descriptor_key: method}",
            "header_name: must be the name of a header field, got \":method\": use the action method",
        ),
        (
            "generic_key: {descriptor_value: \"\"}",
            "generic_key.descriptor_value: must not be empty",
        ),
        (
            "masked_remote_address: {v4_prefix_mask_len: 33}",
            "v4_prefix_mask_len: must be 0 to 32, got 33",
        ),
        (
            "header_value_match: {descriptor_value: v, headers: [{}]}",
            "headers[0].name: is missing",
        ),
        (
            "header_value_match: {descriptor_value: v, headers: [{name: a, string_match: {}}]}",
            "headers[0].string_match: must have one of exact, prefix, suffix and contains",
        ),
        (
            "header_value_match: {descriptor_value: v, headers: [{name: a, exact_match: x, present_match: true}]}",
            "headers[0]: must have one of string_match, exact_match and present_match",
        ),
        (
            "remote_address: {descriptor_key: x}",
            "remote_address.descriptor_key: unknown field",
        ),
    ] {
        assert!(
            error(actions).contains(expected),
            "{actions}: {}",
            error(actions)
        );
    }
    let text = "domain: d\nrate_limits: []\n";
    let errors = RuleSet::builder()
        .compat(Compat::Envoy)
        .parse(text, Format::Yaml)
        .unwrap_err();
    assert!(
        errors
            .to_string()
            .contains("field rate_limits is an addition of Tollgate"),
        "{errors}"
    );
}

#[tokio::test]
async fn the_matched_path_of_axum_is_the_route() {
    use axum::{Router, body::Body, extract::Request, routing::get};
    use tower::ServiceExt;

    let handler = |request: Request| async {
        let (parts, _) = request.into_parts();
        let descriptors = Descriptors::from(Actions::new().matched_path("route"));
        made(&descriptors, &parts).unwrap_or_default()
    };
    let app: Router = Router::new().route("/users/{id}", get(handler));
    let request = Request::get("/users/7").body(Body::empty()).unwrap();
    let body = app.oneshot(request).await.unwrap().into_body();
    let bytes = axum::body::to_bytes(body, 1_000).await.unwrap();
    assert_eq!(bytes, "route=/users/{id}");
}
