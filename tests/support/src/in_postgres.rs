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
use tollgate::store::{Clock, KeyValue};
use tollgate_postgres::{Durability, PostgresStore};
use tollgate_tests::PostgresServer;

use crate::{Adapted, Bytes, START_US, Stored};

/// One server for all tests of a program, which ends with it. Each test has tables of its own.
pub static POSTGRES: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::start);

/// Returns the name of a table that no other test has.
#[must_use]
pub fn new_table() -> String {
    static TABLES: AtomicU32 = AtomicU32::new(0);
    format!("counts_{}", TABLES.fetch_add(1, Ordering::Relaxed))
}

/// Returns a store on a new table of a server, on a clock that the test moves.
///
/// # Panics
///
/// When the server does not answer.
#[must_use]
pub fn in_postgres(server: &PostgresServer) -> Adapted<impl KeyValue, Rows> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let (clock, table) = (Clock::manual(START_US), new_table());
    let store = PostgresStore::builder(server.url())
        .table(&table)
        .create(Durability::Unlogged)
        .connections(NonZeroUsize::MIN)
        .deny_cache_cap(Duration::ZERO)
        .clock(clock.clone());
    let (store, client) = runtime.block_on(async {
        let store = store.connect().await.expect("the server answers");
        (store, client(server).await)
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
        let text = format!("DELETE FROM {}", self.table);
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
