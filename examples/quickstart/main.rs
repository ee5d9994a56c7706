//! Limits an axum service for each client address: the search of the README with its two policies,
//! and a log-in that fails closed.
//!
//! ```text
//! cargo run -p quickstart
//! for i in $(seq 12); do curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:3000/search; done
//! curl -i http://127.0.0.1:3000/search
//! ```
//!
//! The bucket holds ten units and gains one every 200 ms. The first ten requests get 200. The
//! others get 429, except that one more passes for each 200 ms that the loop takes. After one
//! second of rest five more pass. `curl -i` shows the header fields that report the limits to the
//! client.
//!
//! To share one limit, start a second instance with another `LISTEN`, and set the same `REDIS_URL`
//! for both, such as `redis://127.0.0.1/?prefix=shop`. With `--features postgres` it may be
//! `postgres://app@127.0.0.1/shop?create=logged`.
//!
//! Features: the defaults of `tollgate` and `tollgate-tower`. `postgres` is one of the example.

use std::{env, error::Error, net::SocketAddr, time::Duration};

use axum::{
    Router,
    routing::{get, post},
};
use tokio::net::TcpListener;
use tollgate::{Limiter, Outage, Policy, Quota};
use tollgate_tower::{RateLimitLayer, key::PeerIp};

const BURST: Policy = Policy::token_bucket("burst", Quota::per_second(5).with_burst(10));
const DAILY: Policy = Policy::fixed_window("daily", Quota::per_day(50_000));
const LOGIN: Policy = Policy::token_bucket("login", Quota::per_minute(5));

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The log shows outages, and why a response was 500.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    #[cfg(feature = "postgres")]
    tollgate_postgres::register();
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "memory:".to_owned());
    let store = tollgate::open(url)?;

    // Both policies are decided in one step: both are charged, or none.
    // A published limiter is known to `tollgate who` and `tollgate top`.
    let search = Limiter::builder(store.clone())
        .policies([BURST, DAILY])
        .published()
        .build();
    // While Redis is away, log-ins get a 503 instead of unlimited attempts.
    // So a decision may take 1 s here, instead of the default of 50 ms.
    let closed = Limiter::builder(store)
        .on_outage(Outage::Closed)
        .deadline(Duration::from_secs(1));
    let login = closed.policies(LOGIN).published().build();

    let router = Router::new()
        .route(
            "/search",
            get(|| async { "found\n" }).layer(RateLimitLayer::new(search, PeerIp)),
        )
        .route(
            "/login",
            post(|| async { "welcome\n" }).layer(RateLimitLayer::new(login, PeerIp)),
        )
        .route("/healthz", get(|| async { "healthy\n" }));

    let address = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&address)
        .await
        .map_err(|error| format!("LISTEN={address}: {error}"))?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("Listening on {url}, limited for each client address:");
    println!("  GET /search   5 per second, at most 10 at once, and 50000 per day (UTC)");
    println!("  POST /login   5 per minute");
    println!("  GET /healthz  not limited");
    println!("Try:");
    println!(
        "  for i in $(seq 12); do curl -s -o /dev/null -w '%{{http_code}} ' {url}/search; done; curl -i {url}/search"
    );
    // `PeerIp` needs the client's address. This service provides it.
    axum::serve(
        listener,
        router.into_make_service_with_connect_info::<SocketAddr>(),
    )
    .await?;
    Ok(())
}
