//! Rows: PostgreSQL as the store.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use deadpool_postgres::{Manager, Pool, Runtime};
use tokio::time::sleep;
use tokio_postgres::{Client, NoTls};
use tollgate::{Limiter, Store};
use tollgate_postgres::{Durability, PostgresStore, PostgresStoreBuilder};
use tollgate_test_support::{POSTGRES, client, new_table, patient_limiter, remaining};
use tollgate_tests::PostgresServer;

use super::Pace;
use crate::{
    findings::Findings,
    load::{AMOUNT, LARGE, Load, Sample, blocking, decides, millis, quantile, sample, until},
};

/// A check is two trips and a commit, on a machine that all rows share. It takes 20 ms more at most.
const DEADLINE: Duration = Duration::from_millis(100);

/// Ends all sessions of the store.
const END: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE application_name = 'tollgate'";

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

/// Raises a fault under load, and ends it. What is spent is what callers were told, and units of
/// checks that the store did not decide. `reason` is that of some of them, if it is known.
async fn raise<T>(
    store: PostgresStore,
    reason: Option<&str>,
    begin: impl AsyncFnOnce() -> T,
    end: impl AsyncFnOnce(&mut T),
) -> Findings {
    let mut findings = Findings::default();
    let large = limiter(store.clone());
    decides(&large, "acme").await;
    let load = Load::start(&large, 4, ["acme".into()]);
    sleep(Duration::from_millis(300)).await;
    let mut fault = begin().await;
    end(&mut fault).await;
    let over = Instant::now();
    let after = millis(decides(&large, "acme").await - over);
    let samples = load.end_answered().await;
    let patient = patient_limiter(store, LARGE);
    until("the store to decide", async || {
        patient.peek("acme").await.is_ok()
    })
    .await;
    let spent = AMOUNT - remaining(&patient, "acme").await;
    let is_given = |it: &&Sample| it.reason.is_none();
    let given = samples.iter().filter(is_given).count() as u64;
    assert!(
        (1..=spent).contains(&given),
        "{given} are given, {spent} spent"
    );
    assert!(
        spent <= samples.len() as u64,
        "{spent} are spent by fewer checks"
    );
    let is_named = reason.is_none_or(|word| samples.iter().any(|it| it.reason == Some(word)));
    assert!(is_named, "no check fails by {reason:?}");
    findings.at_most(1_500.0, "from its end to the first decision", after, "ms");
    findings.at_most(120.0, "longest check", quantile(&samples, 1.0), "ms");
    findings
}

/// Raises a fault on a table by SQL, and ends it by SQL a moment later.
async fn raise_by(table: &str, begin: &str, end: &str) -> Findings {
    let store = builder(&POSTGRES).table(table).connect().await;
    let sql = client(&POSTGRES).await;
    let begin = async || {
        sql.batch_execute(begin).await.expect(begin);
        sleep(Duration::from_millis(600)).await;
    };
    let end = async |_: &mut ()| sql.batch_execute(end).await.expect(end);
    raise(store.expect("a store"), None, begin, end).await
}

pub(super) async fn killed(_: Pace) -> Findings {
    let server = Arc::new(PostgresServer::start());
    let store = builder(&server).connect().await.expect("a store");
    let restart = async || {
        let server = Arc::clone(&server);
        blocking(move || server.restart()).await;
    };
    raise(store, None, restart, async |_: &mut ()| {}).await
}

pub(super) async fn promoted(_: Pace) -> Findings {
    let primary = PostgresServer::start();
    let sql = client(&primary).await;
    let table = builder(&primary).table("counts").connect().await;
    table.expect("a table");
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
    let promote = async || {
        blocking(move || {
            primary.kill();
            standby.promote();
            (primary, standby)
        })
        .await
    };
    let end = async |(_, standby): &mut (PostgresServer, PostgresServer)| {
        synchronous(&client(standby).await, "").await;
    };
    raise(store, None, promote, end).await
}

async fn synchronous(client: &Client, names: &str) {
    let set = format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'");
    for sql in [&*set, "SELECT pg_reload_conf()"] {
        client.batch_execute(sql).await.expect(sql);
    }
}

pub(super) async fn locked(_: Pace) -> Findings {
    let table = new_table();
    let begin = format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
    raise_by(&table, &begin, "COMMIT").await
}

pub(super) async fn ended(_: Pace) -> Findings {
    raise_by(&new_table(), END, END).await
}

pub(super) async fn conflicts(_: Pace) -> Findings {
    let table = new_table();
    // The role's isolation makes conflicts with the lock.
    let begin = format!(
        "ALTER ROLE postgres SET default_transaction_isolation = 'serializable'; {END}; \
         BEGIN; LOCK TABLE {table} IN EXCLUSIVE MODE; SELECT pg_sleep(0.1); COMMIT"
    );
    let end = "ALTER ROLE postgres RESET default_transaction_isolation";
    raise_by(&table, &begin, end).await
}

/// Returns a store over a pool as an application has it, whose role has these settings.
async fn over_pool(table: &str, settings: &[&str]) -> PostgresStore {
    let (role, sql) = (new_table(), client(&POSTGRES).await);
    let create = format!("CREATE ROLE {role} SUPERUSER LOGIN");
    sql.batch_execute(&create).await.expect("a role");
    for setting in settings {
        let alter = format!("ALTER ROLE {role} SET {setting}");
        sql.batch_execute(&alter).await.expect("a setting");
    }
    let url = POSTGRES.url().replacen("postgres@", &format!("{role}@"), 1);
    let manager = Manager::new(url.parse().expect("a URL"), NoTls);
    let pool = Pool::builder(manager).max_size(5).runtime(Runtime::Tokio1);
    let pool = pool.wait_timeout(Some(Duration::from_millis(30)));
    let store = PostgresStore::over(pool.build().expect("a pool")).table(table);
    let store = store.create(Durability::Logged).connect().await;
    store.expect("a store")
}

/// The role cancels what takes long, and another program holds the rows.
pub(super) async fn cancelled(_: Pace) -> Findings {
    let table = new_table();
    let store = over_pool(&table, &["statement_timeout = '30ms'"]).await;
    let sql = client(&POSTGRES).await;
    let hold = format!("BEGIN; SELECT FROM {table} FOR UPDATE");
    let begin = async || {
        sql.batch_execute(&hold).await.expect("locks");
        sleep(Duration::from_millis(600)).await;
    };
    let end = async |_: &mut ()| sql.batch_execute("COMMIT").await.expect("the end");
    raise(store, Some("timeout"), begin, end).await
}

/// The server ends sessions that rest for a moment, in a transaction or not. Each key is new, so
/// each check is a transaction of several statements.
pub(super) async fn idle(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let ends = [
        "idle_session_timeout = '30ms'",
        "idle_in_transaction_session_timeout = '10ms'",
    ];
    let store = over_pool(&new_table(), &ends).await;
    let (large, patient) = (limiter(store.clone()), patient_limiter(store, LARGE));
    let (mut undecided, checks) = (0, pace.of(60_u64, 15));
    for key in 0..checks {
        sleep(Duration::from_millis(100)).await;
        let is_given = sample(&large, key).await.reason.is_none();
        undecided += u64::from(!is_given);
        let spent = AMOUNT - remaining(&patient, key).await;
        assert!(
            (u64::from(is_given)..=1).contains(&spent),
            "{spent} are spent"
        );
    }
    let asked = format!("checks without a decision, of {checks}");
    findings.at_most(1.0, asked, undecided as f64, "");
    findings
}

/// Other programs use all connections of the server, and those of the store are ended.
pub(super) async fn crowded(_: Pace) -> Findings {
    let settings = "max_connections = 12\nsuperuser_reserved_connections = 0";
    let server = PostgresServer::start_with(settings);
    let store = builder(&server).connect().await.expect("a store");
    let (sql, url) = (client(&server).await, server.url());
    let fill = async || {
        let mut others: Vec<Client> = Vec::new();
        loop {
            while let Ok((client, connection)) = tokio_postgres::connect(&url, NoTls).await {
                tokio::spawn(connection);
                others.push(client);
            }
            if sql.query(END, &[]).await.expect("an answer").is_empty() {
                break;
            }
        }
        sleep(Duration::from_millis(600)).await;
        others
    };
    raise(
        store,
        Some("maxclients"),
        fill,
        async |others: &mut Vec<Client>| others.clear(),
    )
    .await
}
