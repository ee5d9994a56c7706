//! The gauges of a limiter, and the rejections of its layer.

use std::time::Duration;

use http::StatusCode;
use metrics_util::debugging::DebugValue;
use tollgate::store::Clock;
use tollgate_overload::{AdaptiveLayer, AdaptiveLimiter, Aimd, Class, Signal};
use tollgate_tower::MetricLabels;
use tower::{Layer, ServiceExt};

use tollgate_tests::Series;

use crate::support::{hello, request};

#[test]
fn an_adaptive_limiter_records_its_last_window_and_what_it_sheds() {
    let series = Series::of(async {
        let clock = Clock::manual(0);
        let limiter = AdaptiveLimiter::builder(Aimd::new(Duration::from_millis(5))).limits(1..=20);
        let limiter = limiter.name("reports").clock(clock.clone()).build();
        for _ in 0..10 {
            let slot = limiter.try_acquire(Class::CRITICAL).unwrap();
            clock.advance(Duration::from_millis(20));
            slot.finish(Signal::Success);
        }
        let slots: Vec<_> = (0..18)
            .map(|_| limiter.try_acquire(Class::CRITICAL).unwrap())
            .collect();
        let service = AdaptiveLayer::new(limiter).layer(hello());
        assert_eq!(service.oneshot(request()).await.unwrap().status(), 503);
        drop(slots);
    });
    let gauge = |name: &str| match series.0.get(name) {
        Some(DebugValue::Gauge(value)) => value.into_inner(),
        other => panic!("{name}: {other:?} in {:?}", series.0.keys()),
    };
    assert_eq!(gauge("tollgate_adaptive_limit limiter=reports"), 18.0);
    assert_eq!(gauge("tollgate_adaptive_in_flight limiter=reports"), 1.0);
    assert_eq!(
        gauge("tollgate_adaptive_latency_seconds limiter=reports"),
        0.02
    );
    series.assert_counts("tollgate_rejections_total reason=overloaded 1");
}

#[test]
fn a_request_that_is_shed_is_counted_with_the_labels_of_the_layer() {
    let series = Series::of(async {
        let limiter = AdaptiveLimiter::builder(Aimd::new(Duration::from_secs(1)))
            .limits(1..=1)
            .build();
        let _slot = limiter.try_acquire(Class::CRITICAL).unwrap();
        let layer = AdaptiveLayer::builder(limiter)
            .metric_labels(MetricLabels::new(["layer"], [["adaptive"]], |_| Some(0)))
            .build();
        let Ok(response) = layer.layer(hello()).oneshot(request()).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    });
    series.assert_counts("tollgate_rejections_total reason=overloaded layer=adaptive 1");
}
