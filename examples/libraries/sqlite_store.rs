//! Keeps counts in a SQLite file: a store of your own, made of two functions that read and write
//! bytes.
//!
//! ```text
//! cargo run --example sqlite_store
//! for i in $(seq 8); do curl -s -o /dev/null -w '%{http_code} ' -H 'X-Customer: acme' http://127.0.0.1:3000/; done
//! ```
//!
//! Each customer has five requests a day, `AMOUNT` changes that. Stop the program in any way, start
//! it again, and ask: the spent requests are still spent. Several programs on one machine may count
//! in the same file, which `FILE` names.
//!
//! Features: the defaults of `tollgate` and `tollgate-tower`.

use std::{
    env,
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{Router, routing::get};
use rusqlite::{
    Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params,
};
use tokio::task::spawn_blocking;
use tollgate::{
    Error, ErrorKind, Limiter, Policy, Quota,
    store::{Change, KeyValue, KeyValueStore, Snapshot},
};
use tollgate_examples::{Failure, listen, serve};
use tollgate_tower::{RateLimitLayer, key::Header};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS states (
         key BLOB PRIMARY KEY, value BLOB NOT NULL, expires_ms INTEGER NOT NULL
     ) WITHOUT ROWID;
     CREATE INDEX IF NOT EXISTS expiry ON states (expires_ms);";

/// A file with one table of keys and values.
#[derive(Clone)]
struct Sqlite(Arc<Mutex<Connection>>);

impl Sqlite {
    fn open(path: &str) -> rusqlite::Result<Self> {
        let file = Connection::open(path)?;
        // With a log, a write waits for the disk once. A program that is killed loses nothing then,
        // and a machine that loses its power the last moments: set `synchronous` to FULL where that
        // matters.
        file.pragma_update(None, "journal_mode", "WAL")?;
        file.pragma_update(None, "synchronous", "NORMAL")?;
        file.busy_timeout(Duration::from_secs(5))?;
        file.execute_batch(TABLE)?;
        Ok(Self(Arc::new(Mutex::new(file))))
    }

    /// Runs a transaction on a thread that may wait for the disk.
    async fn run<T: Send + 'static>(
        &self,
        behavior: TransactionBehavior,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let file = Arc::clone(&self.0);
        let work = move || {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            let transaction = file.transaction_with_behavior(behavior)?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        };
        let done = spawn_blocking(work).await.map_err(|lost| {
            Error::with_source(
                ErrorKind::Unavailable,
                "the thread of the file was lost",
                lost,
            )
        })?;
        done.map_err(|error: rusqlite::Error| {
            let kind = match error.sqlite_error_code() {
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => ErrorKind::Busy,
                Some(ErrorCode::ReadOnly) => ErrorKind::ReadOnly,
                Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure) => ErrorKind::WritesDisabled,
                _ => ErrorKind::Unavailable,
            };
            Error::with_source(kind, "the file of the counts cannot be used", error)
        })
    }
}

fn value(file: &Transaction<'_>, key: &[u8]) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut select = file.prepare_cached("SELECT value FROM states WHERE key = ?1")?;
    select.query_row([key], |row| row.get(0)).optional()
}

impl KeyValue for Sqlite {
    /// What was read: another program may write to the file before we do.
    type Read = Vec<(Vec<u8>, Option<Vec<u8>>)>;

    async fn read(&self, keys: &[Vec<u8>]) -> Result<Snapshot<Self::Read>, Error> {
        let keys = keys.to_vec();
        self.run(TransactionBehavior::Deferred, move |file| {
            let values = keys
                .iter()
                .map(|key| value(file, key))
                .collect::<Result<Vec<_>, _>>()?;
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            Ok(Snapshot {
                now_us: now.as_micros() as u64,
                values: values.clone(),
                read: keys.into_iter().zip(values).collect(),
            })
        })
        .await
    }

    async fn write(&self, read: Self::Read, changes: Vec<Change>) -> Result<Vec<bool>, Error> {
        self.run(TransactionBehavior::Immediate, move |file| {
            let mut put = file.prepare_cached("REPLACE INTO states VALUES (?1, ?2, ?3)")?;
            let mut remove = file.prepare_cached("DELETE FROM states WHERE key = ?1")?;
            let mut written = Vec::new();
            for Change { keys, writes, .. } in changes {
                let mut is_same = true;
                for (key, before) in keys.into_iter().map(|at| &read[at]) {
                    is_same &= value(file, key)? == *before;
                }
                written.push(is_same);
                for write in writes.into_iter().filter(|_| is_same) {
                    match write.value {
                        Some(value) => {
                            put.execute(params![write.key, value, write.expires_ms as i64])?
                        }
                        None => remove.execute([write.key])?,
                    };
                }
            }
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            file.prepare_cached("DELETE FROM states WHERE expires_ms < ?1")?
                .execute([now.as_millis() as i64])?;
            Ok(written)
        })
        .await
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let path = env::var("FILE").unwrap_or_else(|_| "counts.sqlite".into());
    let amount = env::var("AMOUNT").map_or(Ok(5), |amount| amount.parse())?;
    // One transaction writes to the file at a time, so one batch is under way at a time.
    let store = KeyValueStore::with_lanes(Sqlite::open(&path)?, NonZeroUsize::MIN);
    let requests = Policy::token_bucket("requests", Quota::per_day(amount));
    // A disk that is busy for a moment is no outage.
    let limiter = Limiter::builder(store)
        .policies(requests)
        .deadline(Duration::from_secs(5))
        .build();
    let router = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::builder(limiter, Header::new("x-customer")).build());

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("Listening on {url}: {amount} requests a day for each X-Customer, counted in {path}.");
    println!("Try:");
    println!(
        "  for i in $(seq 8); do curl -s -o /dev/null -w '%{{http_code}} ' -H 'X-Customer: acme' {url}/; done"
    );
    serve(listener, router).await
}
