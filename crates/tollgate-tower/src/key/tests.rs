use std::{net::SocketAddr, sync::Arc};

use http::{HeaderValue, Request, StatusCode, request::Parts};
use tollgate_core::Key;

use super::*;

fn parts(build: impl FnOnce(http::request::Builder) -> http::request::Builder) -> Parts {
    build(Request::builder()).body(()).unwrap().into_parts().0
}

fn message(extraction: Extraction) -> String {
    extraction.unwrap_err().to_string()
}

#[test]
fn a_header_must_appear_once_with_a_value() {
    let key = Header::new("x-api-key");
    assert_eq!(
        message(key.extract(&parts(|request| request))),
        "header x-api-key is missing"
    );
    assert_eq!(
        message(key.extract(&parts(|request| request.header("x-api-key", "")))),
        "header x-api-key is empty"
    );
    assert_eq!(
        message(key.extract(&parts(|request| request.header("x-api-key", " \t ")))),
        "header x-api-key is empty"
    );
    let twice = parts(|request| request.header("x-api-key", "a").header("X-Api-Key", "a"));
    assert_eq!(
        message(key.extract(&twice)),
        "header x-api-key appears more than once"
    );
    assert_eq!(
        key.extract(&twice).unwrap_err().kind(),
        KeyErrorKind::Missing
    );
}

#[test]
#[should_panic(expected = "the name of a header must be in lower case, as in \"x-api-key\"")]
fn the_name_of_a_header_is_in_lower_case() {
    let _ = Header::new("X-Api-Key");
}

#[test]
fn a_bearer_token_is_a_digest_and_anything_else_is_401_with_a_challenge() {
    let secret = tollgate_core::KeySecret::new("32 bytes that nobody else knows.");
    let key = Bearer::new(secret.clone());
    let sent = |value: &str| parts(|request| request.header("authorization", value));
    for (value, token) in [
        ("Bearer mF_9.B5f-4.1JqM", "mF_9.B5f-4.1JqM"),
        ("bearer  a+/~==", "a+/~=="),
        ("BEARER x", "x"),
    ] {
        let found = key.extract(&sent(value)).unwrap();
        assert_eq!(found, Some(Key::secret(token, &secret)), "{value}");
    }
    let twice = parts(|request| {
        let request = request.header("authorization", "Bearer a");
        request.header("authorization", "Bearer a")
    });
    let others = [
        "",
        "Bearer",
        "Bearer ",
        "Bearer ==",
        "Bearera",
        "Basic YTpi",
        "Bearer a b",
        "Bearer a=b",
        "Bearer a,b",
    ];
    let missing = others
        .map(sent)
        .into_iter()
        .chain([twice, parts(|request| request)]);
    for parts in missing {
        let error = key.extract(&parts).unwrap_err();
        let sent = parts.headers.get("authorization");
        assert_eq!(
            (error.kind(), error.status().as_u16()),
            (KeyErrorKind::Missing, 401),
            "{sent:?}"
        );
        assert_eq!(error.challenge().unwrap(), "Bearer");
        assert_eq!(error.to_string(), "the request has no bearer token");
    }
}

#[test]
fn a_status_of_ones_choice_is_that_of_a_missing_key_alone() {
    let none = parts(|request| request);
    let error = Header::new("x-api-key")
        .or_status(StatusCode::FORBIDDEN)
        .extract(&none)
        .unwrap_err();
    assert_eq!((error.status().as_u16(), error.challenge()), (403, None));
    assert_eq!(error.to_string(), "header x-api-key is missing");
    let error = Header::new("x-api-key")
        .or_unauthorized("ApiKey")
        .extract(&none)
        .unwrap_err();
    assert_eq!(
        (
            error.status().as_u16(),
            error.challenge().unwrap().as_bytes()
        ),
        (401, &b"ApiKey"[..])
    );
    // The last one counts, as with a wrapper.
    let twice =
        Bearer::new(tollgate_core::KeySecret::new("secret")).or_status(StatusCode::NOT_FOUND);
    let error = twice.extract(&none).unwrap_err();
    assert_eq!((error.status().as_u16(), error.challenge()), (404, None));
    // Another extractor still finds a key, and a wrong set-up stays one.
    let other = Header::new("x-api-key")
        .or_status(StatusCode::FORBIDDEN)
        .or(Global);
    assert!(other.extract(&none).unwrap().is_some());
    let wrong = FromExtension::<&'static str>::new().or_status(StatusCode::FORBIDDEN);
    assert_eq!(wrong.extract(&none).unwrap_err().status().as_u16(), 500);
    let no_route =
        key_fn(|_| Err::<Key, _>(KeyError::no_route("no route"))).or_status(StatusCode::FORBIDDEN);
    assert_eq!(no_route.extract(&none).unwrap_err().status().as_u16(), 404);
    assert_eq!(
        Header::new("x-api-key")
            .extract(&none)
            .unwrap_err()
            .status()
            .as_u16(),
        400
    );
}

#[test]
#[should_panic(expected = "the status of a missing key must be one of 400 to 499, got 302 Found")]
fn a_missing_key_is_a_mistake_of_the_client() {
    let _ = Header::new("x-api-key").or_status(StatusCode::FOUND);
}

#[test]
fn a_header_with_a_secret_is_a_digest_of_its_value() {
    let secret = tollgate_core::KeySecret::new("32 bytes that nobody else knows.");
    let parts = parts(|request| request.header("x-api-key", "acme"));
    let name = http::HeaderName::from_static("x-api-key");
    let plain = Header::from(name).extract(&parts).unwrap();
    assert_eq!(plain, Some(Key::new("acme")));
    let digest = Header::new("x-api-key")
        .secret(secret.clone())
        .extract(&parts)
        .unwrap();
    assert_eq!(digest, Some(Key::secret("acme", &secret)));
}

#[test]
fn a_header_may_contain_any_bytes_of_any_length() {
    let value = HeaderValue::from_bytes(b"\xff\xfe{}").unwrap();
    let found = Header::new("x-api-key")
        .extract(&parts(|request| request.header("x-api-key", value)))
        .unwrap();
    assert_eq!(found, Some(Key::bytes(b"\xff\xfe{}")));
    let long = "x".repeat(64 * 1024);
    let found = Header::new("x-api-key")
        .extract(&parts(|request| request.header("x-api-key", &long)))
        .unwrap();
    assert_eq!(found.unwrap().encoded().len(), 41);
}

#[test]
fn the_peer_address_comes_from_the_socket_and_not_from_a_header() {
    let peer: SocketAddr = "[::ffff:192.0.2.7]:4711".parse().unwrap();
    let parts = parts(|request| {
        request
            .extension(peer)
            .header("x-forwarded-for", "203.0.113.9")
    });
    assert_eq!(
        PeerIp.extract(&parts).unwrap(),
        Some(Key::from(std::net::IpAddr::from([192, 0, 2, 7])))
    );
}

#[test]
fn ipv6_peers_with_the_same_prefix_share_a_key() {
    let of = |peer: &str, prefix| {
        let peer: SocketAddr = peer.parse().unwrap();
        PeerIp
            .prefixes(Prefixes::ipv6([prefix]))
            .extract(&parts(|request| request.extension(peer)))
            .unwrap()
    };
    assert_eq!(
        of("[2001:db8:0:1::1]:1", 64),
        of("[2001:db8:0:1:ffff::2]:2", 64)
    );
    assert_ne!(of("[2001:db8:0:1::1]:1", 64), of("[2001:db8:0:2::1]:1", 64));
    assert_eq!(of("[2001:db8:0:1::1]:1", 56), of("[2001:db8:0:2::1]:1", 56));
    assert_ne!(of("[2001:db8::1]:1", 128), of("[2001:db8::2]:1", 128));
    assert_ne!(of("192.0.2.1:1", 32), of("192.0.2.2:1", 32));
}

#[test]
fn networks_of_both_families_have_the_lengths_that_were_set_behind_proxies_too() {
    let of = |client: &str, prefixes: Prefixes| {
        let peer: SocketAddr = "10.0.0.1:80".parse().unwrap();
        let parts = parts(|request| request.extension(peer).header("x-real-ip", client));
        let proxies = TrustedProxies::networks(["10.0.0.0/8".parse().unwrap()]);
        ForwardedIp::header("x-real-ip", proxies)
            .prefixes(prefixes)
            .extract(&parts)
            .unwrap()
    };
    let prefixes = Prefixes::ipv6([48]).ipv4([24]);
    assert_eq!(of("192.0.2.1", prefixes), of("192.0.2.200", prefixes));
    assert_ne!(of("192.0.2.1", prefixes), of("192.0.3.1", prefixes));
    assert_eq!(
        of("2001:db8:0:1::1", prefixes),
        of("2001:db8:0:2::1", prefixes)
    );
    assert_ne!(of("2001:db8:1::1", prefixes), of("2001:db8:2::1", prefixes));
}

#[cfg(feature = "axum")]
#[test]
fn axum_provides_the_peer_address() {
    let peer: SocketAddr = "192.0.2.7:4711".parse().unwrap();
    let parts = parts(|request| request.extension(axum::extract::ConnectInfo(peer)));
    assert_eq!(PeerIp.extract(&parts).unwrap(), Some(Key::from(peer.ip())));
}

#[test]
fn a_request_without_a_peer_address_is_a_misconfiguration() {
    assert_eq!(
        PeerIp
            .extract(&parts(|request| request))
            .unwrap_err()
            .kind(),
        KeyErrorKind::Misconfigured
    );
}

#[test]
fn a_tuple_joins_its_keys_and_is_exempt_if_one_of_them_is() {
    let parts = parts(|request| request.header("a", "1").header("b", "2"));
    let both = (Header::new("a"), Header::new("b"));
    assert_eq!(both.extract(&parts).unwrap(), Some(Key::from(("1", "2"))));
    let exempt = (Header::new("a"), Header::new("c").or_exempt(), Global);
    assert_eq!(exempt.extract(&parts).unwrap(), None);
    let missing = (Header::new("a"), Header::new("b"), Global, Header::new("c"));
    assert_eq!(message(missing.extract(&parts)), "header c is missing");
}

#[test]
fn keys_beside_each_other_are_branches_and_an_exempt_one_exempts_the_request() {
    let parts = parts(|request| request.header("a", "1").header("b", "2"));
    let [a, b] = [Header::new("a"), Header::new("b")];
    let key = |extraction: Extraction| extraction.unwrap().unwrap();
    assert_eq!(
        key(a.clone().with_branch(b.clone()).extract(&parts)),
        Key::new("1").with_branch("2")
    );
    assert_eq!(
        key(a
            .clone()
            .with_branch(b.clone())
            .with_branch(Global)
            .extract(&parts))
        .encoded(),
        "1^2^all"
    );
    // A tuple joins its keys to each branch.
    assert_eq!(
        key((RequestMethod, a.clone().with_branch(b.clone())).extract(&parts)).encoded(),
        "GET,1^GET,2"
    );
    assert_eq!(
        key((a.clone().with_branch(b), RequestMethod).extract(&parts)).encoded(),
        "1,GET^2,GET"
    );
    let missing = Header::new("c");
    assert_eq!(
        message(a.clone().with_branch(missing.clone()).extract(&parts)),
        "header c is missing"
    );
    assert_eq!(
        a.clone()
            .with_branch(missing.clone().or_exempt())
            .extract(&parts)
            .unwrap(),
        None
    );
    assert_eq!(
        key(a.clone().with_branch(missing.or(a)).extract(&parts)).encoded(),
        "1^1"
    );
}

#[test]
fn the_second_extractor_applies_only_if_the_first_key_is_missing() {
    let parts = parts(|request| request.header("a", "1"));
    assert_eq!(
        Header::new("b")
            .or(Header::new("a"))
            .extract(&parts)
            .unwrap(),
        Some(Key::new("1"))
    );
    let wrong = key_fn(|_| Err::<Key, _>(KeyError::misconfigured("no")));
    assert_eq!(message(wrong.or(Global).extract(&parts)), "no");
    assert_eq!(message(wrong.or_exempt().extract(&parts)), "no");
}

#[test]
fn a_shared_trait_object_is_an_extractor() {
    let shared: Arc<dyn KeyExtractor> = Arc::new(Global);
    assert_eq!(
        shared.extract(&parts(|request| request)).unwrap(),
        Some(Key::new("all"))
    );
}

#[test]
fn a_path_is_not_normalised() {
    let of = |path: &str| {
        RequestPath
            .extract(&parts(|request| request.uri(path)))
            .unwrap()
    };
    assert_eq!(of("http://example.com/a?b=c"), of("/a"));
    for other in ["/A", "/a/", "//a", "/%61", "/./a", "/a;b"] {
        assert_ne!(of(other), of("/a"), "{other}");
    }
}

#[test]
fn an_unknown_method_gives_no_further_quota() {
    let of = |method: &str| {
        RequestMethod
            .extract(&parts(|request| request.method(method)))
            .unwrap()
    };
    assert_eq!(of("HEAD"), of("GET"));
    assert_eq!(of("X1"), of("get"));
    assert_ne!(of("POST"), of("GET"));
    assert_ne!(of("POST"), of("X1"));
}

#[test]
fn a_missing_extension_is_a_misconfiguration_unless_it_is_optional() {
    let present = parts(|request| request.extension(7_u64));
    assert_eq!(
        FromExtension::<u64>::new().extract(&present).unwrap(),
        Some(Key::from(7_u64))
    );
    let absent = parts(|request| request);
    let error = FromExtension::<u64>::new().extract(&absent).unwrap_err();
    assert_eq!(error.kind(), KeyErrorKind::Misconfigured);
    assert!(error.to_string().contains("`u64`"), "{error}");
    assert_eq!(
        FromExtension::<u64>::optional()
            .extract(&absent)
            .unwrap_err()
            .kind(),
        KeyErrorKind::Missing
    );
}

#[cfg(feature = "tonic")]
#[test]
fn tonic_provides_the_peer_address() {
    let peer: SocketAddr = "192.0.2.7:4711".parse().unwrap();
    let info = |remote_addr| tonic::transport::server::TcpConnectInfo {
        local_addr: None,
        remote_addr,
    };
    let known = parts(|request| request.extension(info(Some(peer))));
    assert_eq!(PeerIp.extract(&known).unwrap(), Some(Key::from(peer.ip())));
    // A Unix socket.
    let unknown = parts(|request| request.extension(info(None)));
    assert_eq!(
        PeerIp.extract(&unknown).unwrap_err().kind(),
        KeyErrorKind::Misconfigured
    );
}

#[test]
fn a_joined_key_keeps_the_levels_of_nested_networks() {
    let peer: SocketAddr = "[2001:db8:1:2::3]:1".parse().unwrap();
    let parts = parts(|request| request.extension(peer));
    let nested = PeerIp.prefixes(Prefixes::ipv6([48, 64]));
    let key = |extraction: Extraction| extraction.unwrap().unwrap();
    assert_eq!(
        key((nested, RequestMethod).extract(&parts)).encoded(),
        "*2001:db8:1::/48>*2001:db8:1:2::/64,GET"
    );
    assert_eq!(
        key((RequestMethod, nested).extract(&parts)).encoded(),
        "GET,*2001:db8:1::/48>*2001:db8:1:2::/64"
    );
    assert_eq!(
        key(PeerIp.prefixes(Prefixes::ipv6([56])).extract(&parts)),
        Key::network(peer.ip(), 56)
    );
}
