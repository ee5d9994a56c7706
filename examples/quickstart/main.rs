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
//! With `--features regions`, all regions share the limit of `/news`: set `REDIS_URL` to the server of
//! the region, such as `redis://127.0.0.1:6380/?region=eu`, and `HOME_URL` to one for all of them, such
//! as `redis://127.0.0.1/?durability=trust`. The other limits then count in the region.
//!
//! Features: the defaults of `tollgate` and `tollgate-tower`. `postgres` and `regions` are those of the
//! example.

use std::{env, error::Error, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    routing::{get, post},
};
use tokio::net::TcpListener;
use tollgate::{Lease, Limiter, Outage, Policy, Quota, Store};
use tollgate_tower::{
    RateLimitLayer,
    key::{Global, PeerIp},
};

const BURST: Policy = Policy::token_bucket("burst", Quota::per_second(5).with_burst(10));
const DAILY: Policy = Policy::fixed_window("daily", Quota::per_day(50_000));
const LOGIN: Policy = Policy::token_bucket("login", Quota::per_minute(5));
const NEWS: Policy =
    Policy::token_bucket("news", Quota::per_second(2_000)).leased(Lease::new().share(2));

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The log shows outages, and why a response was 500.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    #[cfg(feature = "postgres")]
    tollgate_postgres::register();
    let store = open()?;

    // Both policies are decided in one step: both are charged, or none.
    // A published limiter is known to `tollgate who` and `tollgate top`.
    let search = Limiter::builder(store.clone())
        .policies([BURST, DAILY])
        .published()
        .build();
    // While Redis is away, log-ins get a 503 instead of unlimited attempts.
    // So a decision may take 1 s here, instead of the default of 50 ms.
    let closed = Limiter::builder(store.clone())
        .on_outage(Outage::Closed)
        .deadline(Duration::from_secs(1));
    let login = closed.policies(LOGIN).published().build();
    // A busy limit of all clients together: each replica takes units in advance. In several regions
    // the first check waits for one trip between them.
    let shared = Limiter::builder(store).deadline(Duration::from_millis(500));
    let news = shared.policies(NEWS).published().try_build()?;

    let router = Router::new()
        .route(
            "/search",
            get(|| async { "found\n" }).layer(RateLimitLayer::new(search, PeerIp)),
        )
        .route(
            "/login",
            post(|| async { "welcome\n" }).layer(RateLimitLayer::new(login, PeerIp)),
        )
        .route(
            "/news",
            get(|| async { "nothing new\n" }).layer(RateLimitLayer::new(news, Global)),
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
    println!("  GET /news     2000 per second, for all clients together");
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

/// Opens the store that the variables name: in process, one server, or the server of a region with
/// the home of the limits that regions share.
fn open() -> Result<Arc<dyn Store>, Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "memory:".to_owned());
    match env::var("HOME_URL") {
        #[cfg(feature = "regions")]
        Ok(home) => {
            let regions = tollgate_regions::RegionalStore::builder_from_urls(url, home)?;
            Ok(Arc::new(regions.unleased_in_region().build()?))
        }
        #[cfg(not(feature = "regions"))]
        Ok(_) => Err("HOME_URL needs the feature `regions` of the quickstart".into()),
        Err(_) => Ok(tollgate::open(url)?),
    }
}
