//! The table as a store of bytes: two statements for a batch of calls.
//! The text of the statements is in `table.rs`. Which bytes a state has is decided by the core.

use std::{
    num::NonZeroUsize,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use deadpool_postgres::{Object, Pool};
use futures_util::future::{Either, join4, select, try_join3};
use tokio::{
    sync::{OnceCell, Semaphore, oneshot},
    time::sleep,
};
use tokio_postgres::types::{FromSql, ToSql};
use tollgate_core::{Error, ErrorKind, store::Clock};
use tollgate_remote::{Change, KeyValue, Snapshot, credentials::Provider};

use crate::{
    array::Array,
    error::{is_conflict, lost, lost_statements, not_valid, of_pool, sorted},
    replies::ReplyBound,
    table::{Durability, Row, Table},
};

/// Keeps bytes in a table. Clones share it.
#[derive(Clone)]
pub(crate) struct Database(Arc<Inner>);

struct Inner {
    pool: Pool,
    table: Table,
    /// Creates the table when it is missing.
    creates: Option<Durability>,
    /// The clock that decides instead of the server's.
    clock: Option<Clock>,
    /// Is asked for user and password, where they change.
    provider: Option<Provider>,
    /// Bounds the tasks that make connections.
    makers: Arc<Semaphore>,
    /// The time for which such a task goes on when nobody waits any more: it connects, and then
    /// looks for the table.
    patience: Duration,
    /// The table was found, and has the right version.
    checked: OnceCell<()>,
    /// The minute in which expired rows were removed last.
    swept: AtomicI64,
    /// Held while rows are removed.
    sweeps: Arc<Semaphore>,
    /// The bound of the replies on the connections.
    bound: ReplyBound,
}

/// The most rows that one statement removes.
const SWEPT_AT_ONCE: i64 = 1_000;

/// The most statements by which a process removes rows in a minute. Ten million rows a minute are
/// ten times what a store writes.
const MOST_SWEEPS: u32 = 10_000;

/// The most bytes of the rows that a program of an operator reads at a time.
const MOST_ROWS: usize = 256 * 1024 * 1024;

/// The minutes that a row stays after its expiry at least, so that the index of expiries changes
/// rarely.
const LEAST_SLACK: i64 = 5;

const MS_PER_MINUTE: i64 = 60_000;

/// The number that the lock has under which a table is created: "tollgate".
const CREATION: i64 = 0x746f_6c6c_6761_7465;

impl Database {
    pub(crate) fn new(
        (pool, bound): (Pool, ReplyBound),
        table: Table,
        creates: Option<Durability>,
        clock: Option<Clock>,
        provider: Option<Provider>,
        connections: NonZeroUsize,
        connect_timeout: Duration,
    ) -> Self {
        Self(Arc::new(Inner {
            pool,
            table,
            creates,
            clock,
            provider,
            makers: Arc::new(Semaphore::new(connections.get() + 1)),
            patience: connect_timeout.saturating_mul(2),
            checked: OnceCell::new(),
            swept: AtomicI64::new(0),
            sweeps: Arc::new(Semaphore::new(1)),
            bound,
        }))
    }

    pub(crate) fn table(&self) -> &str {
        &self.0.table.name
    }

    /// Takes a connection, once the table was found.
    ///
    /// Where none is idle, a task makes one. It goes on when its caller gives up, because connecting
    /// may take longer than a check or a probe waits: a later one then finds the connection idle.
    /// There are no more such tasks than the store uses connections, however many callers give up.
    /// Others wait for them in the queue of the pool.
    async fn connection(&self) -> Result<Connection, Error> {
        if self.0.pool.status().available > 0 {
            return self.ready().await;
        }
        let Ok(turn) = Arc::clone(&self.0.makers).try_acquire_owned() else {
            return self.ready().await;
        };
        let (this, (mut answer, made)) = (self.clone(), oneshot::channel());
        tokio::spawn(async move {
            let given_up = async {
                answer.closed().await;
                sleep(this.0.patience).await;
            };
            let made = match select(pin!(this.make()), pin!(given_up)).await {
                Either::Left((made, _)) => Some(made),
                Either::Right(_) => None,
            };
            drop(turn);
            if let Some(made) = made {
                // A connection that nobody waits for returns to the pool.
                let _ = answer.send(made);
            }
        });
        made.await.unwrap_or_else(|_| {
            Err(Error::new(
                ErrorKind::ConnectionLost,
                "the task that connects to postgres has panicked, or its runtime was shut down",
            ))
        })
    }

    /// Takes a connection on which the statements of a check are prepared. A check that has to
    /// prepare them may take longer than its deadline, and its connection is then closed.
    async fn make(&self) -> Result<Connection, Error> {
        let (mut connection, table) = (self.ready().await?, &self.0.table);
        let prepare = connection.call(async |client| {
            try_join3(
                client.prepare_cached(&table.read),
                client.prepare_cached(&table.fill),
                client.prepare_cached(&table.write),
            )
            .await
        });
        prepare.await?.ok_or_else(undone)?;
        Ok(connection)
    }

    /// Takes a connection of the pool, or makes one for it, and looks for the table once.
    async fn ready(&self) -> Result<Connection, Error> {
        let mut connection = self.take().await?;
        if !self.0.checked.initialized() {
            let create = async || match self.look(&mut connection).await {
                Err(error) if is_missing(&error) => match self.0.creates {
                    Some(durability) => self.create_on(&mut connection, durability).await,
                    None => Err(error),
                },
                checked => checked,
            };
            self.0.checked.get_or_try_init(create).await?;
        }
        Ok(connection)
    }

    /// Takes a connection. Where the server refuses the user because a provider failed, its failure
    /// is the error.
    async fn take(&self) -> Result<Connection, Error> {
        let failure = |error: &Error| match &self.0.provider {
            Some(provider) if error.kind() == ErrorKind::Authentication => provider.failure(),
            _ => None,
        };
        Connection::of(&self.0.pool)
            .await
            .map_err(|error| failure(&error).unwrap_or(error))
    }

    /// Looks whether the table is there, and of the right version, and whether it can be written.
    async fn look(&self, connection: &mut Connection) -> Result<(), Error> {
        let table = &self.0.table;
        let look = connection.call(async |client| client.query_one(&table.check, &[]).await);
        let row = look.await?.ok_or_else(undone)?;
        if row.try_get(1).unwrap_or(false) {
            connection.close();
            return Err(Error::new(
                ErrorKind::ReadOnly,
                "postgres is a standby, or read-only",
            ));
        }
        table.judge(row.try_get(0).unwrap_or_default())
    }

    /// Creates the table if there is none.
    pub(crate) async fn create(&self, durability: Durability) -> Result<(), Error> {
        let mut connection = self.take().await?;
        self.create_on(&mut connection, durability).await
    }

    async fn create_on(
        &self,
        connection: &mut Connection,
        durability: Durability,
    ) -> Result<(), Error> {
        match self.look(connection).await {
            Err(error) if is_missing(&error) => {}
            found => return found,
        }
        // Replicas that start together would meet in the catalogue.
        let (lock, schema) = (
            format!("SELECT pg_advisory_xact_lock({CREATION})"),
            self.0.table.schema(durability),
        );
        let text = format!("BEGIN; {lock}; {schema} COMMIT");
        let create = connection.call(async |client| client.batch_execute(&text).await);
        create.await?.ok_or_else(undone)?;
        self.look(connection).await
    }

    /// Returns the time in microseconds, and up to `most` rows from one key on and before another.
    pub(crate) async fn rows(
        &self,
        from: &[u8],
        before: &[u8],
        most: u32,
    ) -> Result<(u64, Vec<Row>), Error> {
        let (mut connection, text) = (self.connection().await?, &self.0.table.rows);
        // A row may have a state as long as this.
        let bytes = (most as usize).saturating_mul(1024 * 1024).min(MOST_ROWS);
        self.0.bound.admit_bytes(bytes);
        let most = i64::from(most);
        let read = connection.call(async |client| {
            let read = client.prepare_cached(text).await?;
            let parameters: [&(dyn ToSql + Sync); 3] = [&from, &before, &most];
            client.query(&read, &parameters).await
        });
        let (mut now_us, mut rows) = (0, Vec::new());
        for row in read.await?.ok_or_else(undone)? {
            now_us = column(&row, 0)?;
            // One row has the time alone, when there is none of the table.
            let key: Option<Vec<u8>> = column(&row, 1)?;
            if let Some(key) = key {
                rows.push(Row {
                    key,
                    value: column(&row, 2)?,
                    expires_ms: column::<i64>(&row, 3)?.max(0) as u64,
                });
            }
        }
        Ok((self.time(now_us), rows))
    }

    /// Sets a value that does not expire, or removes it.
    pub(crate) async fn replace(&self, key: &[u8], value: Option<&[u8]>) -> Result<(), Error> {
        let (mut connection, table) = (self.connection().await?, &self.0.table);
        let replace = connection.call(async |client| match value {
            Some(value) => client.execute(&table.set, &[&key, &value]).await,
            None => client.execute(&table.remove, &[&key]).await,
        });
        replace.await?.map(drop).ok_or_else(undone)
    }

    /// Returns the time that decides, by that of the server.
    fn time(&self, now_us: i64) -> u64 {
        match &self.0.clock {
            Some(clock) => clock.now_us(),
            None => now_us.max(0) as u64,
        }
    }

    /// Removes expired rows in the background, once a minute.
    fn sweep(&self, now_us: u64) {
        let minute = minutes((now_us / 1_000) as i64);
        if self.0.swept.swap(minute, Ordering::Relaxed) == minute {
            return;
        }
        // Rows that are not removed now are removed by a later write, or another process.
        if let Ok(turn) = Arc::clone(&self.0.sweeps).try_acquire_owned() {
            let this = self.clone();
            tokio::spawn(async move {
                let _turn = turn;
                for _ in 0..MOST_SWEEPS {
                    if this.sweep_once(minute).await.ok() != Some(SWEPT_AT_ONCE) {
                        return;
                    }
                }
            });
        }
    }

    /// Removes rows that may be removed in a minute, and that have expired at the moment of each
    /// removal: the clock may have gone back since, and others have written by it.
    async fn sweep_once(&self, minute: i64) -> Result<i64, Error> {
        let (mut connection, text) = (self.connection().await?, &self.0.table.sweep);
        let sweep = connection.call(async |client| {
            let sweep = client.prepare_cached(text).await?;
            let now_ms = self
                .0
                .clock
                .as_ref()
                .map(|clock| (clock.now_us() / 1_000) as i64);
            client
                .execute(&sweep, &[&(minute as i32), &SWEPT_AT_ONCE, &now_ms])
                .await
        });
        Ok(sweep.await?.unwrap_or_default() as i64)
    }
}

fn is_missing(error: &Error) -> bool {
    error.kind() == ErrorKind::Config && error.to_string().ends_with("(42P01)")
}

/// Reports a statement that the server has undone because others wrote.
fn undone() -> Error {
    Error::new(
        ErrorKind::Busy,
        "postgres could not order the statement among others",
    )
}

/// Returns a value of a row.
fn column<'r, T: FromSql<'r>>(row: &'r tokio_postgres::Row, at: usize) -> Result<T, Error> {
    row.try_get(at).map_err(|_| not_valid())
}

/// Returns the minute that begins after this time.
fn minutes(ms: i64) -> i64 {
    ms / MS_PER_MINUTE + 1
}

/// The states that were read, and the connection that writes.
pub(crate) struct Read {
    connection: Connection,
    keys: Vec<Vec<u8>>,
    values: Vec<Option<Vec<u8>>>,
    now_us: u64,
}

impl KeyValue for Database {
    type Read = Read;

    const KIND: &'static str = "postgres";

    fn label(&self) -> &str {
        self.table()
    }

    async fn ping(&self) -> Result<(), Error> {
        self.look(&mut self.connection().await?).await
    }

    fn expect(&self, bytes: usize) {
        self.0.bound.expect(bytes);
    }

    async fn read(&self, keys: &[Vec<u8>]) -> Result<Snapshot<Read>, Error> {
        self.0.bound.admit(keys.len());
        let (mut connection, text) = (self.connection().await?, &self.0.table.read);
        let read = connection.call(async |client| {
            let read = client.prepare_cached(text).await?;
            client.query_one(&read, &[&keys]).await
        });
        let row = read.await?.ok_or_else(undone)?;
        let now_us = self.time(column(&row, 0)?);
        let values = column::<Array<'_>>(&row, 1)?.elements(keys.len())?;
        let values: Vec<_> = values
            .into_iter()
            .map(|value| value.map(<[u8]>::to_vec))
            .collect();
        if values.len() != keys.len() {
            return Err(not_valid());
        }
        let read = Read {
            connection,
            keys: keys.to_vec(),
            values: values.clone(),
            now_us,
        };
        Ok(Snapshot {
            now_us,
            values,
            read,
        })
    }

    /// Writes in one statement. Where keys have no rows, a statement before it makes some that are
    /// empty, because only a row can be locked. Both are sent together, with the begin and the end
    /// of their transaction, so nothing stays locked while this process computes or dies.
    async fn write(&self, read: Read, changes: Vec<Change>) -> Result<Vec<bool>, Error> {
        let Read {
            mut connection,
            keys,
            values,
            now_us,
        } = read;
        let rows = Rows::new(&keys, &values, &changes, now_us);
        let table = &self.0.table;
        let write = connection.call(async |client| {
            let write = client.prepare_cached(&table.write).await?;
            let parameters: [&(dyn ToSql + Sync); 7] = [
                &rows.keys,
                &rows.before,
                &rows.values,
                &rows.expires_ms,
                &rows.least,
                &rows.most,
                &rows.changes,
            ];
            if rows.missing.is_empty() {
                return client.query_one(&write, &parameters).await;
            }
            let fill = client.prepare_cached(&table.fill).await?;
            let sweep_at = (minutes((now_us / 1_000) as i64) + LEAST_SLACK) as i32;
            let missing: [&(dyn ToSql + Sync); 2] = [&rows.missing, &sweep_at];
            // Each future sends when it is first polled, and they are polled in this order.
            let (begun, filled, written, committed) = join4(
                client.batch_execute("BEGIN"),
                client.execute(&fill, &missing),
                client.query_one(&write, &parameters),
                client.batch_execute("COMMIT"),
            )
            .await;
            begun
                .and(filled)
                .and(written)
                .and_then(|others| committed.map(|()| others))
        });
        let written = match write.await? {
            Some(row) => rows.written(&row, changes.len())?,
            None => vec![false; changes.len()],
        };
        drop(connection);
        self.sweep(now_us);
        Ok(written)
    }
}

/// The columns of what is compared and written.
#[derive(Default)]
struct Rows<'a> {
    keys: Vec<&'a [u8]>,
    /// An empty value stands for a key that was missing.
    before: Vec<&'a [u8]>,
    /// `None` for a key that is compared alone. An empty value removes what there was.
    values: Vec<Option<&'a [u8]>>,
    expires_ms: Vec<i64>,
    /// The minutes between which a row may be removed first. It keeps the minute that it has if
    /// that is one of them.
    least: Vec<i32>,
    most: Vec<i32>,
    /// The change that the key belongs to.
    changes: Vec<i32>,
    missing: Vec<&'a [u8]>,
}

impl<'a> Rows<'a> {
    fn new(
        keys: &'a [Vec<u8>],
        before: &'a [Option<Vec<u8>>],
        changes: &'a [Change],
        now_us: u64,
    ) -> Self {
        let (mut rows, now_ms) = (Self::default(), (now_us / 1_000) as i64);
        for (number, change) in (0..).zip(changes) {
            let mut writes = change.writes.iter().peekable();
            for (key, before) in change.keys.iter().map(|&at| (&keys[at], &before[at])) {
                let write = writes.next_if(|write| write.key == *key);
                let expires_ms = write.map_or(0, |write| write.expires_ms as i64);
                let life = (expires_ms - now_ms).max(0);
                let least = minutes(expires_ms.max(now_ms));
                rows.keys.push(key);
                rows.before.push(before.as_deref().unwrap_or_default());
                rows.values
                    .push(write.map(|write| write.value.as_deref().unwrap_or_default()));
                rows.expires_ms.push(expires_ms);
                rows.least.push(least as i32);
                rows.most
                    .push((least + LEAST_SLACK.max(life / 4 / MS_PER_MINUTE)) as i32);
                rows.changes.push(number);
                if before.is_none() {
                    rows.missing.push(key);
                }
            }
        }
        rows
    }

    /// Reads the answer of the write: the numbers of the changes that were not made, once for each
    /// of their keys that is another, or nothing when none was made.
    fn written(&self, row: &tokio_postgres::Row, changes: usize) -> Result<Vec<bool>, Error> {
        let Some(others) = column::<Option<Array<'_>>>(row, 0)? else {
            return Ok(vec![false; changes]);
        };
        let mut written = vec![true; changes];
        for number in others.elements(self.keys.len())? {
            let number = number.and_then(|number| number.try_into().ok());
            let at = number.and_then(|number| usize::try_from(i32::from_be_bytes(number)).ok());
            let change = at.and_then(|at| written.get_mut(at));
            *change.ok_or_else(not_valid)? = false;
        }
        Ok(written)
    }
}

/// A connection of the pool. One whose call was given up is closed: its answer is still to come,
/// and others would wait for it. So is one whose server accepts no more writes: the next one may
/// find another server of the URL that does. And so is one that has lost its statements.
struct Connection {
    /// `None` once it is closed.
    client: Option<Object>,
    is_in_call: bool,
}

impl Connection {
    async fn of(pool: &Pool) -> Result<Self, Error> {
        let client = pool.get().await;
        Ok(Self {
            client: Some(client.map_err(|error| of_pool(&error, pool.status().max_size))?),
            is_in_call: false,
        })
    }

    /// Makes a call. Returns `None` when the server has undone it because others wrote.
    async fn call<T>(
        &mut self,
        call: impl AsyncFnOnce(&Object) -> Result<T, tokio_postgres::Error>,
    ) -> Result<Option<T>, Error> {
        let Some(client) = &self.client else {
            return Err(lost());
        };
        self.is_in_call = true;
        let outcome = call(client).await;
        self.is_in_call = false;
        match outcome {
            Ok(done) => Ok(Some(done)),
            Err(error) if is_conflict(&error) => Ok(None),
            Err(error) => {
                let has_lost_statements = lost_statements(&error);
                let error = sorted(&error);
                if error.kind() == ErrorKind::ReadOnly || has_lost_statements {
                    self.close();
                }
                Err(error)
            }
        }
    }

    /// Takes the connection out of the pool.
    fn close(&mut self) {
        drop(self.client.take().map(Object::take));
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.is_in_call {
            self.close();
        }
    }
}
