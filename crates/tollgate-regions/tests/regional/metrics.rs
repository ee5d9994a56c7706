//! The series of a region: what it holds, claims and loses.

use std::time::Duration;

use tollgate_core::{Lease, Limiter, Policy, Quota};
use tollgate_regions::{Durability, RegionalStore};
use tollgate_tests::{RedisServer, Series, no_server, wait};

const PATIENCE: Duration = Duration::from_secs(60);

/// Gives a server another reign, and leaves its data as they are.
fn change_reign(server: &RedisServer) {
    // Nobody listens there.
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    server.command(&["REPLICAOF", "NO", "ONE"]);
}

#[test]
fn what_a_region_holds_claims_and_loses_is_counted() {
    if no_server() {
        return;
    }
    Series::record(async |snapshotter| {
        let (home, local) = (RedisServer::start(), RedisServer::start());
        let store = RegionalStore::builder(local.url(), home.url())
            .region("eu")
            .durability(Durability::Trust)
            .round_trip(Duration::from_millis(1))
            .prefix("shop")
            .build()
            .expect("a store");
        let year = Duration::from_secs(365 * 86_400);
        let policy = Policy::token_bucket("all", Quota::new(2_000, year))
            .leased(Lease::new().share(2).generation(PATIENCE));
        let limiter = Limiter::builder(store.clone())
            .policies(policy)
            .deadline(PATIENCE)
            .build();
        let check = async || limiter.check("acme").await.expect("a decision");
        wait::until_async("units that the region holds", PATIENCE, async || {
            let _ = check().await;
            let figures = store.figures();
            figures.held > 0 && figures.answered == figures.calls
        })
        .await;
        let held = store.figures().held;
        change_reign(&local);
        wait::until_async("units of another reign", PATIENCE, async || {
            let _ = check().await;
            store.figures().lost >= held
        })
        .await;
        wait::until_async("the series", PATIENCE, async || {
            let (series, figures) = (Series::described(&snapshotter), store.figures());
            let Some(held) = series.gauge("tollgate_region_held store=shop") else {
                return false;
            };
            let count = |name: &str| series.count(&format!("tollgate_region_{name}"));
            held == figures.held as f64
                && count("calls_total store=shop outcome=answered") == figures.answered
                && count("calls_total store=shop outcome=given_up") == figures.given_up
                && count("resent_total store=shop") == figures.resent
                && count("granted_total store=shop") == figures.granted
                && count("lost_total store=shop") == figures.lost
                && series.gauge("tollgate_region_round_trip_seconds store=shop") > Some(0.0)
        })
        .await;
    });
}

#[tokio::test]
async fn units_that_lapse_in_the_purse_are_lost() {
    if no_server() {
        return;
    }
    let (home, local) = (RedisServer::start(), RedisServer::start());
    let store = RegionalStore::builder(local.url(), home.url())
        .region("eu")
        .durability(Durability::Trust)
        .round_trip(Duration::from_millis(1))
        .build()
        .expect("a store");
    let year = Duration::from_secs(365 * 86_400);
    let policy = Policy::token_bucket("all", Quota::new(2_000, year))
        .leased(Lease::new().share(2).generation(Duration::from_millis(100)));
    let limiter = Limiter::builder(store.clone())
        .policies(policy)
        .deadline(PATIENCE)
        .build();
    // Each check may find that what an earlier one has left over has lapsed.
    wait::until_async("units that lapse", PATIENCE, async || {
        let _ = limiter.check("acme").await.expect("a decision");
        store.figures().lost > 0
    })
    .await;
    let figures = store.figures();
    assert!(figures.lost <= figures.granted, "{figures:?}");
}
