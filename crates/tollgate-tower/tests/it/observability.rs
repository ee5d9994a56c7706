//! Decisions in extensions, shadow mode, log lines and metrics.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Body, routing::get};
use http::{Request, Response, StatusCode};
use tollgate::{Limiter, Outage};
use tollgate_tower::{
    Decisions, RateLimitLayer,
    key::{Global, Header, Network, PeerIp, TrustedProxies},
};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::*;

#[tokio::test]
async fn the_service_and_outer_layers_find_the_decisions_in_extensions() {
    let layer = |limiter: Limiter| {
        RateLimitLayer::builder(limiter, Global)
            .expose_decisions(true)
            .build()
    };
    let seen = Arc::new(Mutex::new(Vec::new()));
    let service = {
        let seen = seen.clone();
        service_fn(move |request: Request<()>| {
            seen.lock()
                .unwrap()
                .push(request.extensions().get::<Decisions>().cloned().unwrap());
            async { Ok::<_, Infallible>(Response::new(String::new())) }
        })
    };
    let stack = layer(Limiter::new(still(), HOURLY))
        .layer(layer(Limiter::new(still(), TWO)).layer(service));
    for allowed in [true, true, false] {
        let Ok(response) = stack.clone().oneshot(request()).await;
        let decisions = response.extensions().get::<Decisions>().unwrap();
        assert_eq!(
            decisions
                .iter()
                .map(|decision| decision.is_allowed())
                .collect::<Vec<_>>(),
            [true, allowed]
        );
        assert_eq!(
            decisions
                .iter()
                .next()
                .unwrap()
                .policies()
                .iter()
                .next()
                .unwrap()
                .name(),
            "hourly"
        );
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[1].state("hourly").unwrap().remaining(), 1);
    assert_eq!(seen[1].state("two").unwrap().remaining(), 0);
}

#[tokio::test]
async fn there_are_no_decisions_in_extensions_by_default() {
    let layer = RateLimitLayer::new(Limiter::new(still(), TWO), Global);
    assert!(
        send(&layer, request())
            .await
            .extensions()
            .get::<Decisions>()
            .is_none()
    );
}

#[tokio::test]
async fn axum_handlers_extract_the_decisions() {
    let handler = |decisions: Decisions| async move {
        decisions.state("two").unwrap().remaining().to_string()
    };
    let optional = |decisions: Option<Decisions>| async move { decisions.is_some().to_string() };
    let layer = RateLimitLayer::builder(Limiter::new(still(), TWO), Global)
        .expose_decisions(true)
        .build();
    let router = Router::new()
        .route("/with", get(handler).layer(layer))
        .route("/without", get(handler))
        .route("/optional", get(optional));
    let get = async |path: &str| {
        let response = router
            .clone()
            .oneshot(Request::get(path).body(Body::empty()).unwrap())
            .await
            .unwrap();
        let status = response.status();
        (
            status,
            axum::body::to_bytes(response.into_body(), 100)
                .await
                .unwrap(),
        )
    };
    assert_eq!(get("/with").await, (StatusCode::OK, "1".into()));
    assert_eq!(get("/without").await.0, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(get("/optional").await, (StatusCode::OK, "false".into()));
}

#[tokio::test]
async fn shadow_mode_rejects_no_request_and_adds_no_header() {
    let layers = [
        RateLimitLayer::builder(Limiter::new(still(), TWO), Global)
            .shadow(true)
            .expose_decisions(true)
            .build(),
        RateLimitLayer::builder(unavailable(Outage::Closed), Global)
            .shadow(true)
            .expose_decisions(true)
            .build(),
    ];
    for (layer, decides) in layers.into_iter().zip([true, false]) {
        for number in 0..4 {
            let response = send(&layer, request()).await;
            assert_eq!(response.status(), StatusCode::OK);
            assert!(response.headers().is_empty(), "{:?}", response.headers());
            let decision = response
                .extensions()
                .get::<Decisions>()
                .map(|decisions| decisions.iter().next().unwrap().is_allowed());
            assert_eq!(decision, decides.then_some(number < 2));
        }
    }
    let keyless = RateLimitLayer::builder(Limiter::new(still(), TWO), Header::new("x-api-key"))
        .shadow(true)
        .build();
    assert_eq!(send(&keyless, request()).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_double_count_is_logged_once() {
    let limiter = Limiter::new(still(), HOURLY);
    let layer = RateLimitLayer::new(limiter.clone(), Global);
    let lines = logged("TOLLGATE-DOUBLE-COUNT", async {
        let router = Router::new()
            .route("/", get(|| async {}))
            .route_layer(layer.clone())
            .layer(layer);
        for _ in 0..3 {
            let _ = router.clone().oneshot(Request::new(Body::empty())).await;
        }
    });
    let lines = lines.await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains(r#"policy="hourly""#), "{lines:?}");
}

#[tokio::test]
async fn layers_with_other_policies_or_other_keys_are_not_a_double_count() {
    let store = still();
    let lines = logged("TOLLGATE-DOUBLE-COUNT", async {
        let by_header = RateLimitLayer::new(
            Limiter::new(store.clone(), HOURLY),
            Header::new("x-api-key"),
        );
        let all = RateLimitLayer::new(Limiter::new(store.clone(), HOURLY), Global);
        let two = RateLimitLayer::new(Limiter::new(store, TWO), Global);
        let service = by_header.layer(all.layer(two.layer(hello())));
        let _ = service
            .oneshot(
                Request::builder()
                    .header("x-api-key", "a")
                    .body(())
                    .unwrap(),
            )
            .await;
    });
    assert_eq!(lines.await, [""; 0]);
}

#[tokio::test]
async fn trusting_every_address_is_logged() {
    let networks = |list: &[&str]| {
        list.iter()
            .map(|text| text.parse().unwrap())
            .collect::<Vec<Network>>()
    };
    for everywhere in [
        &["0.0.0.0/0"][..],
        &["10.0.0.0/8", "::/0"],
        &["0.0.0.0/1", "128.0.0.0/1"],
        &["2000::/3"],
    ] {
        let lines = logged("TOLLGATE-TRUST-ALL", async {
            let _ = TrustedProxies::networks(networks(everywhere));
        });
        assert_eq!(lines.await.len(), 1, "{everywhere:?}");
    }
    for proxies in [
        &["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"][..],
        &["0.0.0.0/1"],
        &[],
        &["2001::/16"],
    ] {
        let lines = logged("TOLLGATE-TRUST-ALL", async {
            let _ = TrustedProxies::networks(networks(proxies));
        });
        assert_eq!(lines.await, [""; 0], "{proxies:?}");
    }
}

#[tokio::test]
async fn networks_that_leave_out_a_part_of_the_internet_are_not_everywhere() {
    // Addresses of the networks 10 and 127 are private, and those from 224 on have no clients.
    let v4 = |without: u8| {
        (1..224_u8)
            .filter(move |it| ![10, 127, without].contains(it))
            .map(|it| format!("{it}.0.0.0/8"))
    };
    let v6 = |without: u16| {
        (0x20..0x40_u16)
            .filter(move |it| *it != without)
            .map(|it| format!("{:x}::/8", it << 8))
    };
    let is_logged = async |networks: Vec<String>| {
        let networks: Vec<Network> = networks
            .iter()
            .map(|network| network.parse().unwrap())
            .collect();
        let lines = logged("TOLLGATE-TRUST-ALL", async {
            let _ = TrustedProxies::networks(networks);
        });
        !lines.await.is_empty()
    };
    assert!(is_logged(v4(0).collect()).await);
    assert!(is_logged(v6(0).collect()).await);
    for without in [1, 9, 11, 126, 128, 223] {
        assert!(!is_logged(v4(without).collect()).await, "{without}");
    }
    for without in [0x20, 0x2f, 0x3f] {
        assert!(!is_logged(v6(without).collect()).await, "{without:x}");
    }
}

#[tokio::test]
async fn a_chain_of_proxies_is_read_up_to_32_addresses() {
    use tollgate_tower::key::ForwardedIp;

    let proxies: Network = "10.0.0.0/8".parse().unwrap();
    let client = ForwardedIp::x_forwarded_for(TrustedProxies::networks([proxies]));
    let peer: std::net::SocketAddr = "10.9.9.9:80".parse().unwrap();
    // The peer is the first trusted address, so 31 more are read, and then the client.
    for (proxies, expected) in [(0, "203.0.113.7"), (31, "203.0.113.7"), (32, "10.0.0.1")] {
        let chain = (0..proxies)
            .rev()
            .map(|at| format!(", 10.0.0.{}", proxies - at));
        let chain = format!("203.0.113.7{}", chain.collect::<String>());
        let request = Request::builder()
            .extension(peer)
            .header("x-forwarded-for", chain);
        let (parts, ()) = request.body(()).unwrap().into_parts();
        assert_eq!(
            client.address(&parts).unwrap().to_string(),
            expected,
            "{proxies}"
        );
    }
}

#[tokio::test]
async fn a_misconfiguration_is_logged_once() {
    let layer = RateLimitLayer::new(Limiter::new(still(), TWO), PeerIp);
    let lines = logged("into_make_service_with_connect_info", async {
        statuses(&layer, 3).await;
    });
    let lines = lines.await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("ERROR"), "{lines:?}");
    // The address that another version of axum provides has another type.
    let (_, version) = include_str!("../../../../Cargo.toml")
        .split_once("\naxum = { version = \"")
        .unwrap();
    let version = version.split('.').take(2).collect::<Vec<_>>().join(".");
    assert!(
        lines[0].contains(&format!("of axum {version}")),
        "{version}: {lines:?}"
    );
}

#[cfg(feature = "metrics")]
mod counts {
    use metrics_util::debugging::DebugValue;

    use super::*;
    use tollgate_tests::Series;

    #[test]
    fn decisions_are_counted_by_policy_and_outcome() {
        let series = Series::of(async {
            let layer = RateLimitLayer::new(Limiter::new(still(), [TWO, HOURLY]), Global);
            statuses(&layer, 3).await;
            let shadow = RateLimitLayer::builder(Limiter::new(still(), TWO), Global)
                .shadow(true)
                .build();
            statuses(&shadow, 3).await;
            let keyless = RateLimitLayer::new(Limiter::new(still(), TWO), Header::new("x-api-key"));
            statuses(&keyless, 1).await;
            let wrong = RateLimitLayer::new(Limiter::new(still(), TWO.at_level(2)), Global);
            statuses(&wrong, 1).await;
            let unset = RateLimitLayer::new(Limiter::new(still(), TWO), PeerIp);
            statuses(&unset, 1).await;
            statuses(&RateLimitLayer::new(unavailable(Outage::Open), Global), 1).await;
            statuses(&RateLimitLayer::new(unavailable(Outage::Closed), Global), 2).await;
        });
        series.assert_counts(
            "
            tollgate_decisions_total policy=two outcome=allowed 4
            tollgate_decisions_total policy=two outcome=denied 1
            tollgate_decisions_total policy=two outcome=shadowed 1
            tollgate_decisions_total policy=hourly outcome=allowed 2
            tollgate_decisions_total policy=hourly outcome=denied 0
            tollgate_rejections_total reason=denied 1
            tollgate_rejections_total reason=missing_key 1
            tollgate_rejections_total reason=misconfigured 2
            tollgate_degraded_total limiter=two reason=unavailable 1
            tollgate_errors_total limiter=two reason=unavailable 2
            tollgate_rejections_total reason=unavailable 2
            ",
        );
        // The limiter counts each check once, whatever the layer makes of it.
        series.assert_counts(
            "
            tollgate_checks_total limiter=two+hourly outcome=allowed 2
            tollgate_checks_total limiter=two+hourly outcome=denied 1
            tollgate_denials_total limiter=two+hourly policy=two 1
            tollgate_denials_total limiter=two+hourly policy=hourly 0
            tollgate_checks_total limiter=two outcome=allowed 3
            tollgate_checks_total limiter=two outcome=denied 1
            tollgate_checks_total limiter=two outcome=failed 3
            ",
        );
    }

    #[test]
    fn a_hundred_thousand_keys_create_no_further_series() {
        let series = Series::of(async {
            let layer =
                RateLimitLayer::builder(Limiter::new(still(), TWO), Header::new("x-api-key"))
                    .wait(std::time::Duration::ZERO)
                    .build();
            let service = layer.layer(hello());
            for number in 0..100_000 {
                let request = Request::builder()
                    .header("x-api-key", format!("key-{number}"))
                    .body(())
                    .unwrap();
                let Ok(response) = service.clone().oneshot(request).await;
                assert_eq!(response.status(), StatusCode::OK);
            }
        });
        assert_eq!(series.0.len(), 8, "{:?}", series.0.keys());
        assert!(!format!("{:?}", series.0.keys()).contains("key-"));
        assert_eq!(series.0["tollgate_waiting "], DebugValue::Gauge(0.0.into()));
    }

    #[test]
    fn the_gauge_of_waiters_counts_those_that_wait_now() {
        use std::time::Duration;

        use tokio::time::{sleep, timeout};
        use tollgate::{Policy, Quota};

        let queue = Policy::leaky_bucket("queue", Quota::per_second(1).with_burst(9));
        let bucket = Policy::token_bucket("bucket", Quota::per_second(1));
        for (policy, max_wait) in [(queue, None), (bucket, Some(Duration::from_secs(60)))] {
            let recorder = metrics_util::debugging::DebuggingRecorder::new();
            let snapshotter = recorder.snapshotter();
            // A snapshot of this recorder holds the change since the last one.
            let total = std::cell::Cell::new(0.0);
            let waiting = || {
                let series = snapshotter.snapshot().into_vec().into_iter();
                let changes = series.filter_map(|(key, _, _, value)| match value {
                    DebugValue::Gauge(value) if key.key().name() == "tollgate_waiting" => {
                        Some(value.into_inner())
                    }
                    _ => None,
                });
                total.set(total.get() + changes.sum::<f64>());
                total.get()
            };
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap();
            metrics::with_local_recorder(&recorder, || {
                runtime.block_on(async {
                    let builder =
                        RateLimitLayer::builder(Limiter::new(tokio_clock_store(), policy), Global);
                    let layer = match max_wait {
                        Some(max_wait) => builder.wait(max_wait).build(),
                        None => builder.build(),
                    };
                    statuses(&layer, 1).await;
                    let call = |patience| {
                        let layer = layer.clone();
                        tokio::spawn(async move {
                            timeout(Duration::from_millis(patience), statuses(&layer, 1))
                                .await
                                .is_ok()
                        })
                    };
                    let (first, cancelled, last) = (call(60_000), call(500), call(60_000));
                    sleep(Duration::from_millis(1)).await;
                    assert_eq!(waiting(), 3.0);
                    assert!(!cancelled.await.unwrap());
                    assert_eq!(waiting(), 2.0);
                    assert!(first.await.unwrap());
                    assert_eq!(waiting(), 1.0);
                    assert!(last.await.unwrap());
                    assert_eq!(waiting(), 0.0);
                });
            });
        }
    }
}
