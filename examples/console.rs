//! Serves a limited route, and the page on which people on call see what is limited.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1 cargo run --example console
//! for i in $(seq 20); do curl -s -o /dev/null -w '%{http_code} ' -H 'X-Tenant: acme' http://127.0.0.1:3000/; done
//! ```
//!
//! Open <http://127.0.0.1:3000/console>: the limiter, the replica, the keys with the most use and
//! those that are denied most. Look at the key `acme`, enter your name, and make it fresh. Without
//! Redis the page has the limiter of this process, and lists no keys of the store.
//!
//! Keys are shown as digests. `SHOW_KEYS=1` shows them, where all who see the page may.
//!
//! Here everybody on this machine may look, and act under the name that they enter. A real service
//! serves the page behind its own authentication, and returns the user whom that has found.
//!
//! Features: the defaults of `tollgate`, `tollgate-tower` and `tollgate-console`.

use std::env;

use axum::{Router, http::HeaderName, response::Redirect, routing::get};
use tollgate::{Enforcement, Limiter, Policy, Quota, limiter::DeniedKeys};
use tollgate_console::{Console, LocalLimiters, Source, Visitor};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{RateLimitLayer, key::Header};

const TENANT: Policy = Policy::token_bucket("tenant", Quota::per_hour(10));

/// Returns what the page is about: the store of all replicas, or the limiter of this process.
fn source(limiter: &Limiter, enforcement: &Enforcement) -> Result<Source, Failure> {
    match env::var("REDIS_URL") {
        Ok(url) if !url.is_empty() => {
            let shows_keys = env::var("SHOW_KEYS").is_ok_and(|value| value == "1");
            let operator = tollgate_operator::Operator::builder(url).shows_keys(shows_keys);
            Ok(operator.build()?.into())
        }
        _ => Ok(LocalLimiters::new().with_share(limiter, enforcement).into()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let (enforcement, denied_keys) = (Enforcement::share(100), DeniedKeys::new(100));
    let limiter = Limiter::builder(store()?)
        .policies(TENANT)
        .name("tenants")
        .published_with(enforcement.clone())
        .denied_keys(denied_keys.clone())
        .build();
    let console = Console::builder(source(&limiter, &enforcement)?)
        .denied_keys(denied_keys)
        .hosts(["127.0.0.1", "localhost"])
        .build(Visitor::by_header(HeaderName::from_static(
            "tollgate-author",
        )));
    let layer = RateLimitLayer::builder(limiter, Header::new("x-tenant"))
        .enforcement(enforcement)
        .build();
    let router = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(layer)
        .nest("/console", console.router())
        .route(
            "/console/",
            get(|| async { Redirect::permanent("/console") }),
        );
    let listener = listen().await?;
    println!("Open http://{}/console", listener.local_addr()?);
    serve(listener, router).await
}
