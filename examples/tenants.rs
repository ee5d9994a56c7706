//! Limits each customer by a plan from a database, and changes the default limits while the service
//! runs.
//!
//! ```text
//! cargo run --example tenants
//! for i in $(seq 4); do curl -i -H 'X-Api-Key: small' http://127.0.0.1:3000/; done
//! curl -i -H 'X-Api-Key: large' http://127.0.0.1:3000/
//! curl -X PUT 'http://127.0.0.1:3000/plans/small?per_minute=100'
//! curl -i -H 'X-Api-Key: small' http://127.0.0.1:3000/
//! curl -X PUT 'http://127.0.0.1:3000/away?away=true'
//! ```
//!
//! The fourth request of `small` gets 429: its plan allows three a minute. `large` has a plan of
//! 1000 a minute, and every other key has no plan and may send one request a minute. After the
//! change of the plan, the requests that `small` has sent still count, and 96 more pass.
//!
//! The plans are fetched once and kept for a minute. While the database is away, the plans that are
//! known stay in force, and customers whose plan is not known have the default limits. The service
//! does not wait for the database for longer than 200 ms.
//!
//! Features: the defaults of `tollgate` and `tollgate-tower`.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    extract::{Path, Query, Request, State},
    http::StatusCode,
    middleware,
    middleware::Next,
    response::Response,
    routing::{get, put},
};
use serde::Deserialize;
use tollgate::{Key, Limiter, Policy, Quota, tenants::TenantLimiters};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{RateLimitLayer, key::FromExtension};

/// The limit of customers without a plan. All plans have its name, so a request that was sent under
/// one plan counts under the next.
const REQUESTS: Policy = Policy::token_bucket("requests", Quota::per_minute(1));

/// Identifies a customer. A real service has verified it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Tenant(String);

impl From<Tenant> for Key {
    fn from(Tenant(id): Tenant) -> Self {
        Self::new(id)
    }
}

/// Stands for a database: the requests a minute of each customer with a plan.
#[derive(Clone, Default)]
struct Database(Arc<Mutex<Plans>>);

#[derive(Default)]
struct Plans {
    per_minute: HashMap<String, u64>,
    is_away: bool,
}

impl Database {
    fn change(&self, change: impl FnOnce(&mut Plans)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns the limits of a customer. `None` means that it has no plan.
    async fn limits_of(self, Tenant(id): Tenant) -> Result<Option<Policy>, Failure> {
        // The query takes a while.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if plans.is_away {
            return Err(io::Error::other("the database is away").into());
        }
        let per_minute = plans.per_minute.get(&id).copied();
        // A plan of 0 suspends the customer. A wrong plan is an error, and the last one stays in
        // force.
        let quota = per_minute
            .map(|amount| Quota::try_new(amount, Duration::from_secs(60)))
            .transpose()?;
        Ok(quota.map(|quota| REQUESTS.with_quota(quota)).transpose()?)
    }
}

/// Stores the customer in the request.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let api_key = request
        .headers()
        .get("x-api-key")
        .and_then(|value| value.to_str().ok())
        .unwrap_or("nobody");
    let tenant = Tenant(api_key.to_owned());
    request.extensions_mut().insert(tenant);
    next.run(request).await
}

#[derive(Deserialize)]
struct Plan {
    per_minute: u64,
}

/// Changes the plan of a customer. It is in force at once.
async fn set_plan(
    State((database, tenants)): State<(Database, TenantLimiters<Tenant>)>,
    Path(id): Path<String>,
    Query(Plan { per_minute }): Query<Plan>,
) -> StatusCode {
    database.change(|plans| plans.per_minute.extend([(id.clone(), per_minute)]));
    tenants.invalidate(&Tenant(id));
    StatusCode::NO_CONTENT
}

#[derive(Deserialize)]
struct Away {
    away: bool,
}

/// Takes the database away, or brings it back.
async fn set_away(
    State((database, _)): State<(Database, TenantLimiters<Tenant>)>,
    Query(Away { away }): Query<Away>,
) -> StatusCode {
    database.change(|plans| plans.is_away = away);
    StatusCode::NO_CONTENT
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let database = Database::default();
    database.change(|plans| {
        plans
            .per_minute
            .extend([("small".to_owned(), 3), ("large".to_owned(), 1000)]);
    });

    // All customers share one limiter: its store, its connection and its answers in an outage.
    let default = Limiter::new(store()?, REQUESTS);
    let source = database.clone();
    let tenants = TenantLimiters::builder(default, move |tenant| source.clone().limits_of(tenant))
        .time_to_live(Duration::from_secs(60))
        .fetch_timeout(Duration::from_millis(200))
        .build();

    let limit = RateLimitLayer::new(tenants.clone(), FromExtension::<Tenant>::new());
    let router = Router::new()
        .route(
            "/",
            get(|| async { "hello\n" })
                .layer(limit)
                .layer(middleware::from_fn(authenticate)),
        )
        .route("/plans/{id}", put(set_plan))
        .route("/away", put(set_away))
        .with_state((database, tenants));

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!(
        "Listening on {url}, limited for each customer by its plan: small 3 per minute, large 1000, others 1."
    );
    println!("Try:");
    println!("  for i in $(seq 4); do curl -i -H 'X-Api-Key: small' {url}/; done");
    println!("  curl -X PUT '{url}/plans/small?per_minute=100'");
    serve(listener, router).await
}
