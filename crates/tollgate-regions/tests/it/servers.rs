//! Real servers, 80 ms from their home: what is admitted in all regions together, whatever fails.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tollgate_core::{Key, Lease, Limiter, Policy, Quota};
use tollgate_regions::{Durability, RegionalStore};
use tollgate_tests::{
    RedisServer, no_server,
    proxy::{Mode, Proxy},
};

/// Longer than any machine stands still.
const PATIENCE: Duration = Duration::from_secs(60);

const TRIP: Duration = Duration::from_millis(80);

/// The units of the limit. None accrues while a test runs.
const UNITS: u64 = 2_000;

/// One region: a limiter over its store, and what it has admitted.
#[derive(Clone)]
struct Region {
    limiter: Limiter,
    store: RegionalStore,
    admitted: Arc<AtomicU64>,
}

impl Region {
    fn new(name: &str, local: &str, home: &str, durability: Durability) -> Self {
        let store = RegionalStore::builder(local, home)
            .region(name)
            .durability(durability)
            .round_trip(TRIP)
            .build()
            .expect("a store");
        let year = Duration::from_secs(365 * 86_400);
        let policy =
            Policy::token_bucket("all", Quota::new(UNITS, year)).leased(Lease::new().share(2));
        let limiter = Limiter::builder(store.clone())
            .policies(policy)
            .deadline(PATIENCE)
            .try_build()
            .expect("a limiter");
        Self {
            limiter,
            store,
            admitted: Arc::default(),
        }
    }

    /// Makes a check. Returns whether it was admitted.
    async fn check(&self) -> bool {
        let decision = self.limiter.check("acme").await.expect("no outage");
        assert!(!decision.is_degraded(), "{decision:?}");
        let is_allowed = decision.is_allowed();
        self.admitted.fetch_add(u64::from(is_allowed), Relaxed);
        is_allowed
    }

    fn admitted(&self) -> u64 {
        self.admitted.load(Relaxed)
    }
}

fn sum(regions: &[Region]) -> u64 {
    regions.iter().map(Region::admitted).sum()
}

/// Checks in all regions at once until so many units were admitted.
async fn spend(regions: &[Region], units: u64) {
    let begun = Instant::now();
    let all: Arc<[Region]> = regions.into();
    let tasks = regions.iter().map(|region| {
        let (region, all) = (region.clone(), Arc::clone(&all));
        tokio::spawn(async move {
            while sum(&all) < units {
                assert!(
                    begun.elapsed() < PATIENCE,
                    "{} of {units}: {:?}",
                    sum(&all),
                    region.store.figures()
                );
                if !region.check().await {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("a region");
    }
}

/// Spends all that is left: checks in all regions until each has asked the home twice, and nothing was
/// admitted meanwhile.
async fn drain(regions: &[Region]) {
    let begun = Instant::now();
    loop {
        let before = sum(regions);
        for region in regions {
            let calls = region.store.figures().calls;
            while region.store.figures().calls < calls + 2 {
                assert!(begun.elapsed() < PATIENCE, "{:?}", region.store.figures());
                if !region.check().await {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
        if sum(regions) == before {
            return;
        }
    }
}

/// Compares what was admitted with the limit. Units that were lost on their way lapse as if they were
/// spent, so it may be less.
fn assert_bound(regions: &[Region]) {
    let figures: Vec<_> = regions
        .iter()
        .map(|region| region.store.figures())
        .collect();
    assert!(
        sum(regions) <= UNITS,
        "{} of {UNITS}: {figures:?}",
        sum(regions)
    );
}

fn delayed(server: &RedisServer) -> Proxy {
    let line = Proxy::start(server.addr());
    line.set(Mode::Delay(TRIP));
    line
}

#[tokio::test(flavor = "multi_thread")]
async fn three_regions_never_admit_more_than_the_limit() {
    if no_server() {
        return;
    }
    let (home, servers) = (RedisServer::start(), [(); 3].map(|()| RedisServer::start()));
    let lines = [(); 3].map(|()| delayed(&home));
    let regions: Vec<_> = (0..3)
        .map(|at| {
            let name = format!("region {at}");
            Region::new(
                &name,
                &servers[at].url(),
                &lines[at].url(),
                Durability::Trust,
            )
        })
        .collect();
    spend(&regions, UNITS / 2).await;
    drain(&regions).await;
    assert_bound(&regions);
    assert!(regions.iter().all(|region| region.admitted() > 0));
    let calls: u64 = regions
        .iter()
        .map(|region| region.store.figures().calls)
        .sum();
    assert!(
        calls < UNITS / 10,
        "{calls} calls of the home for {UNITS} units"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_copy_of_a_region_spends_nothing_that_its_old_master_spends_too() {
    if no_server() {
        return;
    }
    let (home, old, new) = (
        RedisServer::start(),
        RedisServer::start(),
        RedisServer::start(),
    );
    let line = delayed(&home);
    new.command(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
    let is_copied = || {
        new.info("replication")
            .get("master_link_status")
            .is_some_and(|it| it == "up")
    };
    tollgate_tests::wait::until("a copy", PATIENCE, is_copied);
    let before = Region::new("eu", &old.url(), &line.url(), Durability::Trust);
    spend(std::slice::from_ref(&before), 200).await;
    // What the old master holds now is copied, and it lives on.
    let held = before.limiter.peek("acme").await.expect("a look");
    let held = held.state("all").expect("the policy").remaining();
    let purse = |server: &RedisServer| {
        let name = server
            .command(&["KEYS", "*:purse1"])
            .items()
            .first()?
            .text();
        Some(server.command(&["GET", &name]).bytes().to_vec())
    };
    let is_same = || purse(&old).is_some_and(|it| purse(&new) == Some(it));
    tollgate_tests::wait::until("the purse at the copy", PATIENCE, is_same);
    new.command(&["REPLICAOF", "NO", "ONE"]);
    let after = Region::new("eu", &new.url(), &line.url(), Durability::Trust);
    let regions = [before, after];
    spend(&regions, UNITS / 2).await;
    drain(&regions).await;
    assert!(held > 0, "the copy had nothing to lose");
    assert_bound(&regions);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_home_that_fails_over_has_every_grant_that_its_replica_confirmed() {
    if no_server() {
        return;
    }
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let servers = [RedisServer::start(), RedisServer::start()];
    let lines = [delayed(&old), delayed(&old)];
    let regions: Vec<_> = (0..2)
        .map(|at| {
            let name = format!("region {at}");
            let guard = Durability::Replicas(1);
            Region::new(&name, &servers[at].url(), &lines[at].url(), guard)
        })
        .collect();
    // Without a replica nothing is granted.
    for region in &regions {
        assert!(!region.check().await);
    }
    new.command(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
    spend(&regions, UNITS / 2).await;
    // The old one is gone with what it did last.
    old.kill();
    new.command(&["REPLICAOF", "NO", "ONE"]);
    let third = RedisServer::start();
    third.command(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    for line in &lines {
        line.set_target(new.addr());
        line.reset_all();
    }
    spend(&regions, UNITS / 2 + 100).await;
    drain(&regions).await;
    assert_bound(&regions);
}

#[tokio::test]
async fn a_region_that_is_cut_off_spends_what_it_holds_and_then_denies() {
    if no_server() {
        return;
    }
    let (home, server) = (RedisServer::start(), RedisServer::start());
    let line = delayed(&home);
    let region = Region::new("eu", &server.url(), &line.url(), Durability::Trust);
    spend(std::slice::from_ref(&region), 300).await;
    line.set(Mode::Refuse);
    let before = region.admitted();
    let begun = Instant::now();
    while region.check().await {
        assert!(begun.elapsed() < PATIENCE);
    }
    assert!(region.admitted() < UNITS && before >= 300);
    let denied = region.limiter.check("acme").await.expect("no outage");
    assert!(denied.is_denied() && denied.retry_after().is_some());
    line.set(Mode::Pass);
    let more = region.admitted() + 100;
    spend(std::slice::from_ref(&region), more).await;
}

#[tokio::test]
async fn a_reset_makes_the_key_fresh_and_a_peek_shows_what_the_region_holds() {
    if no_server() {
        return;
    }
    let (home, server) = (RedisServer::start(), RedisServer::start());
    let region = Region::new("eu", &server.url(), &home.url(), Durability::Trust);
    drain(std::slice::from_ref(&region)).await;
    assert!(!region.check().await);
    let state = region.limiter.peek("acme").await.expect("a look");
    assert_eq!(state.state("all").expect("the policy").remaining(), 0);
    region
        .limiter
        .reset(&Key::new("acme"))
        .await
        .expect("a reset");
    assert!(region.check().await);
}
