//! Serves pages for operators: the rules in force and the counters.

// Pages for clients are in `http.rs`, metrics for Prometheus in `metrics/prometheus.rs`. Nothing
// here changes anything.

use std::fmt::Write as _;

use axum::{Router, extract::State, routing::get};
use tollgate_rules::{Limit, Rule, Rules};

use crate::{RateLimitService, metrics::bounded};

/// Returns the routes `/`, `/rlconfig` and `/stats`.
///
/// **Serve these pages to operators alone.** They show the rules and, with `detailed_metric`,
/// values of requests.
pub fn router(service: RateLimitService) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/rlconfig", get(rules))
        .route("/stats", get(stats))
        .with_state(service)
}

async fn index() -> &'static str {
    "/rlconfig: print out the currently loaded configuration for debugging\n/stats: print out stats\n"
}

async fn rules(State(service): State<RateLimitService>) -> String {
    dump(service.limiter().rules())
}

async fn stats(State(service): State<RateLimitService>) -> String {
    let counters = service
        .metrics()
        .counters(service.limiter().rules().loads());
    counters
        .into_iter()
        .map(|(name, value)| format!("{name}: {value}\n"))
        .collect()
}

/// Writes a line for each rule. For a limit of Envoy's language, Envoy's service writes the same.
/// The counters have the same name, so a name of a file forges no line.
fn dump(rules: &Rules) -> String {
    let mut text = String::new();
    for rule in rules.current().rules() {
        // Writing to memory cannot fail.
        let _ = writeln!(
            text,
            "{}: {}, shadow_mode: {}, quota_mode: {}",
            bounded(rule.metric_name()),
            limit(rule),
            rule.is_shadow(),
            rule.is_quota()
        );
    }
    for error in rules.last_error().iter().flat_map(|errors| errors.iter()) {
        let _ = writeln!(text, "# refused, the rules above stay in force: {error}");
    }
    text
}

fn limit(rule: &Rule) -> String {
    let unit = rule.unit().map(|unit| unit.as_str().to_ascii_uppercase());
    match (rule.limit(), unit, rule.amount()) {
        (Limit::Unlimited, _, _) => "unit=UNKNOWN requests_per_unit=0, unlimited: true".to_owned(),
        (Limit::Policies(policies), Some(unit), Some((requests, _))) if policies.len() == 1 => {
            format!("unit={unit} requests_per_unit={requests}")
        }
        (Limit::Blocked { .. }, Some(unit), _) => format!("unit={unit} requests_per_unit=0"),
        (limit, ..) => format!("limit={limit}"),
    }
}
