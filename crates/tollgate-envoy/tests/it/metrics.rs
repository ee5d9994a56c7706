//! Metrics under the names of Envoy's service.

use std::{collections::BTreeMap, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::{TcpListener, TcpStream, UdpSocket},
    time::timeout,
};
use tollgate_envoy::{RateLimitService, Statsd, StatsdProtocol, prometheus_text};
use tollgate_rules::Compat;
use tollgate_tests::ports;

use crate::support::{LIMIT, Running, descriptor, limiter, request, tenant};

const RULES: &str = "
domain: shop
descriptors:
  - {key: tenant, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: shadow, value: x, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - key: route
    descriptors:
      - {key: ip, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 5}}
";

/// The counters after [`traffic`].
const COUNTED: [(&str, u64); 11] = [
    ("ratelimit.service.call.should_rate_limit.service_error", 1),
    ("ratelimit.service.config_load_success", 1),
    (
        "ratelimit.service.rate_limit.shop.route_/a.ip_192_0_2_1.total_hits",
        1,
    ),
    (
        "ratelimit.service.rate_limit.shop.route_/a.ip_192_0_2_1.within_limit",
        1,
    ),
    ("ratelimit.service.rate_limit.shop.shadow_x.over_limit", 1),
    ("ratelimit.service.rate_limit.shop.shadow_x.shadow_mode", 1),
    ("ratelimit.service.rate_limit.shop.tenant.near_limit", 2),
    ("ratelimit.service.rate_limit.shop.tenant.over_limit", 3),
    ("ratelimit.service.rate_limit.shop.tenant.total_hits", 13),
    ("ratelimit.service.rate_limit.shop.tenant.within_limit", 10),
    ("ratelimit_server.ShouldRateLimit.total_requests", 17),
];

fn service() -> RateLimitService {
    RateLimitService::new(limiter(RULES, Compat::Envoy))
}

/// Makes 13 requests of a tenant with a limit of 10, two shadowed ones, one with two levels, and a
/// wrong one.
async fn traffic(service: &RateLimitService) {
    let server = Running::start(service.clone()).await;
    let mut client = server.client().await;
    for _ in 0..13 {
        client.should_rate_limit(tenant("acme")).await.unwrap();
    }
    for _ in 0..2 {
        client
            .should_rate_limit(request([descriptor("shadow", "x")]))
            .await
            .unwrap();
    }
    let mut deep = descriptor("route", "/a");
    deep.entries.extend(descriptor("ip", "192.0.2.1").entries);
    client.should_rate_limit(request([deep])).await.unwrap();
    client.should_rate_limit(request([])).await.unwrap_err();
    drop(client);
    server.end().await.unwrap();
}

/// Adds up the lines of statsd. Times are counted by their sample rates.
fn add(totals: &mut BTreeMap<String, f64>, text: &str) {
    for line in text.lines() {
        let (name, rest) = line.split_once(':').unwrap();
        let parts: Vec<_> = rest.split('|').collect();
        let value: f64 = parts[0].parse().unwrap();
        let added = match parts[1] {
            "c" => value,
            "ms" => {
                1.0 / parts.get(2).map_or(1.0, |rate| {
                    rate.strip_prefix('@').unwrap().parse::<f64>().unwrap()
                })
            }
            other => panic!("{other}: {line}"),
        };
        *totals.entry(name.to_owned()).or_default() += added;
    }
}

fn is_whole(totals: &BTreeMap<String, f64>) -> bool {
    let time = totals
        .get("ratelimit_server.ShouldRateLimit.response_time")
        .copied()
        .unwrap_or_default();
    COUNTED
        .iter()
        .all(|(name, value)| totals.get(*name) == Some(&(*value as f64)))
        && (time - 17.0).abs() < 0.01
}

#[tokio::test]
async fn statsd_gets_each_unit_once_in_datagrams() {
    let listener = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let service = service();
    let statsd = Statsd::new(
        "127.0.0.1",
        listener.local_addr().unwrap().port(),
        StatsdProtocol::Udp,
    );
    let statsd = statsd.interval(Duration::from_millis(5));
    let sending = tokio::spawn(statsd.run(
        service.metrics().clone(),
        service.limiter().rules().clone(),
        std::future::pending(),
    ));
    traffic(&service).await;
    let mut totals = BTreeMap::new();
    let mut buffer = [0; 65_536];
    while !is_whole(&totals) {
        let received = timeout(LIMIT, listener.recv(&mut buffer))
            .await
            .unwrap_or_else(|_| panic!("{totals:#?}"));
        let length = received.unwrap();
        assert!(length <= 1_432);
        add(&mut totals, std::str::from_utf8(&buffer[..length]).unwrap());
        let is_exceeded = |(name, value): &(&str, u64)| {
            totals
                .get(*name)
                .is_some_and(|total| *total > *value as f64)
        };
        assert!(!COUNTED.iter().any(is_exceeded), "{totals:#?}");
    }
    sending.abort();
}

/// Reads lines of statsd from a connection until a counter stands at `expected`.
async fn read_until(
    connection: &mut BufReader<TcpStream>,
    totals: &mut BTreeMap<String, f64>,
    name: &str,
    expected: f64,
) {
    while totals.get(name) != Some(&expected) {
        let mut line = String::new();
        let read = timeout(LIMIT, connection.read_line(&mut line))
            .await
            .unwrap_or_else(|_| panic!("{totals:#?}"));
        assert!(read.unwrap() > 0, "the connection has ended: {totals:#?}");
        add(totals, &line);
        assert!(
            totals.get(name).is_none_or(|total| *total <= expected),
            "{totals:#?}"
        );
    }
}

#[tokio::test]
async fn statsd_gets_tags_over_one_tcp_connection_after_it_was_away() {
    // The kernel gives this port to no outgoing connection, not to that of the sender either.
    let port = ports::free();
    let service = service();
    let statsd = Statsd::new("127.0.0.1", port, StatsdProtocol::Tcp)
        .interval(Duration::from_millis(5))
        .tags(vec![
            ("zone".to_owned(), "a".to_owned()),
            ("empty".to_owned(), String::new()),
        ]);
    let sending = tokio::spawn(statsd.run(
        service.metrics().clone(),
        service.limiter().rules().clone(),
        std::future::pending(),
    ));
    traffic(&service).await;
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let mut totals = BTreeMap::new();
    let name = "ratelimit.service.rate_limit.shop.tenant.total_hits.__zone=a";
    let mut first = BufReader::new(timeout(LIMIT, listener.accept()).await.unwrap().unwrap().0);
    for expected in [13.0, 26.0, 39.0] {
        read_until(&mut first, &mut totals, name, expected).await;
        traffic(&service).await;
    }
    read_until(&mut first, &mut totals, name, 52.0).await;
    // Another one takes the place of a connection that the server has closed.
    drop(first);
    traffic(&service).await;
    let mut second = BufReader::new(timeout(LIMIT, listener.accept()).await.unwrap().unwrap().0);
    read_until(&mut second, &mut totals, name, 65.0).await;
    sending.abort();
}

/// A sample: its name, its labels in their order, and its value.
type Sample = (String, Vec<(String, String)>, f64);

/// Reads the text format of Prometheus strictly. Each sample must follow the type of its family.
fn samples(text: &str) -> Vec<Sample> {
    let (mut families, mut samples) = (Vec::new(), Vec::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(!families.contains(&name), "two families {name}");
            families.push(name);
            continue;
        }
        let (head, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = head.split_once('{').map_or((head, ""), |(name, rest)| {
            (name, rest.strip_suffix('}').unwrap())
        });
        let family = families.last().unwrap();
        let suffix = name
            .strip_prefix(family)
            .unwrap_or_else(|| panic!("{name} is not of {family}"));
        assert!(
            ["", "_bucket", "_sum", "_count"].contains(&suffix),
            "{line}"
        );
        assert!(
            name.chars()
                .all(|sign| sign.is_ascii_alphanumeric() || "_:".contains(sign)),
            "{line}"
        );
        let labels = labels
            .split(',')
            .filter(|label| !label.is_empty())
            .map(|label| {
                let (name, value) = label.split_once('=').unwrap();
                (
                    name.to_owned(),
                    value
                        .strip_prefix('"')
                        .unwrap()
                        .strip_suffix('"')
                        .unwrap()
                        .to_owned(),
                )
            });
        samples.push((name.to_owned(), labels.collect(), value.parse().unwrap()));
    }
    samples
}

fn value(samples: &[Sample], name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let labels: Vec<_> = labels
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    samples
        .iter()
        .find(|sample| sample.0 == name && sample.1 == labels)
        .map(|sample| sample.2)
}

#[tokio::test]
async fn prometheus_has_the_names_of_the_default_mapper() {
    let service = service();
    traffic(&service).await;
    let samples = samples(&prometheus_text(
        service.metrics(),
        service.limiter().rules().loads(),
    ));
    let tenant = [("domain", "shop"), ("key1", "tenant")];
    for (name, expected) in [
        ("total_hits", 13.0),
        ("over_limit", 3.0),
        ("near_limit", 2.0),
        ("within_limit", 10.0),
    ] {
        assert_eq!(
            value(
                &samples,
                &format!("ratelimit_service_rate_limit_{name}"),
                &tenant
            ),
            Some(expected),
            "{name}"
        );
    }
    let shadow = [("domain", "shop"), ("key1", "shadow_x")];
    assert_eq!(
        value(
            &samples,
            "ratelimit_service_rate_limit_shadow_mode",
            &shadow
        ),
        Some(1.0)
    );
    let deep = [
        ("domain", "shop"),
        ("key1", "route_/a"),
        ("key2", "ip_192_0_2_1"),
    ];
    assert_eq!(
        value(&samples, "ratelimit_service_rate_limit_total_hits", &deep),
        Some(1.0)
    );
    let error = [("err_type", "service_error")];
    assert_eq!(
        value(
            &samples,
            "ratelimit_service_should_rate_limit_error",
            &error
        ),
        Some(1.0)
    );
    assert_eq!(
        value(&samples, "ratelimit_service_config_load_success", &[]),
        Some(1.0)
    );
    let method = [("grpc_method", "ShouldRateLimit")];
    assert_eq!(
        value(&samples, "ratelimit_service_total_requests", &method),
        Some(17.0)
    );
    assert_eq!(
        value(
            &samples,
            "ratelimit_service_response_time_seconds_count",
            &method
        ),
        Some(17.0)
    );
    let bound = [("grpc_method", "ShouldRateLimit"), ("le", "+Inf")];
    assert_eq!(
        value(
            &samples,
            "ratelimit_service_response_time_seconds_bucket",
            &bound
        ),
        Some(17.0)
    );
}

#[tokio::test]
async fn prometheus_has_two_keys_as_labels_and_escapes_the_names_of_other_counters() {
    let text = "{domain: d, descriptors: [{key: a, descriptors: [{key: b, descriptors: \
                [{key: c, rate_limit: {unit: day, requests_per_unit: 5}}]}]}]}";
    let service = RateLimitService::new(limiter(text, Compat::Envoy));
    let mut deep = descriptor("a", "x");
    deep.entries.extend(descriptor("b", "y").entries);
    deep.entries.extend(descriptor("c", "z").entries);
    let mut asked = request([deep]);
    asked.domain = "d".to_owned();
    service.decide(&asked).await.unwrap();
    service.decide(&tenant("acme")).await.unwrap();
    let samples = samples(&prometheus_text(
        service.metrics(),
        service.limiter().rules().loads(),
    ));
    let labels = [("domain", "d"), ("key1", "a"), ("key2", "b")];
    assert_eq!(
        value(&samples, "ratelimit_service_rate_limit_total_hits", &labels),
        Some(1.0)
    );
    let unknown = "ratelimit_service_rate_limit_unknown_domain_not_found";
    assert_eq!(value(&samples, unknown, &[]), Some(1.0));
}

#[tokio::test]
async fn names_are_bounded_whatever_clients_send() {
    let service = service();
    for number in 0..3 {
        // The sign at the bound has two bytes, and the names differ in their last sign alone.
        let long = format!("{}{number}", "ä".repeat(450_000));
        for value in [long.as_str(), "x\nadmin.logins:1|c\r\u{85}"] {
            let mut deep = descriptor("route", value);
            deep.entries.extend(descriptor("ip", "y\0").entries);
            service.decide(&request([deep])).await.unwrap();
        }
        let mut unknown = tenant("acme");
        unknown.domain = long;
        service.decide(&unknown).await.unwrap();
    }
    let counters = service
        .metrics()
        .counters(service.limiter().rules().loads());
    let of = |end: &str| -> Vec<_> {
        counters
            .iter()
            .filter(|(name, _)| name.ends_with(end))
            .collect()
    };
    assert_eq!(
        of("domain_not_found"),
        [&(
            "ratelimit.service.rate_limit.unknown.domain_not_found".to_owned(),
            3
        )]
    );
    let hits = of("total_hits");
    assert_eq!(hits.len(), 4, "{hits:?}");
    let escaped = "ratelimit.service.rate_limit.shop.route_x_admin.logins_1_c__.ip_y_.total_hits";
    assert!(hits.contains(&&(escaped.to_owned(), 3)), "{hits:?}");
    for (name, _) in &counters {
        assert!(
            name.len() < 300 && !name.contains(char::is_control),
            "{name:?}"
        );
    }
    // Each sample is one line.
    samples(&prometheus_text(
        service.metrics(),
        service.limiter().rules().loads(),
    ));
}
