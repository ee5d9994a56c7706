//! Limits that stand in a file, and change while the service runs.
//!
//! ```text
//! cargo run --example rules
//! for i in $(seq 6); do curl -i -H 'X-Tenant: acme' http://127.0.0.1:3000/; done
//! for i in $(seq 3); do curl -i -H 'X-Tenant: other' http://127.0.0.1:3000/export; done
//! curl -i -H 'X-Tenant: internal' http://127.0.0.1:3000/
//! sed -i 's/quota: 5\/min/quota: 50\/min/' examples/rules.yaml
//! curl -i -H 'X-Tenant: acme' http://127.0.0.1:3000/
//! ```
//!
//! The sixth request of `acme` gets 429, and so does the third export of `other`, which also spends
//! from the limit of its tenant. The tenant `internal` has only the limit of its address. After the
//! change of the file, `acme` has 45 requests left: the five that it has spent stay spent. A file
//! with a mistake changes nothing, and the log names its line.
//!
//! `RULES` is the path of another file. `examples/ranked.yaml` has classes of requests that leave a
//! share to others, networks that are never served, and a limit that is in force for a share of the
//! tenants. In a gRPC server, `tollgate_tonic::layer(limiter.for_requests("shop"), Global)` limits
//! calls by the same file.
//!
//! Features: `axum` of `tollgate-rules`, beside the defaults.

use std::{env, path::Path};

use axum::{Router, routing::get};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_rules::{RuleLimiter, Rules};
use tollgate_tower::{RateLimitLayer, key::Global};

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let store = store()?;
    let path = env::var("RULES")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/rules.yaml").to_owned());
    let rules = Rules::load(Path::new(&path))?;
    let _watching = rules.watch()?;
    let limiter = RuleLimiter::new(rules, store);
    let limit = RateLimitLayer::new(limiter.for_requests("shop"), Global);
    let router = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/export", get(|| async { "the export\n" }))
        .layer(limit);

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("Listening on {url}, limited by {path}.");
    println!("Try:");
    println!("  for i in $(seq 6); do curl -i -H 'X-Tenant: acme' {url}/; done");
    println!("Then change the file: 5/min to 50/min, and try again.");
    serve(listener, router).await
}
