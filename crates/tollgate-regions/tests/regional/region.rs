//! Regions over real servers, 80 ms from their home, for the tests of what they admit together.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tollgate_core::{Lease, Limiter, Policy, Quota};
use tollgate_regions::{Durability, RegionalStore};
use tollgate_tests::{
    RedisServer,
    proxy::{Mode, Proxy},
};

/// Longer than any machine stands still.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const TRIP: Duration = Duration::from_millis(80);

/// The units of the limit. None accrues while a test runs.
pub(crate) const UNITS: u64 = 2_000;

/// A region: a limiter over its store, and what it has admitted.
#[derive(Clone)]
pub(crate) struct Region {
    pub(crate) limiter: Limiter,
    pub(crate) store: RegionalStore,
    admitted: Arc<AtomicU64>,
}

impl Region {
    /// Opens a region whose limit is [`UNITS`], of which none accrues while a test runs.
    pub(crate) fn new(name: &str, local: &str, home: &str, durability: Durability) -> Self {
        Self::with(name, local, home, durability, policy(Lease::new()))
    }

    /// Opens a region with another policy.
    pub(crate) fn with(
        name: &str,
        local: &str,
        home: &str,
        durability: Durability,
        policy: Policy,
    ) -> Self {
        let store = RegionalStore::builder(local, home)
            .region(name)
            .durability(durability)
            .round_trip(TRIP)
            .build()
            .expect("a store");
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
    pub(crate) async fn check(&self) -> bool {
        let decision = self.limiter.check("acme").await.expect("no outage");
        assert!(!decision.is_degraded(), "{decision:?}");
        let is_allowed = decision.is_allowed();
        self.admitted.fetch_add(u64::from(is_allowed), Relaxed);
        is_allowed
    }

    pub(crate) fn admitted(&self) -> u64 {
        self.admitted.load(Relaxed)
    }
}

pub(crate) fn sum(regions: &[Region]) -> u64 {
    regions.iter().map(Region::admitted).sum()
}

/// Checks in all regions at once until so many units were admitted.
pub(crate) async fn spend(regions: &[Region], units: u64) {
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
pub(crate) async fn drain(regions: &[Region]) {
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
pub(crate) fn assert_bound(regions: &[Region]) {
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

pub(crate) fn delayed(server: &RedisServer) -> Proxy {
    let line = Proxy::start(server.addr());
    line.set(Mode::Delay(TRIP));
    line
}

/// Returns the limit of [`UNITS`], with half of it in regions, on these terms.
pub(crate) fn policy(terms: Lease) -> Policy {
    let year = Duration::from_secs(365 * 86_400);
    Policy::token_bucket("all", Quota::new(UNITS, year)).leased(terms.share(2))
}

/// Returns the only key with this end that a server has, and its value.
pub(crate) fn stored(server: &RedisServer, end: &str) -> Option<Vec<u8>> {
    let names = server.command(&["KEYS", &format!("*:{end}")]);
    let name = names.items().first()?.text();
    Some(server.command(&["GET", &name]).bytes().to_vec())
}

/// Lets a server copy another one, and waits until it has.
pub(crate) fn copy(server: &RedisServer, of: &RedisServer) {
    server.command(&["REPLICAOF", "127.0.0.1", &of.port().to_string()]);
    let is_copied = || {
        let link = server.info("replication");
        link.get("master_link_status").is_some_and(|it| it == "up")
    };
    tollgate_tests::wait::until("a copy", PATIENCE, is_copied);
}
