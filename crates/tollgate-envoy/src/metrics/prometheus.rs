//! Writes all counts as the text that Prometheus reads.
//! The counts are in `registry.rs`, and the port is opened by `server/`.

use std::{collections::BTreeMap, fmt::Write as _};

use tollgate_rules::LoadCounts;

use super::{
    Metrics,
    histogram::{BOUNDS_US, HistogramCounts},
    mapper::{Series, series},
    registry::METHOD,
};

const TIME: &str = "ratelimit_service_response_time_seconds";

/// Returns the metrics in the text format of Prometheus, under the names that the default mapper of
/// Envoy's service gives them.
///
/// Unlike there, the histogram also has buckets below 5 ms.
#[must_use]
pub fn prometheus_text(metrics: &Metrics, loads: LoadCounts) -> String {
    let mut families: BTreeMap<String, BTreeMap<Series, u64>> = BTreeMap::new();
    for (name, value) in metrics.counters(loads) {
        let series = series(&name);
        *families
            .entry(series.name.clone())
            .or_default()
            .entry(series)
            .or_default() += value;
    }
    let mut text = String::new();
    for (name, members) in &families {
        line(&mut text, format_args!("# TYPE {name} counter"));
        for (series, value) in members {
            line(
                &mut text,
                format_args!("{name}{} {value}", labels(&series.labels)),
            );
        }
    }
    histogram(&mut text, &metrics.response_times());
    text
}

fn histogram(text: &mut String, counts: &HistogramCounts) {
    line(text, format_args!("# TYPE {TIME} histogram"));
    let mut total = 0;
    for (at, count) in counts.buckets.iter().enumerate() {
        total += count;
        let bound = BOUNDS_US
            .get(at)
            .map_or_else(|| "+Inf".to_owned(), |us| (*us as f64 / 1e6).to_string());
        line(
            text,
            format_args!("{TIME}_bucket{{grpc_method=\"{METHOD}\",le=\"{bound}\"}} {total}"),
        );
    }
    let sum = counts.sum_us as f64 / 1e6;
    line(
        text,
        format_args!("{TIME}_sum{{grpc_method=\"{METHOD}\"}} {sum}"),
    );
    line(
        text,
        format_args!("{TIME}_count{{grpc_method=\"{METHOD}\"}} {total}"),
    );
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to memory cannot fail.
    let _ = writeln!(text, "{line}");
}

/// Writes labels as in `{domain="shop",key1="tenant"}`.
fn labels(labels: &[(&'static str, String)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let quoted = |value: &str| {
        value
            .replace('\\', r"\\")
            .replace('"', "\\\"")
            .replace('\n', r"\n")
    };
    let labels: Vec<_> = labels
        .iter()
        .map(|(name, value)| format!("{name}=\"{}\"", quoted(value)))
        .collect();
    format!("{{{}}}", labels.join(","))
}
