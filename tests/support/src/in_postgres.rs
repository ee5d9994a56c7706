//! The adapter over a table of PostgreSQL.

use std::{
    num::NonZeroUsize,
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls};
use tollgate::{
    Policy, Quota,
    store::{Clock, KeyValue},
};
use tollgate_postgres::{Durability, PostgresStore};
use tollgate_tests::{PostgresServer, wait};

use crate::{Adapted, Bytes, PATIENCE, START_US, Stored, patient_limiter};

/// One server for all tests of a program, which ends with it. Each test has tables of its own.
pub static POSTGRES: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::start);

/// Returns the name of a table that no other test has.
#[must_use]
pub fn new_table() -> String {
    static TABLES: AtomicU32 = AtomicU32::new(0);
    format!("counts_{}", TABLES.fetch_add(1, Ordering::Relaxed))
}

/// Returns a store on a new table of a server, on this clock.
///
/// # Panics
///
/// When the server does not answer.
#[must_use]
pub fn in_postgres(server: &PostgresServer, clock: Clock) -> Adapted<impl KeyValue + use<>, Rows> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let table = new_table();
    let store = PostgresStore::builder(server.url())
        .table(&table)
        .create(Durability::Unlogged)
        .connections(NonZeroUsize::MIN)
        .deny_cache_cap(Duration::ZERO)
        .clock(clock.clone());
    // The clock of a test goes back, to a time at which a row that was removed had not expired.
    let keep = format!("CREATE RULE kept AS ON DELETE TO {table} DO INSTEAD NOTHING");
    let (store, client) = runtime.block_on(async {
        let store = store.connect().await.expect("the server answers");
        let client = client(server).await;
        client.batch_execute(&keep).await.expect(&keep);
        (store, client)
    });
    let rows = Rows { client, table };
    Adapted::over(store.adapter().clone(), rows, clock, runtime)
}

/// Connects to a server.
///
/// # Panics
///
/// When it does not answer.
pub async fn client(server: &PostgresServer) -> Client {
    let connected = tokio_postgres::connect(&server.url(), NoTls).await;
    let (client, connection) = connected.expect("the server answers");
    tokio::spawn(connection);
    client
}

/// The rows of a table.
#[derive(Debug)]
pub struct Rows {
    client: Client,
    table: String,
}

impl Rows {
    /// Empties the table.
    ///
    /// # Panics
    ///
    /// When the server does not answer.
    pub fn clear(&self, runtime: &Runtime) {
        let text = format!("TRUNCATE {}", self.table);
        runtime
            .block_on(self.client.batch_execute(&text))
            .expect("the server answers");
    }
}

impl Bytes for Rows {
    fn stored(&self, key: &[u8], runtime: &Runtime) -> Option<Stored> {
        let text = format!(
            "SELECT value, expires_ms FROM {} WHERE key = $1 AND value <> ''",
            self.table
        );
        let row = runtime
            .block_on(self.client.query_opt(&text, &[&key]))
            .expect("the server answers")?;
        Some(Stored {
            value: row.get(0),
            expires_ms: row.get::<_, i64>(1) as u64,
        })
    }
}

/// Says what many minutes of checks leave of a table.
#[derive(Debug)]
pub struct Churned {
    /// The rows at the end.
    pub rows: i64,
    /// The bytes of the table and its indexes after each minute.
    pub bytes: Vec<i64>,
    /// The share of updates that touched no index.
    pub hot: f64,
}

const CALLERS: u64 = 64;

/// Makes so many checks for each minute, as fast as the server decides them, on a clock that goes
/// with them. Nine of ten are by keys that come five times a minute. The others are by keys that
/// come once, expire and are removed. `each_minute` is SQL on the table, as `VACUUM`.
///
/// # Panics
///
/// When the server does not answer.
pub async fn churn(
    server: &PostgresServer,
    minutes: u64,
    checks: u64,
    each_minute: Option<&str>,
) -> Churned {
    let steady = checks / 6;
    let (clock, table, sql) = (Clock::manual(START_US), new_table(), client(server).await);
    let store = PostgresStore::builder(format!("{}&application_name={table}", server.url()))
        .table(&table)
        .create(Durability::Logged)
        .clock(clock.clone());
    let store = store.connect().await.expect("the server answers");
    let window = Policy::fixed_window("api", Quota::per_minute(1_000_000));
    let limiter = patient_limiter(store, window);
    let size = format!("SELECT pg_total_relation_size('{table}')");
    let mut bytes = Vec::new();
    for minute in 0..minutes {
        let caller = |caller: u64| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                for at in (caller..checks).step_by(CALLERS as usize) {
                    let key = match at % 10 {
                        0 => steady + minute * checks + at,
                        _ => (at * 7_919) % steady,
                    };
                    let _ = limiter.check(key).await.expect("a decision");
                }
            })
        };
        let callers: Vec<_> = (0..CALLERS).map(caller).collect();
        for caller in callers {
            caller.await.expect("a task");
        }
        clock.advance(Duration::from_secs(60));
        if let Some(each_minute) = each_minute {
            let text = format!("{each_minute} {table}");
            sql.batch_execute(&text).await.expect(&text);
        }
        bytes.push(sql.query_one(&size, &[]).await.expect("a size").get(0));
    }
    drop(limiter);
    // A process of the server has reported all that it did when it has ended.
    let ended = format!(
        "SELECT (SELECT count(*) FROM pg_stat_activity WHERE application_name = '{table}') = 0 AND n_tup_upd > 0, \
         n_tup_hot_upd::float8 / greatest(n_tup_upd, 1), (SELECT count(*) FROM {table}) \
         FROM pg_stat_user_tables WHERE relname = '{table}'"
    );
    let mut left = None;
    wait::until_async("the connections to end", PATIENCE, async || {
        let row = sql.query_one(&ended, &[]).await.expect("an answer");
        left = Some((row.get(1), row.get(2)));
        row.get(0)
    })
    .await;
    let (hot, rows) = left.expect("it has ended");
    Churned { rows, bytes, hot }
}
