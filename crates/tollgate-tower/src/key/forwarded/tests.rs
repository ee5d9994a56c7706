use std::net::SocketAddr;

use http::{HeaderValue, Request};
use proptest::prelude::*;

use super::*;
use crate::key::Network;

const ADDRESSES: &str = include_str!("addresses.txt");
const CHAINS: &str = include_str!("chains.txt");

/// Returns the rows of a table, split into cells.
fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = table
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split('|').map(str::trim).collect())
}

#[test]
fn the_tables_contain_at_least_150_vectors() {
    assert!(rows(ADDRESSES).count() + rows(CHAINS).count() >= 150);
}

#[test]
fn addresses_are_parsed_in_all_forms_that_proxies_write() {
    for row in rows(ADDRESSES) {
        let [text, expected] = row[..] else {
            panic!("{row:?} is not a vector")
        };
        let text = text.replace("<tab>", "\t").replace("<nul>", "\0");
        let expected = (expected != "none").then(|| expected.parse().unwrap());
        assert_eq!(list::address(text.as_bytes()), expected, "{row:?}");
    }
}

/// Returns the extractor that the first cell names. It trusts the networks that the table lists in
/// its head.
fn extractor(name: &str) -> ForwardedIp {
    let proxies = || {
        TrustedProxies::networks(
            ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse::<Network>().unwrap()),
        )
    };
    match name {
        "x" => ForwardedIp::x_forwarded_for(proxies()),
        "f" => ForwardedIp::forwarded(proxies()),
        "cf" => ForwardedIp::header("cf-connecting-ip", proxies()),
        hops => {
            let (kind, hops) = hops.split_at(1);
            let proxies = TrustedProxies::hops(hops.parse().unwrap());
            if kind == "x" {
                ForwardedIp::x_forwarded_for(proxies)
            } else {
                ForwardedIp::forwarded(proxies)
            }
        }
    }
}

fn parts(peer: &str, lines: &[&str], names: &[&str]) -> Parts {
    let peer = peer.parse::<SocketAddr>().unwrap();
    let mut request = Request::builder().extension(peer);
    for line in lines {
        for name in names {
            let value = line.replace("<tab>", "\t");
            request = request.header(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
    }
    request.body(()).unwrap().into_parts().0
}

#[test]
fn the_client_is_found_from_the_right_and_only_behind_trusted_proxies() {
    for row in rows(CHAINS) {
        let [which, peer, lines @ .., expected] = &row[..] else {
            panic!("{row:?} is not a vector")
        };
        let extractor = extractor(which);
        let name = match &extractor.source {
            Source::XForwardedFor => "x-forwarded-for",
            Source::Forwarded => "forwarded",
            Source::Single(name) => name.as_str(),
        };
        let peer = SocketAddr::new(peer.parse().unwrap(), 4711).to_string();
        let client = extractor.address(&parts(&peer, lines, &[name])).unwrap();
        assert_eq!(client, expected.parse::<IpAddr>().unwrap(), "{row:?}");
    }
}

#[test]
fn only_the_configured_header_is_read() {
    let request = |names: &[&str]| parts("10.0.0.1:80", &["for=203.0.113.7"], names);
    assert_eq!(
        extractor("f")
            .address(&request(&["forwarded", "x-forwarded-for"]))
            .unwrap()
            .to_string(),
        "203.0.113.7"
    );
    let both = Request::builder()
        .extension("10.0.0.1:80".parse::<SocketAddr>().unwrap())
        .header("forwarded", "for=203.0.113.7")
        .header("x-forwarded-for", "198.51.100.1")
        .header("x-real-ip", "198.51.100.2")
        .body(())
        .unwrap()
        .into_parts()
        .0;
    assert_eq!(
        extractor("f").address(&both).unwrap().to_string(),
        "203.0.113.7"
    );
    assert_eq!(
        extractor("x").address(&both).unwrap().to_string(),
        "198.51.100.1"
    );
    assert_eq!(
        extractor("cf").address(&both).unwrap().to_string(),
        "10.0.0.1"
    );
}

#[test]
fn a_list_of_ten_thousand_entries_is_not_read_to_its_end() {
    let mut trusted = vec!["10.9.9.9"; 10_000];
    trusted[0] = "203.0.113.7";
    let list = trusted.join(",");
    let client = extractor("x")
        .address(&parts("10.0.0.1:80", &[&list], &["x-forwarded-for"]))
        .unwrap();
    assert_eq!(client.to_string(), "10.9.9.9");
    let junk = ["x", ",", "for=", "\";\"", "for=10.0.0.1,"].map(|item| item.repeat(10_000));
    for list in &junk {
        for (which, name) in [("x", "x-forwarded-for"), ("f", "forwarded")] {
            assert_eq!(
                extractor(which)
                    .address(&parts("10.0.0.1:80", &[list], &[name]))
                    .unwrap()
                    .to_string(),
                "10.0.0.1",
                "{name}: {}…",
                &list[..20]
            );
        }
    }
}

#[test]
fn a_request_without_a_peer_address_is_an_error() {
    let parts = Request::builder()
        .header("x-forwarded-for", "1.1.1.1")
        .body(())
        .unwrap()
        .into_parts()
        .0;
    assert!(extractor("x").address(&parts).is_err());
}

#[test]
fn the_key_is_the_network_of_an_ipv6_client() {
    let of = |client: &str| {
        extractor("x")
            .extract(&parts("10.0.0.1:80", &[client], &["x-forwarded-for"]))
            .unwrap()
    };
    assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
    assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    assert_ne!(of("203.0.113.7"), of("203.0.113.8"));
}

/// Generates what attackers write: pieces of both syntaxes in any order.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("for=".to_owned()),
        Just("For = ".to_owned()),
        Just("by=".to_owned()),
        "[,;=\"\\\\\\[\\]:%_ \t]",
        "[a-f0-9:.]{1,9}",
        any::<std::net::Ipv4Addr>().prop_map(|it| it.to_string()),
        any::<std::net::Ipv6Addr>().prop_map(|it| format!("\"[{it}]:80\"")),
        Just("10.0.0.9".to_owned()),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// The most important property of both parsers: whatever the client sends, the address that the
    /// trusted proxy appends is the client, or the proxy itself if quotes do not match.
    #[test]
    fn a_client_cannot_choose_its_address(sent in text(), client: IpAddr, new_line: bool) {
        prop_assume!(!client.is_loopback());
        let client = client.to_canonical();
        prop_assume!(!extractor("x").proxies.contains(client));
        for (which, name, own) in [
            ("x", "x-forwarded-for", client.to_string()),
            ("f", "forwarded", match client {
                IpAddr::V4(v4) => format!("for={v4};proto=https"),
                IpAddr::V6(v6) => format!("for=\"[{v6}]:1234\";proto=https"),
            }),
        ] {
            let joined = format!("{sent}, {own}");
            let lines: &[&str] = if new_line { &[&sent, &own] } else { &[&joined] };
            let found = extractor(which).address(&parts("10.0.0.1:80", lines, &[name])).unwrap();
            let has_unmatched_quotes = name == "forwarded" && !new_line && sent.contains('"');
            prop_assert!(found == client || has_unmatched_quotes && found.to_string() == "10.0.0.1", "{} from {:?}", found, lines);
        }
    }

    #[test]
    fn no_bytes_make_a_parser_panic_or_return_too_many_entries(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let Ok(value) = HeaderValue::from_bytes(&bytes) else { return Ok(()) };
        let mut headers = HeaderMap::new();
        headers.append("x", value.clone());
        headers.append("x", value);
        let name = HeaderName::from_static("x");
        let found = list::x_forwarded_for(&headers, &name).count() + list::forwarded(&headers, &name).count();
        prop_assert!(found <= 4 * (bytes.len() + 1));
    }

    #[test]
    fn an_address_is_parsed_with_and_without_a_port(address: IpAddr, port: u16) {
        let canonical = Some(address.to_canonical());
        prop_assert_eq!(list::address(address.to_string().as_bytes()), canonical);
        prop_assert_eq!(list::address(SocketAddr::new(address, port).to_string().as_bytes()), canonical);
    }

    #[test]
    fn a_chain_of_forwarded_elements_is_read_from_the_right(chain in prop::collection::vec(any::<IpAddr>(), 1..6), hops in 1_u8..6) {
        let line = chain.iter().map(|address| format!("proto=http;FOR=\"{}\"", SocketAddr::new(*address, 9))).collect::<Vec<_>>().join(" , ");
        let proxies = TrustedProxies::hops(hops);
        let found = ForwardedIp::forwarded(proxies).address(&parts("192.0.2.1:80", &[&line], &["forwarded"])).unwrap();
        let expected = chain.len().checked_sub(hops.into()).map_or(IpAddr::from([192, 0, 2, 1]), |at| chain[at].to_canonical());
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn trusted_proxies_are_read_from_one_text() {
    let own = "10.0.0.0/8, ::1,192.0.2.7 # the CDN\n\n# 203.0.113.0/24\n198.51.100.0/24,\r\n";
    let proxies = TrustedProxies::parse(own).unwrap();
    for (address, is_trusted) in [
        ("10.1.2.3", true),
        ("::1", true),
        ("192.0.2.7", true),
        ("192.0.2.8", false),
        ("203.0.113.9", false),
        ("198.51.100.9", true),
    ] {
        assert_eq!(
            proxies.contains(address.parse().unwrap()),
            is_trusted,
            "{address}"
        );
    }
    let nobody = TrustedProxies::parse(" # nobody\n").unwrap();
    assert!(!nobody.contains("10.1.2.3".parse().unwrap()));
    for wrong in ["10.0.0.0/33", "10.0.0.0/8 ::1", "localhost", "10.0.0.0/8,;"] {
        let error = TrustedProxies::parse(wrong).unwrap_err().to_string();
        assert!(
            error.starts_with("network must be an address"),
            "{wrong}: {error}"
        );
    }
}

#[test]
fn proxies_that_are_replaced_hold_for_all_clones() {
    let proxies = TrustedProxies::parse("10.0.0.0/8").unwrap();
    let [list, single] = [
        ForwardedIp::x_forwarded_for(proxies.clone()),
        ForwardedIp::header("x-forwarded-for", proxies.clone()),
    ];
    let addresses = |peer: &str| {
        let parts = parts(peer, &["203.0.113.7"], &["x-forwarded-for"]);
        [&list, &single].map(|client| client.address(&parts).unwrap().to_string())
    };
    assert_eq!(addresses("10.0.0.1:80"), ["203.0.113.7"; 2]);
    assert_eq!(addresses("192.0.2.1:80"), ["192.0.2.1"; 2]);
    proxies.replace(["192.0.2.0/24".parse().unwrap()]).unwrap();
    assert_eq!(addresses("10.0.0.1:80"), ["10.0.0.1"; 2]);
    assert_eq!(addresses("192.0.2.1:80"), ["203.0.113.7"; 2]);
}

#[test]
fn proxies_that_are_counted_are_a_number_and_no_list() {
    let parts = parts(
        "10.0.0.1:80",
        &["203.0.113.7, 10.0.0.2"],
        &["x-forwarded-for"],
    );
    for (hops, expected) in [
        (0, "10.0.0.1"),
        (1, "10.0.0.2"),
        (2, "203.0.113.7"),
        (3, "10.0.0.1"),
    ] {
        let client = ForwardedIp::x_forwarded_for(TrustedProxies::hops(hops));
        assert_eq!(
            client.address(&parts).unwrap().to_string(),
            expected,
            "{hops}"
        );
    }
    // The header of a peer that is not trusted is not read.
    let single = |hops| ForwardedIp::header("cf-connecting-ip", TrustedProxies::hops(hops));
    let parts = self::parts("10.0.0.1:80", &["203.0.113.7"], &["cf-connecting-ip"]);
    assert_eq!(single(0).address(&parts).unwrap().to_string(), "10.0.0.1");
    assert_eq!(
        single(1).address(&parts).unwrap().to_string(),
        "203.0.113.7"
    );
    let error = TrustedProxies::hops(2).replace([]).unwrap_err().to_string();
    assert_eq!(
        error,
        "trusted proxies must be networks to be replaced, got 2 hops"
    );
}

#[test]
#[should_panic(expected = "the name of a header must be in lower case, as in \"x-api-key\"")]
fn the_name_of_a_header_with_an_address_is_in_lower_case() {
    let _ = ForwardedIp::header("CF-Connecting-IP", TrustedProxies::hops(1));
}
