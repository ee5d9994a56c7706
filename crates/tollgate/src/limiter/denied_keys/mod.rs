mod sketch;

use std::{
    fmt,
    fmt::Write,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{Cost, Decision, Key, KeySecret, random};
use sketch::Sketch;

/// Finds the keys that are denied most, in bounded memory.
///
/// Use it to see which clients a limit denies, and whether the limit is right. Give it to a limiter with
/// [`LimiterBuilder::denied_keys`](crate::LimiterBuilder::denied_keys). Clones share the counts, so that several limiters
/// may have one sketch.
///
/// Keys may be addresses or names of people. [`top`](Self::top) therefore shows digests of keys, made with a secret
/// that is random in each process. [`with_secret`](Self::with_secret) makes digests that are the same in all replicas,
/// and [`with_plain_keys`](Self::with_plain_keys) shows the keys.
///
/// The counts are those of the Space-Saving algorithm (Metwally, Agrawal and El Abbadi, *Efficient computation of
/// frequent and top-k elements in data streams*, 2005). With a capacity of m keys and n denials in all, every key with
/// more than n/m denials is found. A count is never too small, and too large by at most
/// [`overcount`](DeniedKey::overcount), which is at most n/m.
///
/// Of a key with [branches](Key::beside), the branches that deny are counted.
///
/// A sketch takes about 150 bytes for each key of its capacity. Only a denied check has work: it takes a lock, and a
/// new key is copied.
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
#[derive(Clone)]
pub struct DeniedKeys(Arc<DeniedKeysInner>);

struct DeniedKeysInner {
    sketch: Mutex<Sketch>,
    names: Names,
}

/// Selects how keys are shown.
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
    /// Creates a sketch of up to `capacity` keys, which shows digests with a random secret. 0 counts as 1.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self::with_secret(capacity, random_secret())
    }

    /// Creates a sketch that shows [digests](Self::digest) with this secret.
    ///
    /// With the same secret, the digest of a key is the same in all replicas and after a restart.
    #[must_use]
    pub fn with_secret(capacity: usize, secret: KeySecret) -> Self {
        Self::with_names(capacity, Names::Digests(secret))
    }

    /// Creates a sketch that shows the [text](Key::encoded) of the keys.
    ///
    /// Use it only if the keys are no personal data and no secrets, or if everybody who sees the sketch may see them.
    #[must_use]
    pub fn with_plain_keys(capacity: usize) -> Self {
        Self::with_names(capacity, Names::Plain)
    }

    fn with_names(capacity: usize, names: Names) -> Self {
        Self(Arc::new(DeniedKeysInner { sketch: Mutex::new(Sketch::new(capacity.max(1))), names }))
    }

    /// Returns the name of a key in a sketch with this secret: 128 bits of its [digest](Key::digest), in hexadecimal.
    ///
    /// Use it to find a known key among the names.
    #[must_use]
    pub fn digest(key: &Key, secret: &KeySecret) -> String {
        key.digest(secret)[..16].iter().fold(String::with_capacity(32), |mut text, byte| {
            // Writing to memory cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Counts a denial of this key.
    ///
    /// Limiters do it by themselves. Use it for denials that no limiter makes.
    pub fn record(&self, key: &Key) {
        self.sketch().record(key);
    }

    /// Counts the denial of a check. An admitted check and a peek are not counted.
    pub(crate) fn record_decision(&self, key: &Key, decision: &Decision) {
        if !decision.is_denied() || decision.cost() == Cost::ZERO {
            return;
        }
        if !key.has_branches() {
            return self.record(key);
        }
        for (at, branch) in (0..).zip(key.branches()) {
            if decision.states().any(|state| state.is_exceeded() && state.policy().branch() == at + 1) {
                self.record(branch);
            }
        }
    }

    /// Returns up to `limit` keys, those with the most denials first.
    #[must_use]
    pub fn top(&self, limit: usize) -> Vec<DeniedKey> {
        // The digests are made after the lock is released.
        let top: Vec<_> = self.sketch().top(limit).cloned().collect();
        let name = |key: &Key| match &self.0.names {
            Names::Digests(secret) => Self::digest(key, secret).into(),
            Names::Plain => key.encoded().into(),
        };
        let denied =
            |slot: sketch::Slot| DeniedKey { name: name(&slot.key), denials: slot.count, overcount: slot.overcount };
        top.into_iter().map(denied).collect()
    }

    /// Returns the denials of all keys.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.sketch().total()
    }

    /// Forgets all counts. Call it at the start of each day to see the denials of a day.
    pub fn clear(&self) {
        self.sketch().clear();
    }

    fn sketch(&self) -> MutexGuard<'_, Sketch> {
        self.0.sketch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a secret of 256 bits.
fn random_secret() -> KeySecret {
    KeySecret::new(std::array::from_fn::<_, 4, _>(|_| random::bits().to_be_bytes()).concat())
}

impl DeniedKey {
    /// Returns the digest of the key, or the key.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of denials. It is never too low, and at most [`overcount`](Self::overcount) too high.
    #[must_use]
    pub fn denials(&self) -> u64 {
        self.denials
    }

    /// Returns how many of the denials may be those of other keys. It is 0 until the sketch is full.
    #[must_use]
    pub fn overcount(&self) -> u64 {
        self.overcount
    }
}

impl fmt::Debug for DeniedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeniedKeys").field("total", &self.total()).finish_non_exhaustive()
    }
}
