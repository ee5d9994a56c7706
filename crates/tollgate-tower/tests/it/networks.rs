//! Allowed and denied networks, and the networks of a key.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::{Request, StatusCode};
use tollgate::{ErrorKind, Key, Limiter};
use tollgate_tower::{
    KeyExtractor, RateLimitLayer,
    key::{Global, KeyError, Network, NetworkVerdict, Networks, PeerIp, Prefixes},
};

use crate::support::*;

fn address(parts: &http::request::Parts) -> Result<IpAddr, KeyError> {
    PeerIp.address(parts)
}

fn from(address: &str) -> Request<()> {
    let peer: SocketAddr = SocketAddr::new(address.parse().unwrap(), 443);
    Request::builder().extension(peer).body(()).unwrap()
}

fn lists() -> Networks {
    Networks::parse("10.0.0.0/8\n192.0.2.7", "192.0.2.0/24\n2001:db8::/32").unwrap()
}

#[tokio::test]
async fn a_denied_network_gets_403_and_spends_nothing() {
    let limiter = Limiter::new(still(), TWO);
    let layer = RateLimitLayer::builder(limiter.clone(), Global)
        .networks(lists(), address)
        .build();
    for address in ["192.0.2.8", "::ffff:192.0.2.8", "2001:db8::1"] {
        let response = send(&layer, from(address)).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN, "{address}");
        assert_eq!(
            header(&response, "content-type"),
            Some("application/problem+json")
        );
        for absent in ["retry-after", "ratelimit", "ratelimit-policy"] {
            assert_eq!(header(&response, absent), None, "{absent}");
        }
        assert_eq!(response.body(), r#"{"title":"Forbidden","status":403}"#);
    }
    for _ in 0..5 {
        assert_eq!(
            send(&layer, from("192.0.2.7")).await.status(),
            StatusCode::OK
        );
    }
    assert_eq!(remaining(&limiter, "all", "two").await, 2);
    let statuses = [
        send(&layer, from("203.0.113.5")).await,
        send(&layer, from("203.0.113.5")).await,
    ];
    assert!(
        statuses
            .iter()
            .all(|response| response.status() == StatusCode::OK)
    );
    assert_eq!(
        send(&layer, from("203.0.113.5")).await.status(),
        StatusCode::TOO_MANY_REQUESTS
    );
}

#[tokio::test]
async fn in_shadow_mode_a_denied_network_passes_and_is_limited_as_others_are() {
    let limiter = Limiter::new(still(), TWO);
    let layer = RateLimitLayer::builder(limiter.clone(), Global)
        .networks(lists(), address)
        .shadow(true)
        .build();
    for _ in 0..3 {
        assert_eq!(
            send(&layer, from("192.0.2.8")).await.status(),
            StatusCode::OK
        );
    }
    assert_eq!(remaining(&limiter, "all", "two").await, 0);
}

#[tokio::test]
async fn a_request_without_an_address_is_a_wrong_set_up() {
    let layer = RateLimitLayer::builder(Limiter::new(still(), TWO), Global)
        .networks(lists(), address)
        .build();
    assert_eq!(
        send(&layer, request()).await.status(),
        StatusCode::INTERNAL_SERVER_ERROR
    );
    let exempt =
        RateLimitLayer::builder(Limiter::new(still(), TWO), Global).networks(lists(), address);
    assert_eq!(
        send(&exempt.exempt(|_| true).build(), request())
            .await
            .status(),
        StatusCode::OK
    );
}

fn network(text: &str) -> Network {
    text.parse().unwrap()
}

/// Returns the length of the prefix of a network.
fn bits(network: Network) -> u8 {
    let text = network.to_string();
    text.rsplit_once('/').unwrap().1.parse().unwrap()
}

/// Returns the verdict of the smallest network that contains the address.
fn searched(networks: &[(Network, IpAddr, NetworkVerdict)], address: IpAddr) -> NetworkVerdict {
    let found = networks
        .iter()
        .filter(|(network, ..)| network.contains(address));
    found
        .max_by_key(|(network, ..)| bits(*network))
        .map_or(NetworkVerdict::Limited, |(.., verdict)| *verdict)
}

#[test]
fn the_smallest_network_decides_as_a_plain_search_says() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut networks: Vec<(Network, IpAddr, NetworkVerdict)> = Vec::new();
        for _ in 0..random.usize(0..40) {
            // Few bits, so that networks lie in each other, and at both ends of the addresses.
            let address = if random.bool() {
                let bits = random.u32(0..16).reverse_bits() | random.u32(0..4);
                IpAddr::from(Ipv4Addr::from_bits(bits))
            } else {
                let bits = random.u128(0..16).reverse_bits() | random.u128(0..4);
                IpAddr::from(Ipv6Addr::from_bits(bits))
            };
            let width = if address.is_ipv4() { 32 } else { 128 };
            let lengths = [0, 1, 2, 3, 4, 5, width - 2, width - 1, width];
            let network = Network::try_new(address, random.choice(lengths).unwrap()).unwrap();
            let verdict = if random.bool() {
                NetworkVerdict::Allowed
            } else {
                NetworkVerdict::Denied
            };
            let is_same = |(other, own, _): &(Network, IpAddr, NetworkVerdict)| {
                bits(*other) == bits(network) && other.contains(address) && network.contains(*own)
            };
            if !networks.iter().any(is_same) {
                networks.push((network, address, verdict));
            }
        }
        let of = |verdict| {
            let own = networks.iter().filter(move |entry| entry.2 == verdict);
            own.map(|entry| entry.0)
        };
        let lists =
            Networks::try_new(of(NetworkVerdict::Allowed), of(NetworkVerdict::Denied)).unwrap();
        for _ in 0..400 {
            let v4 = random.u32(0..32).reverse_bits() | random.u32(0..5);
            let v6 = random.u128(0..32).reverse_bits() | random.u128(0..5);
            let ends = [0, v4, !v4, u32::MAX].map(|bits| IpAddr::from(Ipv4Addr::from_bits(bits)));
            let wide = [0, v6, !v6, u128::MAX].map(|bits| IpAddr::from(Ipv6Addr::from_bits(bits)));
            for address in ends.into_iter().chain(wide) {
                assert_eq!(
                    lists.verdict(address),
                    searched(&networks, address.to_canonical()),
                    "seed {seed}, {address} in {networks:?}"
                );
            }
        }
    }
}

#[test]
fn a_network_in_both_lists_is_an_error_that_names_it_and_keeps_the_old_lists() {
    let networks = Networks::try_new([network("10.0.0.0/8")], []).unwrap();
    let error = networks
        .replace([network("192.0.2.9/24")], [network("192.0.2.0/24")])
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "network of 192.0.2.0 must not be both allowed and denied"
    );
    assert_eq!(
        networks.verdict("10.0.0.1".parse().unwrap()),
        NetworkVerdict::Allowed
    );
}

#[test]
fn a_mapped_address_counts_as_ipv4() {
    let networks = Networks::parse("", "::ffff:10.0.0.0/104").unwrap();
    for address in ["10.1.2.3", "::ffff:10.1.2.3"] {
        assert_eq!(
            networks.verdict(address.parse().unwrap()),
            NetworkVerdict::Denied
        );
    }
}

#[test]
fn lists_are_exchanged_while_requests_ask_them() {
    let networks = Networks::parse("10.0.0.0/8", "").unwrap();
    std::thread::scope(|scope| {
        let asked = networks.clone();
        let asking = scope.spawn(move || {
            while asked.verdict("10.0.0.1".parse().unwrap()) == NetworkVerdict::Allowed {
                std::hint::spin_loop();
            }
        });
        networks.replace([], [network("10.0.0.0/8")]).unwrap();
        asking.join().unwrap();
    });
}

#[test]
fn text_that_is_not_a_network_is_named_in_the_error() {
    for text in [
        "",
        "10.0.0.0/33",
        "::/129",
        "10.0.0.0/",
        "10.0.0.0/+8",
        "10.0.0.0/-1",
        "10.0.0/8",
        "a/8",
        "1.2.3.4/8/9",
        " 10.0.0.0/8",
    ] {
        let error = text.parse::<Network>().unwrap_err();
        assert!(
            error.to_string().ends_with(&format!("got {text:?}")),
            "{error}"
        );
    }
}

#[test]
fn a_network_contains_its_first_and_last_address_and_no_other() {
    for (text, inside, outside) in [
        ("0.0.0.0/0", ["0.0.0.0", "255.255.255.255"], ["::", "::1"]),
        (
            "10.0.0.0/8",
            ["10.0.0.0", "10.255.255.255"],
            ["9.255.255.255", "11.0.0.0"],
        ),
        (
            "192.0.2.77/31",
            ["192.0.2.76", "192.0.2.77"],
            ["192.0.2.75", "192.0.2.78"],
        ),
        (
            "::ffff:10.0.0.0/104",
            ["10.0.0.0", "::ffff:10.255.255.255"],
            ["11.0.0.0", "::"],
        ),
        (
            "2001:db8::/32",
            ["2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"],
            ["2001:db7:ffff::", "2001:db9::"],
        ),
        ("::/0", ["::", "ffff::"], ["0.0.0.0", "::ffff:1.2.3.4"]),
        ("fe80::1", ["fe80::1", "fe80:0::1"], ["fe80::", "fe80::2"]),
    ] {
        for (addresses, is_inside) in [(inside, true), (outside, false)] {
            for address in addresses {
                assert_eq!(
                    network(text).contains(address.parse().unwrap()),
                    is_inside,
                    "{address} in {text}"
                );
            }
        }
    }
}

#[test]
fn lengths_that_are_no_nested_networks_are_refused_with_their_values() {
    let long = [32, 48, 56, 64, 128];
    for bits in [&[][..], &[0], &[129], &[64, 48], &[64, 64], &long] {
        let error = Prefixes::try_ipv6(bits).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(
            error.to_string().ends_with(&format!("got {bits:?}")),
            "{error}"
        );
    }
    let two = Prefixes::ipv6([48, 64]);
    for bits in [
        &[][..],
        &[24],
        &[0, 32],
        &[24, 33],
        &[32, 24],
        &[16, 24, 32],
    ] {
        let error = two.try_ipv4(bits).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        let end = format!("got {bits:?} beside [48, 64]");
        assert!(error.to_string().ends_with(&end), "{error}");
    }
    assert_eq!(two.try_ipv4(&[32, 32]).unwrap(), two);
    assert_eq!(
        Prefixes::try_ipv6(&[1, 32, 48, 128]).unwrap(),
        Prefixes::ipv6([1, 32, 48, 128])
    );
}

#[test]
fn each_network_of_a_key_contains_the_next() {
    let key = |prefixes: Prefixes, address: &str| {
        let (parts, ()) = from(address).into_parts();
        let key = PeerIp.prefixes(prefixes).extract(&parts);
        key.unwrap().unwrap()
    };
    let nested = Prefixes::ipv6([32, 48, 56, 64]);
    let address = "2001:db8:aaaa:bbcc:1::";
    let found = key(nested, address);
    assert_eq!(
        found.encoded(),
        "*2001:db8::/32>*2001:db8:aaaa::/48>*2001:db8:aaaa:bb00::/56>*2001:db8:aaaa:bbcc::/64"
    );
    let outer = key(Prefixes::ipv6([32, 48, 56]), address);
    assert_eq!(found.parent(), Some(outer));
    let mapped = key(nested, "::ffff:192.0.2.7");
    assert_eq!(mapped, key(nested, "192.0.2.7"));
    assert_eq!(mapped.levels(), 4);
    let innermost = Key::network(address.parse().unwrap(), 64);
    assert_eq!(key(Prefixes::ipv6([64]), address), innermost);
}
