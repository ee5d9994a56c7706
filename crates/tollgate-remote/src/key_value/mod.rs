//! A store over anything that keeps bytes under keys: a database, a file, a service.
//! How calls are gathered is in `lanes.rs`, and what a limiter sees of the store in `store.rs`.

mod lanes;
mod presence;
mod store;
mod values;

use std::{fmt, future::Future};

pub use store::KeyValueStore;

use tollgate_core::Error;

/// Keeps bytes under keys, and writes some of them if nobody has changed what was read.
///
/// Implement it to keep the state of policies elsewhere: in a database that a service has already,
/// in a file. A [`KeyValueStore`] makes a [`Store`](tollgate_core::Store) of it. Wrap a store instead to
/// count or to trace its calls: see [`Store`](tollgate_core::Store).
///
/// # Write a store of your own
///
/// The two methods are the two trips of a batch of checks. A database can make one transaction of
/// both:
///
/// ```
/// use std::{collections::BTreeMap, sync::Mutex, time::{Duration, SystemTime}};
/// use tollgate::{
///     Error, Limiter, Policy, Quota,
///     store::{Change, KeyValue, KeyValueStore, Snapshot, Write},
/// };
///
/// /// Keeps everything in a map.
/// #[derive(Default)]
/// struct Map(Mutex<BTreeMap<Vec<u8>, Vec<u8>>>);
///
/// impl KeyValue for Map {
///     /// What was read, to see whether it is still the same.
///     type Read = Vec<(Vec<u8>, Option<Vec<u8>>)>;
///
///     async fn read(&self, keys: &[Vec<u8>]) -> Result<Snapshot<Self::Read>, Error> {
///         let map = self.0.lock().unwrap();
///         let values: Vec<_> = keys.iter().map(|key| map.get(key).cloned()).collect();
///         let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
///         let read = keys.iter().cloned().zip(values.clone()).collect();
///         Ok(Snapshot { now_us: now.as_micros() as u64, values, read })
///     }
///
///     async fn write(&self, read: Self::Read, changes: Vec<Change>) -> Result<Vec<bool>, Error> {
///         let mut map = self.0.lock().unwrap();
///         let mut written = Vec::new();
///         for Change { keys, writes, .. } in changes {
///             let is_same = keys.iter().all(|&at| map.get(&read[at].0) == read[at].1.as_ref());
///             for Write { key, value, .. } in writes.into_iter().filter(|_| is_same) {
///                 // A real store also removes what has expired.
///                 match value {
///                     Some(value) => map.insert(key, value),
///                     None => map.remove(&key),
///                 };
///             }
///             written.push(is_same);
///         }
///         Ok(written)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// let store = KeyValueStore::new(Map::default());
/// let limiter = Limiter::builder(store.clone())
///     .policies(Policy::token_bucket("api", Quota::per_hour(2)))
///     .deadline(Duration::from_secs(1))
///     .build();
/// assert!(limiter.check("acme").await?.is_allowed());
/// assert!(limiter.check("acme").await?.is_allowed());
/// assert!(limiter.check("acme").await?.is_denied());
/// assert!(store.backend().0.lock().unwrap().contains_key(&b"{acme}:api:t1"[..]));
/// # Ok(()) }
/// ```
///
/// What an implementation has to know:
///
/// - **One step.** [`write`](Self::write) makes a [`Change`] as a whole or not at all, and only
///   while *each* of its keys is as it was read: also one that is not written, and one that was
///   missing. Either it compares (the values, or versions of rows) and returns `false` for a change
///   when something is another: its calls are then decided again. Or it keeps others away, by a
///   transaction and its locks. Keys are sorted when they are read, so locks are taken in one
///   order. Changes have no key in common, and may be made one by one or together.
/// - **One instant.** The values and the time of a [`Snapshot`] are of one instant. All
///   processes have the same time, which is the database's clock. Limits hold when it goes back, see law 10 of
///   [`Store`](tollgate_core::Store).
/// - **Expiry.** A value may be removed when its time has come, and not before. A value that has
///   expired and is still there does no harm.
/// - **Durability.** What was written before a crash and is lost gives its units a second time.
/// - **Errors** have the [kind](tollgate_core::ErrorKind) that shows a limiter's [`Outage`](tollgate_core::Outage)
///   what happened: for example [`ConnectionRefused`](tollgate_core::ErrorKind::ConnectionRefused), or
///   [`ConnectionLost`](tollgate_core::ErrorKind::ConnectionLost) when it is not known whether something
///   was written. A message contains no key and no secret.
/// - **Cancellation.** The futures run in a task, which is not the caller's. They are dropped
///   when the last call of the batch has reached its [deadline](tollgate_core::LimiterBuilder::deadline): a
///   transaction must then end, too.
///
/// The bytes are those that a `RedisStore` stores, so
/// [`StoredState`](tollgate_core::store::StoredState) reads them. Treat them as opaque: other versions of
/// this crate may write other ones, under other keys.
///
/// `examples/libraries/sqlite_store.rs` of the repository is such a store in a file.
pub trait KeyValue: Send + Sync + 'static {
    /// The part of a read that the write after it needs: the values or their versions, or an open
    /// transaction.
    ///
    /// It is dropped without a write when nothing changes, as after a denial. A transaction then
    /// ends.
    type Read: Send;

    /// The word for what keeps the bytes, in errors and in the log.
    const KIND: &'static str = "the store";

    /// Returns the label `store` of its [metrics](crate#metrics): [`KIND`](Self::KIND) by default.
    fn label(&self) -> &str {
        Self::KIND
    }

    /// Learns how many bytes a value may have that is read from now on, where that is more than most
    /// [algorithms](tollgate_core::Algorithm) store: a log grows with its quota. Does nothing by default.
    ///
    /// A store over a network uses it to refuse replies that are longer than any that it has asked
    /// for.
    fn expect(&self, bytes: usize) {
        let _ = bytes;
    }

    /// Reads the values of these keys, which are sorted and different, and the time.
    ///
    /// # Errors
    ///
    /// The limiter applies its [`Outage`](tollgate_core::Outage) to each call of the batch.
    fn read(
        &self,
        keys: &[Vec<u8>],
    ) -> impl Future<Output = Result<Snapshot<Self::Read>, Error>> + Send;

    /// Makes each change whose keys are as they were read. Returns of each whether it was made.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read). The calls of the batch are not decided again, because they
    /// may have been charged.
    fn write(
        &self,
        read: Self::Read,
        changes: Vec<Change>,
    ) -> impl Future<Output = Result<Vec<bool>, Error>> + Send;

    /// Asks whether keys can be read and written again. No call is sent to a store that was away
    /// before this succeeds. Reads no keys by default.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read). Each check fails with this error meanwhile.
    fn ping(&self) -> impl Future<Output = Result<(), Error>> + Send {
        async { self.read(&[]).await.map(drop) }
    }
}

/// The values that a [`KeyValue`] has read at one instant.
pub struct Snapshot<R> {
    /// The time of the store, in microseconds since the Unix epoch; below 2⁵³.
    pub now_us: u64,
    /// The value of each key, in the order of the keys. `None` for a key that is missing.
    pub values: Vec<Option<Vec<u8>>>,
    /// The part that the write needs.
    pub read: R,
}

tollgate_core::debug_fields! { Snapshot<R>: now_us, .. }

/// Values that a [`KeyValue`] writes together, or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The places, among the keys that were read, of those that must be as they were read.
    pub keys: Vec<usize>,
    /// The values. Their keys are among those.
    pub writes: Vec<Write>,
}

/// A value that a [`KeyValue`] writes.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Write {
    /// The key, which was read before: the limited key, the name of the policy, and a tag of the
    /// algorithm.
    pub key: Vec<u8>,
    /// The value: 24 to 64 bytes for a state of most [algorithms](tollgate_core::Algorithm). `None` removes
    /// the key.
    pub value: Option<Vec<u8>>,
    /// The time at which the value may be removed, in milliseconds since the Unix epoch. 0 without
    /// a value.
    pub expires_ms: u64,
}

impl fmt::Debug for Write {
    /// Leaves out the key and the value: both may identify a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.value.as_ref().map(Vec::len);
        f.debug_struct("Write")
            .field("bytes", &length)
            .field("expires_ms", &self.expires_ms)
            .finish_non_exhaustive()
    }
}
