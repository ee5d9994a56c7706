//! The store that users hold: a thin face over the adapter of the core, with what operators and
//! migrations need.
//! Options are in `builder.rs`. What reaches the server is in `database.rs`.

use std::{num::NonZeroUsize, time::Duration};

use tollgate_core::{
    Decision, Error, Store,
    store::{Check, CheckFuture, StoreFuture},
};
use tollgate_remote::{KeyValue, KeyValueStore};

use crate::{
    database::Database,
    table::{Durability, Row},
};

/// Stores state in a table of PostgreSQL, so that all replicas of a service spend from the same
/// quota.
///
/// Checks of a process that wait at the same time are decided together, in two round trips: one
/// statement reads, one writes if nothing has changed. Denials write nothing. The server's clock
/// decides. Clones share the connections.
#[derive(Clone)]
pub struct PostgresStore(KeyValueStore<Database>);

impl PostgresStore {
    pub(crate) fn new(database: Database, lanes: NonZeroUsize, deny_cache_cap: Duration) -> Self {
        Self(KeyValueStore::shared(database, lanes, deny_cache_cap))
    }

    /// Returns whether checks are sent to the server.
    ///
    /// After three consecutive timeouts, or a failed connect, the circuit breaker opens. The
    /// [`Outage`](tollgate_core::Outage) of the limiter then decides all checks at once, until the
    /// server answers a background probe.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.0.is_available()
    }

    /// Returns the adapter of the core, which decides over the table: for code that takes a
    /// [`KeyValueStore`] of any database.
    ///
    /// ```
    /// use tollgate::store::{KeyValue, KeyValueStore};
    /// use tollgate_postgres::PostgresStore;
    ///
    /// fn is_away<K: KeyValue>(store: &KeyValueStore<K>) -> bool {
    ///     !store.is_available()
    /// }
    ///
    /// let store = PostgresStore::open("postgres://app@127.0.0.1/shop")?;
    /// assert!(!is_away(store.adapter()));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn adapter(&self) -> &KeyValueStore<impl KeyValue + use<>> {
        &self.0
    }

    /// Creates the table if there is none, as a migration would by the SQL of
    /// [`schema`](crate::schema).
    ///
    /// # Errors
    ///
    /// When the server does not answer, the user may create no table, or there is another one.
    pub async fn create_table(&self, durability: Durability) -> Result<(), Error> {
        self.0.backend().create(durability).await
    }

    /// Returns up to `most` rows whose keys begin with `begin` and come after the key `after`, in
    /// the order of the keys, and the server's time in microseconds since the Unix epoch.
    ///
    /// It is for the programs of operators. `StoredState` reads the values. One that has expired
    /// stays for a while, and equals a fresh state.
    ///
    /// ```no_run
    /// # async fn run(store: tollgate_postgres::PostgresStore) -> Result<(), tollgate::Error> {
    /// let (now_us, rows) = store.rows(b"{acme}", b"", 100).await?;
    /// let spent = rows.iter().filter(|row| row.expires_ms > now_us / 1_000);
    /// println!("acme has {} states", spent.count());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As those of [`ping`](Self::ping).
    pub async fn rows(
        &self,
        begin: &[u8],
        after: &[u8],
        most: u32,
    ) -> Result<(u64, Vec<Row>), Error> {
        // The key that follows another one, and the one that follows all with a beginning.
        let next = [after, &[0]].concat();
        let mut before = begin.to_vec();
        while before.pop_if(|last| *last == u8::MAX).is_some() {}
        match before.last_mut() {
            Some(last) => *last += 1,
            None => before.push(u8::MAX),
        }
        let from = if after.is_empty() { begin } else { &next };
        self.0.backend().rows(from.max(begin), &before, most).await
    }

    /// Sets a value that does not expire, as the shares that operators set, or removes the row of a
    /// key, which is then fresh.
    ///
    /// # Errors
    ///
    /// As those of [`ping`](Self::ping).
    pub async fn replace(&self, key: &[u8], value: Option<&[u8]>) -> Result<(), Error> {
        self.0.backend().replace(key, value).await
    }

    /// Waits until the server has answered, and the table was found.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached, or refuses the user; when it is a standby; and when the
    /// table is missing, or has another version.
    pub async fn ping(&self) -> Result<(), Error> {
        self.0.backend().ping().await
    }
}

impl Store for PostgresStore {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        self.0.check(check)
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.0.refund(check, decision)
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.0.reset(check)
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&self.0)
    }
}

tollgate_core::debug_fields! { PostgresStore: table = .0.backend().table(), .. }
