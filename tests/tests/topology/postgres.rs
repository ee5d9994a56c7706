//! PostgreSQL with a synchronous standby: the primary is killed under load, the standby is promoted,
//! and no unit is given twice.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::task::spawn_blocking;
use tollgate::{Limiter, Outage, Policy, Quota};
use tollgate_postgres::{Durability, PostgresStore};
use tollgate_test_support::{PATIENCE, client, patient_limiter, stream};
use tollgate_tests::{PostgresServer, wait};

const AMOUNT: u64 = 1_000_000;
const CALLERS: u64 = 32;
/// In a full run. Each round has a primary and a standby of its own.
const ROUNDS: u64 = 3;

/// The units that are given before the primary is killed.
const BEFORE_KILL: u64 = 300;

#[derive(Default)]
struct Counts {
    given: AtomicU64,
    unknown: AtomicU64,
    ends: AtomicBool,
}

async fn spend(limiter: Limiter, counts: Arc<Counts>) {
    while !counts.ends.load(Ordering::SeqCst) {
        match limiter.check("hot").await {
            Ok(decision) if decision.is_allowed() => counts.given.fetch_add(1, Ordering::SeqCst),
            Ok(_) => panic!("the quota is not spent"),
            // It may have been charged.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(1)).await;
                counts.unknown.fetch_add(1, Ordering::SeqCst)
            }
        };
    }
}

async fn until_given(counts: &Counts, count: u64) {
    wait::until_async("units to be given", PATIENCE, async || {
        counts.given.load(Ordering::SeqCst) >= count
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_survives_the_loss_of_the_primary_where_a_standby_is_synchronous() {
    for round in 0..stream::part_of(ROUNDS) {
        let primary = PostgresServer::start();
        let sql = client(&primary).await;
        let table = "counts";
        let url = primary.url();
        let maker = PostgresStore::builder(url)
            .table(table)
            .create(Durability::Logged);
        maker.connect().await.expect("a table");
        let standby = primary.standby();
        for setting in [
            "ALTER SYSTEM SET synchronous_standby_names = 'standby'",
            "SELECT pg_reload_conf()",
        ] {
            sql.batch_execute(setting).await.expect(setting);
        }
        wait::until_async("the standby to be synchronous", PATIENCE, async || {
            let rows = sql
                .query(
                    "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'",
                    &[],
                )
                .await;
            rows.is_ok_and(|rows| rows.len() == 1)
        })
        .await;

        // The store knows both, and uses the one that accepts writes.
        let url = format!(
            "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?table={table}&connect_timeout=60",
            primary.port(),
            standby.port()
        );
        let store = PostgresStore::connect(url).await.expect("a store");
        let policy = Policy::window_from_first_hit("api", Quota::per_day(AMOUNT));
        let patient = patient_limiter(store.clone(), policy.clone());
        let limiter = Limiter::builder(store)
            .policies(policy)
            .deadline(Duration::from_secs(2))
            .on_outage(Outage::Closed)
            .build();
        let counts = Arc::new(Counts::default());
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| tokio::spawn(spend(limiter.clone(), Arc::clone(&counts))))
            .collect();
        until_given(&counts, BEFORE_KILL).await;
        let servers = spawn_blocking(move || {
            primary.kill();
            standby.promote();
            (primary, standby)
        });
        let servers = servers.await.expect("a promotion");
        // The new primary has no standby: none is waited for.
        let alone = client(&servers.1).await;
        for setting in [
            "ALTER SYSTEM SET synchronous_standby_names = ''",
            "SELECT pg_reload_conf()",
        ] {
            alone.batch_execute(setting).await.expect(setting);
        }
        let after = counts.given.load(Ordering::SeqCst);
        until_given(&counts, after + BEFORE_KILL).await;
        counts.ends.store(true, Ordering::SeqCst);
        for caller in callers {
            caller.await.expect("a caller");
        }
        let (given, unknown) = (
            counts.given.load(Ordering::SeqCst),
            counts.unknown.load(Ordering::SeqCst),
        );
        let mut left = 0;
        wait::until_async("the new primary to answer", PATIENCE, async || {
            let state = patient.peek("hot").await;
            left = state.map_or(0, |state| {
                state.states().map(|state| state.remaining()).sum()
            });
            left > 0
        })
        .await;
        let spent = AMOUNT - left;
        println!("round {round}: {given} given, {unknown} failed, {spent} spent");
        assert!(spent >= given, "{} units were given twice", given - spent);
        assert!(
            spent <= given + unknown,
            "{spent} are spent, {given} given, {unknown} failed"
        );
    }
}
