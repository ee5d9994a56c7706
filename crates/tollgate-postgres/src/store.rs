use std::{fmt, num::NonZeroUsize, time::Duration};

use tollgate::{
    Decision, Error, Store,
    store::{Check, CheckFuture, KeyValue, KeyValueStore, StoreFuture},
};

use crate::{Durability, database::Database};

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
    /// [`Outage`](tollgate::Outage) of the limiter then decides all checks at once, until the
    /// server answers a background probe.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.0.is_available()
    }

    /// Returns what decides, for tests of the project. Not covered by semantic versioning.
    #[doc(hidden)]
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

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("table", &self.0.backend().table())
            .finish_non_exhaustive()
    }
}
