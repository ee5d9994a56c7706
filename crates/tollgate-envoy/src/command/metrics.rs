//! Serves metrics for Prometheus.
//! What is counted, and under which names, is in `metrics/` of the library.

use axum::{Router, extract::State, http::header::CONTENT_TYPE, routing::get};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::time::{Duration, interval};
use tollgate_envoy::{RateLimitService, prometheus_text};

use super::failure::Failure;

/// The bounds of the histograms of Tollgate, in seconds.
const BUCKETS: [f64; 9] = [
    0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
];

/// Starts to record the metrics of Tollgate. Rules are loaded after it.
pub(crate) fn install() -> Result<PrometheusHandle, Failure> {
    let failure = |error| Failure::new(format_args!("metrics cannot be recorded: {error}"));
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_duration_seconds".to_owned()), &BUCKETS)
        .map_err(failure)?;
    builder.install_recorder().map_err(failure)
}

/// Returns the page with the metrics of Envoy's service, followed by Tollgate's own.
pub(crate) fn router(
    path: &str,
    service: RateLimitService,
    handle: PrometheusHandle,
) -> Result<Router, Failure> {
    if !path.starts_with('/') || path.contains(['{', '}', '*', ':']) {
        return Err(Failure::new(format_args!(
            "--prometheus-path must be a plain path, got {path:?}"
        )));
    }
    Ok(Router::new()
        .route(path, get(page))
        .with_state((service, handle)))
}

type Page = ([(axum::http::HeaderName, &'static str); 1], String);

async fn page(State((service, handle)): State<(RateLimitService, PrometheusHandle)>) -> Page {
    let mut text = prometheus_text(service.metrics(), service.limiter().rules().loads());
    text.push_str(&handle.render());
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}

/// Drops old samples of histograms, until the future is dropped.
pub(crate) async fn upkeep(handle: PrometheusHandle) {
    let mut ticks = interval(Duration::from_secs(5));
    loop {
        ticks.tick().await;
        handle.run_upkeep();
    }
}
