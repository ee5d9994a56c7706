//! Spends one limit of 2 000 requests a second in a region, and prints each second what was admitted.
//!
//! ```text
//! REGION=eu LOCAL_URL=redis://127.0.0.1:6380 HOME_URL=redis://127.0.0.1:6379 cargo run -p tollgate-regions --example regions
//! ```
//!
//! Run one for each region, each with a server of its own, and the same home. Together they admit 2 000
//! in a second, and at first the burst. `SECONDS` ends it.

use std::{env, error::Error, time::Duration};

use tokio::{task::JoinSet, time::Instant};
use tollgate_core::{Lease, Limiter, Policy, Quota};
use tollgate_regions::{Durability, RegionalStore};

/// The callers that ask at the same time.
const CALLERS: usize = 32;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let variable = |name, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let (local, home) = (
        variable("LOCAL_URL", "redis://127.0.0.1:6380"),
        variable("HOME_URL", "redis://127.0.0.1:6379"),
    );
    let seconds: u64 = variable("SECONDS", "10").parse()?;
    let store = RegionalStore::builder(local, home)
        .region(variable("REGION", "eu"))
        .durability(Durability::Trust)
        .round_trip(Duration::from_millis(80))
        .connect()
        .await?;
    let policy =
        Policy::token_bucket("api", Quota::per_second(2_000)).leased(Lease::new().share(2));
    let limiter = Limiter::builder(store.clone())
        .policies(policy)
        .deadline(Duration::from_millis(500))
        .try_build()?;
    for second in 1..=seconds {
        let end = Instant::now() + Duration::from_secs(1);
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let limiter = limiter.clone();
            callers.spawn(async move {
                let mut admitted = 0;
                while Instant::now() < end {
                    let decision = limiter.check("everybody").await?;
                    match decision.retry_after() {
                        Some(wait) => tokio::time::sleep(wait.min(Duration::from_millis(50))).await,
                        None => admitted += 1,
                    }
                }
                Ok::<u64, tollgate_core::Error>(admitted)
            });
        }
        let mut admitted = 0;
        while let Some(caller) = callers.join_next().await {
            admitted += caller??;
        }
        println!(
            "second {second}: {admitted} admitted, {:?}",
            store.figures()
        );
    }
    Ok(())
}
