//! The metrics for Prometheus, and the keys that are denied most, on a port of their own.

use std::{fmt::Write, time::Duration};

use axum::{Router, routing::get};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tollgate::limiter::DeniedKeys;

/// The bounds of the histograms, in seconds. The dashboard takes its quantiles from them.
const BUCKETS: [f64; 9] = [0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05];

/// Installs the recorder.
pub(crate) fn install() -> Result<PrometheusHandle, BuildError> {
    let builder = PrometheusBuilder::new();
    let builder = builder.set_buckets_for_metric(Matcher::Suffix("_duration_seconds".to_owned()), &BUCKETS)?;
    let handle = builder.install_recorder()?;
    let upkeep = handle.clone();
    tokio::spawn(async move {
        // Without it, durations that nobody reads would use more and more memory.
        let mut seconds = tokio::time::interval(Duration::from_secs(5));
        loop {
            seconds.tick().await;
            upkeep.run_upkeep();
        }
    });
    Ok(handle)
}

/// Returns the pages of the operators. `tollgate top` reads them with `--metrics` and `--denied`.
pub(crate) fn router(recorder: PrometheusHandle, denied_keys: DeniedKeys) -> Router {
    Router::new()
        .route("/metrics", get(async move || recorder.render()))
        .route("/denied", get(async move || denied_page(&denied_keys)))
}

/// Lists digests of the keys that are denied most.
fn denied_page(denied_keys: &DeniedKeys) -> String {
    let mut page = format!("{} denials\n", denied_keys.total());
    for key in denied_keys.top(20) {
        // Writing to memory cannot fail.
        let _ = writeln!(page, "{:>8}  {}", key.denials(), key.name());
    }
    page
}
