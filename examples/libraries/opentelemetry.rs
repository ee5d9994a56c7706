//! Exports decisions through OpenTelemetry.
//!
//! ```text
//! cargo run --example opentelemetry
//! for i in $(seq 8); do curl -s -o /dev/null -w '%{http_code} ' -H 'X-Customer: acme' http://127.0.0.1:3000/; done
//! ```
//!
//! Each customer has five requests a day. The layer leaves its decisions in the extensions of each
//! response, and a layer around it adds them to the counter `tollgate.decisions`, with the policy
//! and the outcome as attributes. Attributes never name a customer: each value of one is a time
//! series of its own.
//!
//! The program prints what it exports: each minute, or after `OTEL_METRIC_EXPORT_INTERVAL`
//! milliseconds, and at its end. An exporter of `opentelemetry-otlp` in the place of that of
//! `opentelemetry-stdout` sends the same to a collector.
//!
//! Features: the defaults of `tollgate` and `tollgate-tower`.

use axum::{Router, middleware::map_response, response::Response, routing::get};
use opentelemetry::{
    KeyValue,
    metrics::{Counter, MeterProvider},
};
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use tollgate::{Limiter, Policy, Quota};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{Decisions, RateLimitLayer, key::Header};

const REQUESTS: Policy = Policy::fixed_window("requests", Quota::per_day(5));

/// Counts the decisions on a request, which all layers around the service have left in its
/// response.
fn count(decisions: &Counter<u64>, response: &Response) {
    let Some(made) = response.extensions().get::<Decisions>() else {
        return;
    };
    for decision in made.iter() {
        let outcome = if decision.is_allowed() {
            "allowed"
        } else {
            "denied"
        };
        for state in decision.states() {
            let policy = KeyValue::new("policy", state.policy().name().to_owned());
            decisions.add(1, &[policy, KeyValue::new("outcome", outcome)]);
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let reader = PeriodicReader::builder(opentelemetry_stdout::MetricExporter::default()).build();
    let provider = SdkMeterProvider::builder().with_reader(reader).build();
    let decisions = provider
        .meter("tollgate")
        .u64_counter("tollgate.decisions")
        .with_unit("{decision}")
        .build();

    let limiter = Limiter::new(store()?, REQUESTS);
    let limit = RateLimitLayer::builder(limiter, Header::new("x-customer"))
        .expose_decisions(true)
        .build();
    let router = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(limit)
        .layer(map_response(move |response: Response| {
            count(&decisions, &response);
            std::future::ready(response)
        }));

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("Listening on {url}: five requests a day for each X-Customer.");
    println!("Try:");
    println!(
        "  for i in $(seq 8); do curl -s -o /dev/null -w '%{{http_code}} ' -H 'X-Customer: acme' {url}/; done"
    );
    serve(listener, router).await?;
    // Exports the last figures.
    provider.shutdown()?;
    Ok(())
}
