//! Measures what a check at a purse costs the server of a region, beside a leased check and a plain one
//! of a `RedisStore` there.
//!
//! ```text
//! cargo run --release -p tollgate-regions --example purse_cost
//! ```
//!
//! It starts three servers and asks them in turn, `ROUNDS` times (9). The figures are those of `INFO
//! commandstats`: the time that the server spends on a script, without the network. The ratios compare
//! rounds that follow each other, so that a busy machine disturbs both alike.

use std::{env, error::Error, time::Duration};

use tollgate_core::{Lease, Limiter, Policy, Quota};
use tollgate_redis::RedisStore;
use tollgate_regions::{Durability, RegionalStore};
use tollgate_tests::RedisServer;

/// The checks of a round.
const CHECKS: usize = 5_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let rounds = env::var("ROUNDS").map_or(Ok(9), |text| text.parse::<usize>())?;
    let (plain, leased, region, home) = (
        RedisServer::start(),
        RedisServer::start(),
        RedisServer::start(),
        RedisServer::start(),
    );
    let bucket = || Policy::token_bucket("api", Quota::per_second(1_000_000));
    let terms = Lease::new().share(2);
    let limiters = [
        limiter(RedisStore::connect(plain.url()).await?, bucket())?,
        limiter(
            RedisStore::connect(leased.url()).await?,
            bucket().leased(terms),
        )?,
        limiter(
            RegionalStore::builder(region.url(), home.url())
                .region("eu")
                .durability(Durability::Trust)
                .round_trip(Duration::from_millis(80))
                .build()?,
            bucket().leased(terms),
        )?,
    ];
    let mut times: [Vec<f64>; 3] = Default::default();
    for round in 0..=rounds {
        for (at, server) in [&plain, &leased, &region].into_iter().enumerate() {
            server.command(&["CONFIG", "RESETSTAT"]);
            for check in 0..CHECKS {
                // Many keys, or leased units would decide most checks.
                let key = (check % 500).to_string();
                let _ = limiters[at].check(key.as_str()).await?;
            }
            // The first round loads scripts and fills purses.
            if round > 0 {
                times[at].push(usec_per_call(server));
            }
        }
    }
    let [plain, leased, region] = &times;
    let ratios = region
        .iter()
        .zip(leased)
        .map(|(region, leased)| region / leased);
    println!("plain check   {:>5.1} µs", median(plain.clone()));
    println!("leased check  {:>5.1} µs", median(leased.clone()));
    println!("purse         {:>5.1} µs", median(region.clone()));
    println!("purse : leased check {:.2}", median(ratios.collect()));
    Ok(())
}

fn limiter(
    store: impl tollgate_core::Store,
    policy: Policy,
) -> Result<Limiter, tollgate_core::Error> {
    let builder = Limiter::builder(store).policies(policy);
    builder.deadline(Duration::from_secs(5)).try_build()
}

/// Returns the microseconds of a script on the server.
fn usec_per_call(server: &RedisServer) -> f64 {
    let stats = server.info("commandstats");
    let line = stats.get("cmdstat_evalsha").map_or("", String::as_str);
    let field = line
        .split(',')
        .find_map(|field| field.strip_prefix("usec_per_call="));
    field.and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
