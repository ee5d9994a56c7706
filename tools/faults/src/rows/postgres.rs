//! Rows: PostgreSQL as the store.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::spawn_blocking;
use tollgate::{Limiter, Outage, Store};
use tollgate_postgres::{Durability, PostgresStore, PostgresStoreBuilder};
use tollgate_test_support::{POSTGRES, client, new_table, patient_limiter, remaining};
use tollgate_tests::PostgresServer;

use crate::{
    findings::Findings,
    load::{AMOUNT, LARGE, Load, Sample, decides, millis, quantile, sample, until},
    pace::Pace,
};

/// A check is two trips and a commit, on a machine that all rows share. It takes 20 ms more at most.
const DEADLINE: Duration = Duration::from_millis(100);

fn builder(server: &PostgresServer) -> PostgresStoreBuilder {
    PostgresStore::builder(server.url_at(server.addr()))
        .table(new_table())
        .create(Durability::Logged)
}

fn limiter(store: impl Store) -> Limiter {
    Limiter::builder(store)
        .policies(LARGE)
        .deadline(DEADLINE)
        .build()
}

/// Compares what is spent with what callers were told, and shows the longest check.
async fn charged(findings: &mut Findings, store: &PostgresStore, samples: &[Sample]) {
    let large = patient_limiter(store.clone(), LARGE);
    until("the store to decide", async || {
        large.peek("acme").await.is_ok()
    })
    .await;
    let spent = AMOUNT - remaining(&large, "acme").await;
    let given = samples
        .iter()
        .filter(|sample| sample.reason.is_none())
        .count() as u64;
    findings
        .figure("decisions by the store", given as f64, "")
        .at_least(1.0);
    findings
        .figure(
            "units that were given and are not spent",
            given.saturating_sub(spent) as f64,
            "",
        )
        .at_most(0.0);
    let degraded = samples.len() as u64 - given;
    findings
        .figure(
            "units that are spent beyond all checks",
            spent.saturating_sub(given + degraded) as f64,
            "",
        )
        .at_most(0.0);
    findings
        .figure("longest check", quantile(samples, 1.0), " ms")
        .at_most(120.0);
}

pub(super) async fn killed(_: Pace) -> Findings {
    let mut findings = Findings::default();
    let server = Arc::new(PostgresServer::start());
    let store = builder(&server).connect().await.expect("a store");
    let large = limiter(store.clone());
    decides(&large, "acme").await;
    let load = Load::start(&large, 4, ["acme".into()]);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let restarting = Arc::clone(&server);
    let restarted = spawn_blocking(move || restarting.restart());
    restarted.await.expect("it starts");
    let up = Instant::now();
    let added = millis(decides(&large, "acme").await - up);
    findings
        .figure("from its start to the first decision", added, " ms")
        .at_most(1_200.0);
    charged(&mut findings, &store, &load.end().await).await;
    findings
}

pub(super) async fn promoted(_: Pace) -> Findings {
    let mut findings = Findings::default();
    let primary = PostgresServer::start();
    let sql = client(&primary).await;
    builder(&primary)
        .table("counts")
        .connect()
        .await
        .expect("a table");
    let standby = primary.standby();
    synchronous(&sql, "standby").await;
    until("the standby to be synchronous", async || {
        let look = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'";
        sql.query(look, &[]).await.is_ok_and(|rows| rows.len() == 1)
    })
    .await;
    let (one, other) = (primary.port(), standby.port());
    let url =
        format!("postgres://postgres@127.0.0.1:{one},127.0.0.1:{other}/postgres?table=counts");
    let store = PostgresStore::connect(url).await.expect("a store");
    let large = limiter(store.clone());
    decides(&large, "acme").await;
    let load = Load::start(&large, 4, ["acme".into()]);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let promoting = spawn_blocking(move || {
        primary.kill();
        standby.promote();
        (primary, standby)
    });
    let servers = promoting.await.expect("it is promoted");
    let up = Instant::now();
    synchronous(&client(&servers.1).await, "").await;
    let added = millis(decides(&large, "acme").await - up);
    findings
        .figure("from the promotion to the first decision", added, " ms")
        .at_most(1_500.0);
    charged(&mut findings, &store, &load.end().await).await;
    findings
}

async fn synchronous(client: &tokio_postgres::Client, names: &str) {
    let set = format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'");
    for sql in [&*set, "SELECT pg_reload_conf()"] {
        client.batch_execute(sql).await.expect(sql);
    }
}

/// Raises a fault by SQL under load, and ends it by SQL.
async fn raised(findings: &mut Findings, table: &str, begin: &str, end: &str) {
    let store = builder(&POSTGRES)
        .table(table)
        .connect()
        .await
        .expect("a store");
    let large = limiter(store.clone());
    decides(&large, "acme").await;
    let load = Load::start(&large, 4, ["acme".into()]);
    let sql = client(&POSTGRES).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    sql.batch_execute(begin).await.expect(begin);
    tokio::time::sleep(Duration::from_millis(600)).await;
    sql.batch_execute(end).await.expect(end);
    let over = Instant::now();
    let added = millis(decides(&large, "acme").await - over);
    findings
        .figure("from its end to the first decision", added, " ms")
        .at_most(1_200.0);
    charged(findings, &store, &load.end().await).await;
}

pub(super) async fn locked(_: Pace) -> Findings {
    let (mut findings, table) = (Findings::default(), new_table());
    let begin = format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
    raised(&mut findings, &table, &begin, "COMMIT").await;
    findings
}

pub(super) async fn ended(_: Pace) -> Findings {
    let (mut findings, table) = (Findings::default(), new_table());
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tollgate'";
    raised(&mut findings, &table, end, end).await;
    findings
}

pub(super) async fn timeouts(_: Pace) -> Findings {
    let (mut findings, table) = (Findings::default(), new_table());
    // The role's isolation makes conflicts; a timeout of a millisecond cancels what waits for them.
    let begin = format!(
        "ALTER ROLE postgres SET default_transaction_isolation = 'serializable'; \
         SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tollgate'; \
         BEGIN; LOCK TABLE {table} IN EXCLUSIVE MODE; SELECT pg_sleep(0.1); COMMIT"
    );
    raised(
        &mut findings,
        &table,
        &begin,
        "ALTER ROLE postgres RESET default_transaction_isolation",
    )
    .await;
    findings
}

pub(super) async fn refused(_: Pace) -> Findings {
    let mut findings = Findings::default();
    let name = new_table();
    let sql = client(&POSTGRES).await;
    let roles = format!(
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE ROLE {name}_full LOGIN CONNECTION LIMIT 0; CREATE ROLE {name}_reader LOGIN; \
         ALTER ROLE {name}_reader SET default_transaction_read_only = on; CREATE ROLE {name}_weak LOGIN; \
         CREATE TABLE {name}_other (key int); CREATE TABLE {name}_newer (key int); \
         COMMENT ON TABLE {name}_newer IS 'tollgate table version 2'"
    );
    sql.batch_execute(&roles).await.expect("roles");
    let of = |user: &str, table: &str| {
        let url = POSTGRES
            .url_at(POSTGRES.addr())
            .replacen("postgres@", &format!("{user}@"), 1);
        PostgresStore::builder(url).table(table)
    };
    let cases = [
        ("maxclients", of(&format!("{name}_full"), "t")),
        ("readonly", of(&format!("{name}_reader"), "t")),
        ("auth", of("guarded:wrong", "t")),
        (
            "acl",
            of(&format!("{name}_weak"), "t").create(Durability::Logged),
        ),
        ("config", of("postgres", &format!("{name}_missing"))),
        ("config", of("postgres", &format!("{name}_newer"))),
        ("config", of("postgres", &format!("{name}_other"))),
    ];
    let (mut named, mut longest) = (0, 0.0_f64);
    for (word, store) in cases {
        let large = Limiter::builder(store.build().expect("a URL"))
            .policies(LARGE)
            .deadline(Duration::from_secs(1))
            .on_outage(Outage::Open)
            .build();
        let first = sample(&large, "acme").await;
        let second = sample(&large, "acme").await;
        named += usize::from(first.reason == Some(word));
        longest = longest.max(millis(second.took));
    }
    findings
        .figure("refusals with their own word, of 7", named as f64, "")
        .at_least(7.0);
    findings
        .figure("longest check after the first", longest, " ms")
        .at_most(70.0);
    findings
}
