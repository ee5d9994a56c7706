//! Rows: PostgreSQL as the store.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use deadpool_postgres::{Manager, Pool, Runtime};
use tokio::task::spawn_blocking;
use tokio_postgres::{Client, NoTls};
use tollgate::{Limiter, Outage, Store};
use tollgate_postgres::{Durability, PostgresStore, PostgresStoreBuilder};
use tollgate_test_support::{POSTGRES, churn, client, new_table, patient_limiter, remaining};
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

/// Raises a fault under load, and ends it.
async fn raised<T>(
    findings: &mut Findings,
    store: PostgresStore,
    begin: impl AsyncFnOnce() -> T,
    end: impl AsyncFnOnce(T),
) -> Vec<Sample> {
    let large = limiter(store.clone());
    decides(&large, "acme").await;
    let load = Load::start(&large, 4, ["acme".into()]);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let fault = begin().await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    end(fault).await;
    let over = Instant::now();
    let added = millis(decides(&large, "acme").await - over);
    findings
        .figure("from its end to the first decision", added, " ms")
        .at_most(1_200.0);
    let samples = load.end().await;
    charged(findings, &store, &samples).await;
    samples
}

/// Raises a fault on a table by SQL, and ends it by SQL.
async fn raised_by(findings: &mut Findings, table: &str, begin: &str, end: &str) {
    let store = builder(&POSTGRES).table(table).connect().await;
    let sql = client(&POSTGRES).await;
    raised(
        findings,
        store.expect("a store"),
        async || sql.batch_execute(begin).await.expect(begin),
        async |()| sql.batch_execute(end).await.expect(end),
    )
    .await;
}

/// Shows that checks failed for this reason.
fn reasons(findings: &mut Findings, samples: &[Sample], word: &str) {
    let those = samples.iter().filter(|it| it.reason == Some(word)).count();
    findings
        .figure(
            format!("checks without a decision: {word}"),
            those as f64,
            "",
        )
        .at_least(1.0);
}

/// Returns a pool as an application has it, whose role has these settings.
async fn pool(settings: &[&str], size: usize) -> Pool {
    let (role, sql) = (new_table(), client(&POSTGRES).await);
    let create = format!("CREATE ROLE {role} SUPERUSER LOGIN");
    sql.batch_execute(&create).await.expect("a role");
    for setting in settings {
        let alter = format!("ALTER ROLE {role} SET {setting}");
        sql.batch_execute(&alter).await.expect("a setting");
    }
    let url = POSTGRES.url().replacen("postgres@", &format!("{role}@"), 1);
    let manager = Manager::new(url.parse().expect("a URL"), NoTls);
    let pool = Pool::builder(manager)
        .max_size(size)
        .runtime(Runtime::Tokio1);
    let pool = pool.wait_timeout(Some(Duration::from_millis(30)));
    pool.build().expect("a pool")
}

async fn over(pool: &Pool, table: &str) -> PostgresStore {
    let store = PostgresStore::over(pool.clone()).table(table);
    let store = store.create(Durability::Logged).connect().await;
    store.expect("a store")
}

/// The role of a pool of the application cancels what takes long, and another program holds the
/// rows.
pub(super) async fn cancelled(_: Pace) -> Findings {
    let (mut findings, table) = (Findings::default(), new_table());
    let pool = pool(&["statement_timeout = '30ms'"], 5).await;
    let (store, sql) = (over(&pool, &table).await, client(&POSTGRES).await);
    let begin = format!("BEGIN; SELECT FROM {table} FOR UPDATE");
    let samples = raised(
        &mut findings,
        store,
        async || sql.batch_execute(&begin).await.expect("locks"),
        async |()| sql.batch_execute("COMMIT").await.expect("the end"),
    )
    .await;
    reasons(&mut findings, &samples, "timeout");
    findings
}

/// The server ends sessions that rest for a moment, in a transaction or not. Each key is new, so
/// each check is a transaction of several statements.
pub(super) async fn idle(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let ends = [
        "idle_session_timeout = '30ms'",
        "idle_in_transaction_session_timeout = '10ms'",
    ];
    let pool = pool(&ends, 5).await;
    let store = over(&pool, &new_table()).await;
    let large = limiter(store.clone());
    let (mut samples, mut spent) = (Vec::new(), 0);
    for key in 0..pace.of(60_u64, 15) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        samples.push(sample(&large, key).await);
        spent += AMOUNT - remaining(&patient_limiter(store.clone(), LARGE), key).await;
    }
    let given = samples.iter().filter(|it| it.reason.is_none()).count();
    findings
        .figure(
            "checks without a decision",
            (samples.len() - given) as f64,
            "",
        )
        .at_most(1.0);
    findings
        .figure(
            "units beyond those that were given",
            spent as f64 - given as f64,
            "",
        )
        .at_most((samples.len() - given) as f64);
    findings
}

/// The application uses all connections of a pool that the store shares.
pub(super) async fn full(_: Pace) -> Findings {
    let mut findings = Findings::default();
    let pool = pool(&[], 3).await;
    let store = over(&pool, &new_table()).await;
    let take = async || {
        let mut taken = Vec::new();
        while taken.len() < 3 {
            taken.extend(pool.get().await);
        }
        taken
    };
    let samples = raised(&mut findings, store, take, async |taken| drop(taken)).await;
    reasons(&mut findings, &samples, "overload");
    findings
}

/// Other programs use all connections of the server, and those of the store are ended.
pub(super) async fn crowded(_: Pace) -> Findings {
    let mut findings = Findings::default();
    let server =
        PostgresServer::start_with("max_connections = 12\nsuperuser_reserved_connections = 0");
    let store = builder(&server).connect().await.expect("a store");
    let (sql, url) = (client(&server).await, server.url());
    let fill = async || {
        let mut others: Vec<Client> = Vec::new();
        loop {
            while let Ok((client, connection)) = tokio_postgres::connect(&url, NoTls).await {
                tokio::spawn(connection);
                others.push(client);
            }
            let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tollgate'";
            if sql.query(end, &[]).await.expect("an answer").is_empty() {
                return others;
            }
        }
    };
    let samples = raised(&mut findings, store, fill, async |others| drop(others)).await;
    reasons(&mut findings, &samples, "maxclients");
    findings
}

/// An hour of a hundred checks a second, on a server that looks for changed tables sixty times as
/// often as usual, because the hour passes so much faster.
pub(super) async fn hour(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let server = PostgresServer::start_with("autovacuum_naptime = 1s");
    let minutes = pace.of(60, 15);
    let began = Instant::now();
    let churned = churn(&server, minutes, 6_000, None).await;
    let took = began.elapsed().as_secs_f64();
    findings.figure("checks", (minutes * 6_000) as f64, "");
    findings.figure("checks a second", (minutes * 6_000) as f64 / took, "");
    findings.figure("rows at the end", churned.rows as f64, "");
    let share = 100.0 * churned.hot;
    findings
        .figure("updates that touch no index", share, " %")
        .at_least(90.0);
    let (early, last) = (
        churned.bytes[minutes as usize / 2] as f64,
        *churned.bytes.last().expect("minutes") as f64,
    );
    findings
        .figure(
            "bytes at the end to those after half of the time",
            last / early,
            " ×",
        )
        .at_most(1.5);
    findings
        .figure(
            "bytes of table and indexes for a row",
            last / churned.rows as f64,
            "",
        )
        .at_most(1_000.0);
    findings
}

pub(super) async fn locked(_: Pace) -> Findings {
    let (mut findings, table) = (Findings::default(), new_table());
    let begin = format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
    raised_by(&mut findings, &table, &begin, "COMMIT").await;
    findings
}

pub(super) async fn ended(_: Pace) -> Findings {
    let (mut findings, table) = (Findings::default(), new_table());
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tollgate'";
    raised_by(&mut findings, &table, end, end).await;
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
    raised_by(
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
