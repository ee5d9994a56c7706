//! The log line of a service that limits its proxy in place of its clients.

use std::net::SocketAddr;

use http::Request;
use tollgate_tests::Log;
use tollgate_tower::{KeyExtractor, key::PeerIp};

#[test]
fn a_peer_that_seems_to_be_a_proxy_is_logged_once_without_addresses() {
    let (log, _guard) = Log::of_this_thread();
    let limit = |peer: &str, header: &str| {
        let peer: SocketAddr = peer.parse().expect("an address");
        let request = Request::builder()
            .extension(peer)
            .header(header, "for=203.0.113.9");
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        PeerIp.extract(&parts).expect("a key");
    };
    // A client writes what it likes, and a service of the own network is a client, too.
    limit("198.51.100.7:4711", "x-forwarded-for");
    limit("10.0.0.1:4711", "x-request-id");
    assert!(!log.text().contains("TOLLGATE-"), "{}", log.text());
    for header in ["forwarded", "x-forwarded-for"] {
        limit("10.0.0.1:4711", header);
    }
    let text = log.text();
    assert_eq!(text.matches("TOLLGATE-PROXY-PEER").count(), 1, "{text}");
    assert!(
        text.contains("WARN") && text.contains("`ForwardedIp`"),
        "{text}"
    );
    assert!(
        !text.contains("10.0.0.1") && !text.contains("203.0.113.9"),
        "{text}"
    );
}
