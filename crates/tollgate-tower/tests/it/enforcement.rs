//! Limits that are enforced for a share of the keys, which changes while requests run.

use std::net::SocketAddr;

use http::{Request, Response, StatusCode};
use tollgate::{
    Cost, Enforcement, Key, Limiter, MemoryStore, Outage,
    store::{Clock, StoreFuture},
};
use tollgate_tower::{
    Decisions, HandlerLimiter, JointDecision, LimiterSource, RateLimitLayer, RequestLimiter,
    key::{Global, Header, Networks, PeerIp},
};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::*;

const KEYS: usize = 300;

fn layer(enforcement: &Enforcement) -> RateLimitLayer<Header> {
    let builder = RateLimitLayer::builder(Limiter::new(still(), ONE), Header::new("x-api-key"));
    builder
        .enforcement(enforcement.clone())
        .expose_decisions(true)
        .build()
}

fn of(key: usize) -> Request<()> {
    request_with("x-api-key", &format!("customer-{key}"))
}

/// Sends a request for each key. Returns which are denied.
async fn denied(layer: &RateLimitLayer<Header>) -> Vec<usize> {
    let mut denied = Vec::new();
    for key in 0..KEYS {
        if send(layer, of(key)).await.status() == StatusCode::TOO_MANY_REQUESTS {
            denied.push(key);
        }
    }
    denied
}

#[tokio::test]
async fn shadow_mode_is_the_share_of_no_key() {
    let limiter = || Limiter::new(still(), ONE);
    let shadow = RateLimitLayer::builder(limiter(), Global)
        .shadow(true)
        .build();
    assert_eq!(statuses(&shadow, 3).await, [StatusCode::OK; 3]);
    let enforced = RateLimitLayer::builder(limiter(), Global)
        .shadow(true)
        .shadow(false)
        .build();
    assert_eq!(
        statuses(&enforced, 2).await[1],
        StatusCode::TOO_MANY_REQUESTS
    );
}

#[tokio::test]
async fn a_key_outside_of_the_share_has_its_decisions_and_no_header() {
    let enforcement = Enforcement::share(50);
    let layer = layer(&enforcement);
    for key in 0..40 {
        let is_enforced = enforcement.applies_to(&Key::from(format!("customer-{key}")));
        for is_allowed in [true, false] {
            let response = send(&layer, of(key)).await;
            let denies = is_enforced && !is_allowed;
            assert_eq!(
                response.status() == StatusCode::TOO_MANY_REQUESTS,
                denies,
                "{key}"
            );
            assert_eq!(
                response.headers().contains_key("ratelimit"),
                is_enforced,
                "{key}"
            );
            let decisions = response.extensions().get::<Decisions>().unwrap();
            assert_eq!(
                decisions.iter().next().unwrap().is_allowed(),
                is_allowed,
                "{key}"
            );
        }
    }
}

#[tokio::test]
async fn without_a_decision_the_share_applies_by_key_and_without_a_key_from_100_percent_on() {
    let enforcement = Enforcement::share(50);
    let build = |limiter| {
        let builder = RateLimitLayer::builder(limiter, Header::new("x-api-key"));
        builder.enforcement(enforcement.clone()).build()
    };
    let away = build(unavailable(Outage::Closed));
    let mut rejected = 0;
    for key in 0..KEYS {
        rejected +=
            usize::from(send(&away, of(key)).await.status() == StatusCode::SERVICE_UNAVAILABLE);
    }
    assert!(rejected.abs_diff(KEYS / 2) <= 30, "{rejected}");
    let keyless = build(Limiter::new(still(), ONE));
    for (percent, status) in [(0, 200), (99, 200), (100, 400)] {
        enforcement.set(percent).unwrap();
        assert_eq!(
            send(&keyless, request()).await.status(),
            status,
            "{percent} %"
        );
    }
}

#[tokio::test]
async fn a_denied_network_belongs_to_the_share_by_its_address() {
    let enforcement = Enforcement::share(50);
    let layer = RateLimitLayer::builder(Limiter::new(still(), HOURLY), PeerIp)
        .networks(Networks::parse("", "10.0.0.0/8").unwrap(), |parts| {
            PeerIp.address(parts)
        })
        .enforcement(enforcement.clone())
        .build();
    for host in 1..60_u8 {
        let peer = SocketAddr::from(([10, 0, 0, host], 443));
        let response = send(&layer, Request::builder().extension(peer).body(()).unwrap()).await;
        let is_enforced = enforcement.applies_to(&Key::from(peer.ip()));
        assert_eq!(
            response.status() == StatusCode::FORBIDDEN,
            is_enforced,
            "{peer}"
        );
    }
}

/// A request keeps the share with which its check began.
#[tokio::test(start_paused = true)]
async fn a_share_that_changes_while_the_store_answers_is_in_force_with_the_next_request() {
    let enforcement = Enforcement::share(0);
    let limiter = Limiter::new(
        Late(MemoryStore::builder().clock(Clock::tokio()).build()),
        ONE,
    );
    let layer = RateLimitLayer::builder(limiter, Global)
        .enforcement(enforcement.clone())
        .build();
    assert_eq!(send(&layer, request()).await.status(), StatusCode::OK);
    let mut under_way = std::pin::pin!(send(&layer, request()));
    tokio::select! {
        biased;
        _ = &mut under_way => panic!("the store answers later"),
        () = std::future::ready(()) => enforcement.set(100).unwrap(),
    }
    assert_eq!(under_way.await.status(), StatusCode::OK);
    assert_eq!(
        send(&layer, request()).await.status(),
        StatusCode::TOO_MANY_REQUESTS
    );
}

#[tokio::test]
async fn the_limiters_of_a_handler_and_of_a_request_follow_the_share_of_their_key() {
    let enforcement = Enforcement::share(50);
    let limiter = Limiter::new(still(), ONE);
    let builder = RateLimitLayer::builder(Limiter::new(still(), HOURLY), Header::new("x-api-key"));
    let layer = builder
        .enforcement(enforcement.clone())
        .expose_request_limiter(Some(limiter.clone()))
        .build();
    let handler: HandlerLimiter<String> = layer.handler_limiter(limiter);
    for key in 0..30 {
        let name = format!("customer-{key}");
        let is_enforced = enforcement.applies_to(&Key::from(&name));
        let (mut parts, ()) = of(key).into_parts();
        assert!(handler.check(&mut parts, &name).await.is_ok());
        assert_eq!(
            handler.check(&mut parts, &name).await.is_err(),
            is_enforced,
            "{name}"
        );
        let service = layer.layer(service_fn(|request: Request<()>| async move {
            let limiter = request.extensions().get::<RequestLimiter>().unwrap();
            let result = limiter.check(Cost::ONE).await;
            Ok::<_, std::convert::Infallible>(Response::new(limiter.admits(&result).to_string()))
        }));
        let Ok(response) = service.oneshot(of(key)).await;
        assert_eq!(response.body(), &(!is_enforced).to_string(), "{name}");
    }
}

/// Decides by the key of a header, and by another one, which are both spent.
fn by_two(limiter: Limiter) -> LimiterSource {
    LimiterSource::from_decider(move |parts, check| {
        let (limiter, name) = (
            limiter.clone(),
            parts.headers["x-api-key"].to_str().unwrap().to_owned(),
        );
        Ok(StoreFuture::pending(async move {
            let mut joint = JointDecision::denied();
            for key in [name.clone(), format!("{name}-other")] {
                let _ = limiter.check(&key).await?;
                let decision = limiter.check(&key).cost(check.costs()).await?;
                joint = joint.with(limiter.clone(), Key::from(&key), decision);
            }
            Ok(Some(joint))
        }))
    })
}

#[tokio::test]
async fn of_several_keys_those_in_the_share_deny() {
    let enforcement = Enforcement::share(30);
    let builder = RateLimitLayer::builder(by_two(Limiter::new(still(), ONE)), Global)
        .enforcement(enforcement.clone());
    let layer = builder.expose_decisions(true).build();
    let mut met = [false; 2];
    for key in 0..40 {
        let response = send(&layer, of(key)).await;
        let keys = [format!("customer-{key}"), format!("customer-{key}-other")];
        let denies = keys
            .iter()
            .any(|key| enforcement.applies_to(&Key::from(key)));
        assert_eq!(
            response.status() == StatusCode::TOO_MANY_REQUESTS,
            denies,
            "{key}"
        );
        assert_eq!(
            response.headers().contains_key("ratelimit"),
            denies,
            "{key}"
        );
        assert_eq!(
            response
                .extensions()
                .get::<Decisions>()
                .unwrap()
                .iter()
                .count(),
            2
        );
        met[usize::from(denies)] = true;
    }
    assert_eq!(met, [true; 2]);
}

#[cfg(feature = "metrics")]
#[test]
fn the_metrics_distinguish_who_is_denied_from_who_would_be() {
    let series = tollgate_tests::Series::of(async {
        let layer = layer(&Enforcement::share(25));
        denied(&layer).await;
        denied(&layer).await;
    });
    let count = |outcome: &str| {
        series.count(&format!(
            "tollgate_decisions_total policy=one outcome={outcome}"
        ))
    };
    let applied = Enforcement::share(25);
    let share = (0..KEYS)
        .filter(|key| applied.applies_to(&Key::from(format!("customer-{key}"))))
        .count() as u64;
    assert_eq!(
        [count("denied"), count("shadowed"), count("allowed")],
        [share, KEYS as u64 - share, KEYS as u64]
    );
    assert!(share > 0);
}

/// Ten thousand keys.
fn keys() -> impl Iterator<Item = Key> {
    (0..10_000_u32).map(|at| Key::from(format!("customer-{at}")))
}

#[test]
fn the_share_of_ten_thousand_keys_is_about_the_one_asked_for() {
    for percent in [1, 5, 25, 50, 90, 99] {
        let enforcement = Enforcement::share(percent);
        let enforced = keys().filter(|key| enforcement.applies_to(key)).count() as i64;
        let expected = i64::from(percent) * 100;
        // Four standard deviations of a fair draw, at most 200.
        assert!(
            (enforced - expected).abs() <= 200,
            "{enforced} keys at {percent} %"
        );
    }
}

#[test]
fn none_and_all_are_exact() {
    assert_eq!(
        keys()
            .filter(|key| Enforcement::share(0).applies_to(key))
            .count(),
        0
    );
    assert_eq!(
        keys()
            .filter(|key| Enforcement::share(100).applies_to(key))
            .count(),
        10_000
    );
    assert_eq!(Enforcement::default().percent(), 100);
}

#[test]
fn a_key_that_is_enforced_stays_enforced_at_every_greater_share() {
    let (one, other) = (Enforcement::default(), Enforcement::default());
    for key in keys().take(500) {
        let applies = |percent| {
            one.set(percent).unwrap();
            other.set(percent).unwrap();
            assert_eq!(one.applies_to(&key), other.applies_to(&key));
            one.applies_to(&key)
        };
        let first = (0..=100).find(|percent| applies(*percent)).unwrap();
        assert!((first..=100).all(applies), "{first} %");
    }
}

/// Replicas of two versions run side by side.
#[test]
fn the_place_of_a_key_is_the_same_in_all_versions() {
    let places = ["acme", "customer-7", "*192.0.2.7", ""].map(|text| {
        let key = Key::from(text);
        (0..100)
            .rfind(|percent| !Enforcement::share(*percent).applies_to(&key))
            .unwrap()
    });
    assert_eq!(places, [72, 68, 2, 4]);
}

#[test]
fn a_share_above_all_keys_is_refused_and_the_old_one_stays() {
    let enforcement = Enforcement::share(25);
    let error = enforcement.set(101).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the share of enforced keys must be 0 to 100 percent, got 101"
    );
    assert_eq!(enforcement.percent(), 25);
}

#[test]
#[should_panic(expected = "must be 0 to 100 percent")]
fn a_literal_share_above_all_keys_panics() {
    let _ = Enforcement::share(101);
}
