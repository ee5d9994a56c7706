//! Renews the plan of each customer at a time of its own: at 09:30 on the 17th in Lisbon, or every 30
//! days from the day of signing.
//!
//! ```text
//! cargo run --example renewals
//! for i in $(seq 4); do curl -i -H 'X-Api-Key: ann' http://127.0.0.1:3000/; done
//! curl -H 'X-Api-Key: ann' http://127.0.0.1:3000/rate_limit
//! curl -X PUT "http://127.0.0.1:3000/customers/bob?signed=$(date +%s)"
//! curl -i -H 'X-Api-Key: bob' http://127.0.0.1:3000/
//! ```
//!
//! The fourth request of `ann` gets 429. `Retry-After` is the time to her next 17th at 09:30, which is
//! `reset` on the usage page. `start` is her last one. `bob` has 30 days from the second in which he signed. When he signs
//! again, his periods move, and what he has spent still counts.
//!
//! Features: `calendar` of `tollgate`, beside the defaults.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use axum::{
    Router,
    body::Body,
    extract::{Path, Query, State},
    http::StatusCode,
    routing::{get, put},
};
use serde::Deserialize;
use tollgate::{
    Anchor, CalendarUnit, Error, Limiter, Policy, Quota, TimeZone, tenants::TenantLimiters,
};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{LimiterSource, RateLimitLayer, key::Header};

/// The plan of customers that have not signed. All plans have its name.
const NONE: Policy = Policy::calendar_window("plan", 1, CalendarUnit::Day, TimeZone::UTC);

/// Stands for a database: the plan of each customer.
type Database = Arc<Mutex<HashMap<String, Policy>>>;

/// Returns three requests a month from an anchor in Lisbon.
fn monthly(anchor: &str) -> Result<Policy, Error> {
    let lisbon = "Europe/Lisbon".parse()?;
    Policy::calendar_window("plan", 3, CalendarUnit::Month, lisbon).with_anchor(anchor.parse()?)
}

/// Returns three requests in each 30 days from an instant.
fn from_signing(instant: SystemTime) -> Result<Policy, Error> {
    let days = Quota::new(3, Duration::from_secs(30 * 86_400));
    NONE.with_anchor(Anchor::of(instant, TimeZone::UTC)?)?
        .with_quota(days)
}

#[derive(Deserialize)]
struct Signed {
    /// Seconds since the Unix epoch.
    signed: u64,
}

/// Lets the periods of a customer begin when it signed.
async fn sign(
    State((database, tenants)): State<(Database, TenantLimiters<String>)>,
    Path(id): Path<String>,
    Query(Signed { signed }): Query<Signed>,
) -> Result<StatusCode, (StatusCode, String)> {
    let refused = |reason: String| (StatusCode::BAD_REQUEST, reason);
    let instant = SystemTime::UNIX_EPOCH
        .checked_add(Duration::from_secs(signed))
        .ok_or_else(|| refused(format!("signed is no time, got {signed}")))?;
    let plan = from_signing(instant).map_err(|error| refused(error.to_string()))?;
    let mut plans = database.lock().unwrap_or_else(PoisonError::into_inner);
    plans.insert(id.clone(), plan);
    tenants.invalidate(&id);
    Ok(StatusCode::NO_CONTENT)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let plans = HashMap::from([("ann".to_owned(), monthly("2026-01-17T09:30")?)]);
    let database = Database::new(Mutex::new(plans));
    let source = Arc::clone(&database);
    let tenants = TenantLimiters::new(Limiter::new(store()?, NONE), move |id: String| {
        let plans = source.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = plans.get(&id).cloned();
        async move { Ok::<_, Error>(plan) }
    });

    // A real service has verified the key.
    let limits = LimiterSource::by_tenant(tenants.clone(), |parts| {
        let key = parts.headers.get("x-api-key")?;
        Some(key.to_str().ok()?.to_owned())
    });
    let limit = RateLimitLayer::new(limits, Header::new("x-api-key"));
    let usage = limit.state_service::<Body>();
    let router = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route_layer(limit)
        .route_service("/rate_limit", usage)
        .route("/customers/{id}", put(sign))
        .with_state((database, tenants));

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("Listening on {url}, limited to three requests from one renewal to the next.");
    println!("Try:");
    println!("  for i in $(seq 4); do curl -i -H 'X-Api-Key: ann' {url}/; done");
    println!("  curl -H 'X-Api-Key: ann' {url}/rate_limit");
    serve(listener, router).await
}
