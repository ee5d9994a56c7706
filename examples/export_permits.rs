//! Limits long exports: two at a time for each tenant, over all replicas.
//!
//! ```text
//! cargo run --example export_permits
//! rows() { curl -iN -H 'X-Tenant: acme' "http://127.0.0.1:3000/export?rows=$1"; }
//! rows 100 > /dev/null & rows 100 > /dev/null & sleep 0.2; rows 5; wait
//! rows 10 > /dev/null & rows 10 > /dev/null & sleep 0.2; rows 5; wait
//! ```
//!
//! An export sends a row each 50 ms. The third one of the first line waits for half a second, and
//! then gets 429: two exports of 5 s are running. Its `Retry-After` is an estimate, from the time
//! that exports have taken so far. The third one of the second line waits until one of the two
//! others has ended, and runs then. Press Ctrl-C in the middle of an export: its permit is free at
//! once.
//!
//! With `REDIS_URL` all instances share the permits. Kill one of them in the middle of an export:
//! its permits are free again after 10 s, the life of a permit. While Redis is away for longer than
//! that, exports end with an error, because the limit says `OnLoss::Cancel`: there are never more
//! than two.
//!
//! Features: the defaults of `tollgate` and `tollgate-tower`.

use std::{convert::Infallible, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::Query,
    http::header,
    response::{IntoResponse, Response},
    routing::get,
};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use tollgate::permits::{Concurrency, ConcurrencyLimiter, OnLoss};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{ConcurrencyLayer, key::Header};

/// Few permits are exact: none is kept idle while another replica needs it.
const EXPORTS: Concurrency = Concurrency::new("exports", 2)
    .exact()
    .on_loss(OnLoss::Cancel)
    .wait(Duration::from_millis(500));

const PAUSE: Duration = Duration::from_millis(50);

#[derive(Deserialize)]
struct Export {
    rows: u64,
}

/// Streams rows. The permit of the request is given back when the last row was sent, or when the
/// client hangs up.
async fn export(Query(Export { rows }): Query<Export>) -> Response {
    let rows = stream::iter(1..=rows).then(|row| async move {
        tokio::time::sleep(PAUSE).await;
        Ok::<_, Infallible>(format!("{row},some data\n"))
    });
    (
        [(header::CONTENT_TYPE, "text/csv")],
        Body::from_stream(rows),
    )
        .into_response()
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let permits = ConcurrencyLimiter::new(store()?, EXPORTS);
    let layer = ConcurrencyLayer::new(permits, Header::new("x-tenant"));
    let router = Router::new().route("/export", get(export).layer(layer));

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("Listening on {url}: two exports at a time for each X-Tenant.");
    println!("Try:");
    println!(
        "  for i in 1 2 3; do curl -iN -H 'X-Tenant: acme' '{url}/export?rows=100' & done; wait"
    );
    serve(listener, router).await
}
