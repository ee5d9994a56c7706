//! Counts which keys are denied most, in bounded memory, and shows them without revealing them.
//! Single denials are shown as events, sums as metrics: see `events/` and `metrics/`.

use std::{
    fmt::Write,
    hash::{BuildHasher, RandomState},
    sync::{Arc, OnceLock},
};

use hashbrown::HashTable;

use crate::{Key, KeySecret, lock::Lock, random};

/// Finds the keys that are denied most, in bounded memory.
///
/// Use it to see which clients a limit denies, and whether the limit is right. Give it to a limiter
/// with [`LimiterBuilder::denied_keys`](crate::LimiterBuilder::denied_keys). Clones share the
/// counts, so several limiters can count together.
///
/// Keys may be addresses or names of people. [`top`](Self::top) therefore shows digests of keys,
/// made with a [secret](Self::process_secret) that is random in each process. [`with_secret`](Self::with_secret) makes
/// digests that are the same in all replicas, and [`with_plain_keys`](Self::with_plain_keys) shows
/// the keys.
///
/// The counts are approximate, by the Space-Saving algorithm (Metwally, Agrawal and El Abbadi,
/// *Efficient computation of frequent and top-k elements in data streams*, 2005). With a capacity
/// of m keys and n denials in all, every key with more than n/m denials is found. A count is never
/// too small, and too large by at most [`overcount`](DeniedKey::overcount), which is at most n/m.
///
/// For a key with [branches](Key::with_branch), the branches that deny are counted.
///
/// The counts take about 150 bytes for each key of the capacity. Only a denied check has work: it
/// takes a lock, and copies a new key.
///
/// ```
/// use tollgate::{Key, KeySecret, Limiter, MemoryStore, Policy, Quota, limiter::DeniedKeys};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// let secret = KeySecret::new(b"32 random bytes, from the configuration");
/// let denied_keys = DeniedKeys::with_secret(100, secret.clone());
/// let limiter = Limiter::builder(MemoryStore::new())
///     .policies(Policy::token_bucket("api", Quota::per_hour(2)))
///     .denied_keys(denied_keys.clone())
///     .build();
/// for key in ["acme", "other", "acme", "acme", "acme"] {
///     let _ = limiter.check(key).await?;
/// }
///
/// let top = denied_keys.top(10);
/// assert_eq!((top.len(), top[0].denials()), (1, 2));
/// assert_eq!(top[0].name(), DeniedKeys::digest(&Key::new("acme"), &secret));
/// # Ok(()) }
/// ```
#[doc(alias = "heavy hitters")]
#[derive(Clone)]
pub struct DeniedKeys(Arc<DeniedKeysInner>);

struct DeniedKeysInner {
    sketch: Lock<Sketch>,
    names: Names,
}

enum Names {
    Digests(KeySecret),
    Plain,
}

/// A key and the number of its denials. [`DeniedKeys::top`] returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedKey {
    name: Box<str>,
    denials: u64,
    overcount: u64,
}

impl DeniedKeys {
    /// Creates counts of up to `capacity` keys, shown as digests with the random
    /// [secret](Self::process_secret) of this process. A capacity of 0 counts as 1.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self::with_secret(capacity, Self::process_secret())
    }

    /// Returns the secret of digests that have no other: random, and one for this process. So a key
    /// has one name, wherever the process shows it.
    ///
    /// ```
    /// use tollgate::{Key, limiter::DeniedKeys};
    ///
    /// let (here, there) = (DeniedKeys::new(10), DeniedKeys::new(10));
    /// here.record(&Key::new("acme"));
    /// there.record(&Key::new("acme"));
    /// assert_eq!(here.top(1), there.top(1));
    /// ```
    #[must_use]
    pub fn process_secret() -> KeySecret {
        static SECRET: OnceLock<KeySecret> = OnceLock::new();
        let bits = || std::array::from_fn::<_, 4, _>(|_| random::bits().to_be_bytes());
        SECRET
            .get_or_init(|| KeySecret::new(bits().concat()))
            .clone()
    }

    /// Creates counts of up to `capacity` keys, shown as [digests](Self::digest) with this secret.
    ///
    /// With the same secret, the digest of a key is the same in all replicas and after a restart.
    #[must_use]
    pub fn with_secret(capacity: usize, secret: KeySecret) -> Self {
        Self::with_names(capacity, Names::Digests(secret))
    }

    /// Creates counts of up to `capacity` keys, shown as their [text](Key::encoded).
    ///
    /// Use it only if the keys are no personal data and no secrets, or if everybody who sees the
    /// counts may see them.
    #[must_use]
    pub fn with_plain_keys(capacity: usize) -> Self {
        Self::with_names(capacity, Names::Plain)
    }

    fn with_names(capacity: usize, names: Names) -> Self {
        Self(Arc::new(DeniedKeysInner {
            sketch: Lock::new(Sketch::new(capacity.max(1))),
            names,
        }))
    }

    /// Returns the name under which [`top`](Self::top) shows a key with this secret: 128 bits of
    /// its [digest](Key::digest), in hexadecimal.
    ///
    /// Use it to find a known key among the names.
    #[must_use]
    pub fn digest(key: &Key, secret: &KeySecret) -> String {
        Self::digest_of(key.encoded(), secret)
    }

    /// Returns the [name](Self::digest) of the key with this [encoded](Key::encoded) text.
    #[must_use]
    pub fn digest_of(encoded: &str, secret: &KeySecret) -> String {
        secret.digest(encoded)[..16]
            .iter()
            .fold(String::with_capacity(32), |mut text, byte| {
                // Writing to memory cannot fail.
                let _ = write!(text, "{byte:02x}");
                text
            })
    }

    /// Counts a denial of this key.
    ///
    /// Limiters call this themselves. Use it for denials that no limiter makes.
    pub fn record(&self, key: &Key) {
        self.0.sketch.lock().record(key);
    }

    /// Returns up to `limit` keys, the most denied first.
    #[must_use]
    pub fn top(&self, limit: usize) -> Vec<DeniedKey> {
        // The digests are made after the lock is released.
        let top: Vec<_> = self.0.sketch.lock().top(limit).cloned().collect();
        let name = |key: &Key| match &self.0.names {
            Names::Digests(secret) => Self::digest(key, secret).into(),
            Names::Plain => key.encoded().into(),
        };
        let denied = |slot: CountedKey| DeniedKey {
            name: name(&slot.key),
            denials: slot.count,
            overcount: slot.overcount,
        };
        top.into_iter().map(denied).collect()
    }

    /// Returns the number of denials of all keys.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.sketch.lock().total()
    }

    /// Forgets all counts. Call it at the start of each day to see the denials of a day.
    pub fn clear(&self) {
        self.0.sketch.lock().clear();
    }
}

impl DeniedKey {
    /// Returns the digest of the key, or the key.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of denials. The number is never too low, and at most
    /// [`overcount`](Self::overcount) too high.
    #[must_use]
    pub fn denials(&self) -> u64 {
        self.denials
    }

    /// Returns how many of the denials may belong to other keys: 0 until more keys than the
    /// capacity were denied.
    #[must_use]
    pub fn overcount(&self) -> u64 {
        self.overcount
    }
}

crate::debug_fields! { DeniedKeys: total = .total(), .. }

/// Counts the denials of up to `capacity` keys with the Space-Saving algorithm.
///
/// The slots are sorted by count, greatest first. A count that grows by one changes places with the
/// first slot of its count, so the order is kept by one swap.
struct Sketch {
    slots: Vec<CountedKey>,
    /// The places in `slots`, by the hash of the key.
    index: HashTable<usize>,
    /// Keyed at random: clients choose keys.
    hasher: RandomState,
    capacity: usize,
    total: u64,
}

#[derive(Clone)]
struct CountedKey {
    key: Key,
    hash: u64,
    count: u64,
    /// The count of the key that was in the slot before.
    overcount: u64,
}

impl Sketch {
    fn new(capacity: usize) -> Self {
        Self {
            slots: Vec::new(),
            index: HashTable::new(),
            hasher: RandomState::new(),
            capacity,
            total: 0,
        }
    }

    fn record(&mut self, key: &Key) {
        self.total = self.total.saturating_add(1);
        let hash = self.hasher.hash_one(key);
        let at = match self.index.find(hash, |&at| self.slots[at].key == *key) {
            Some(&at) => at,
            None => self.place(key, hash),
        };
        let count = self.slots[at].count;
        let first = self.slots.partition_point(|slot| slot.count > count);
        self.swap(first, at);
        self.slots[first].count = count.saturating_add(1);
    }

    /// Finds a slot for a new key: a free one, or else the slot of a key with the smallest count.
    fn place(&mut self, key: &Key, hash: u64) -> usize {
        if self.slots.len() < self.capacity {
            self.slots.push(CountedKey {
                key: key.clone(),
                hash,
                count: 0,
                overcount: 0,
            });
        } else if let Some(last) = self.slots.len().checked_sub(1) {
            self.unlink(last);
            let smallest = self.slots[last].count;
            self.slots[last] = CountedKey {
                key: key.clone(),
                hash,
                count: smallest,
                overcount: smallest,
            };
        }
        let at = self.slots.len() - 1;
        self.link(at);
        at
    }

    fn swap(&mut self, one: usize, other: usize) {
        if one == other {
            return;
        }
        self.unlink(one);
        self.unlink(other);
        self.slots.swap(one, other);
        self.link(one);
        self.link(other);
    }

    fn unlink(&mut self, at: usize) {
        if let Ok(entry) = self
            .index
            .find_entry(self.slots[at].hash, |&other| other == at)
        {
            entry.remove();
        }
    }

    fn link(&mut self, at: usize) {
        self.index
            .insert_unique(self.slots[at].hash, at, |&other| self.slots[other].hash);
    }

    fn top(&self, limit: usize) -> impl Iterator<Item = &CountedKey> {
        self.slots.iter().take(limit)
    }

    fn total(&self) -> u64 {
        self.total
    }

    fn clear(&mut self) {
        self.slots.clear();
        self.index.clear();
        self.total = 0;
    }
}
