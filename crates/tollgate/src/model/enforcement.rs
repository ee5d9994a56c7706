use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use sha2::{Digest, Sha256};

use crate::{Error, Key};

/// Sets for which share of the keys a limit is enforced. For all others it is in shadow: it decides, counts and denies nothing.
///
/// Use it to bring a new limit into force: begin at 0 %, see whom the limit would deny, and turn the share up while the
/// service runs. Clones share the setting, so a handle that the service keeps changes the layers that have its clones.
///
/// A key belongs to the share by a hash of its text, so it is the same on each replica and for each limit, and a key that is
/// enforced stays enforced at every greater share. The hash is public: the first 8 bytes of the SHA-256 of
/// [`Key::encoded`], as a big-endian number, modulo 100. A key is enforced when the result is below the percentage. A client
/// that chooses its key can choose one outside of the share, until the share is 100 %.
///
/// ```
/// use tollgate::{Enforcement, Key};
///
/// let enforcement = Enforcement::share(0);
/// let kept = enforcement.clone();
/// let keys: Vec<Key> = (0..1_000_u64).map(Key::from).collect();
/// let enforced = || keys.iter().filter(|key| enforcement.applies_to(key)).count();
/// assert_eq!(enforced(), 0);
///
/// kept.set(25)?;
/// assert!((200..300).contains(&enforced()));
/// kept.set(100)?;
/// assert_eq!(enforced(), 1_000);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone)]
pub struct Enforcement(Arc<AtomicU8>);

const FULL: u8 = 100;

impl Enforcement {
    /// Enforces the limit for `percent` of the keys: 0 for none, 100 for all.
    ///
    /// # Panics
    ///
    /// Panics when `percent` is above 100.
    #[must_use]
    pub fn share(percent: u8) -> Self {
        assert!(percent <= FULL, "the share of enforced keys must be 0 to 100 percent");
        Self(Arc::new(AtomicU8::new(percent)))
    }

    /// Enforces the limit for `percent` of the keys, as [`share`](Self::share) does for a number that is known only at run
    /// time.
    ///
    /// ```
    /// use tollgate::Enforcement;
    ///
    /// assert_eq!(Enforcement::try_share(25)?.percent(), 25);
    /// let error = Enforcement::try_share(101).unwrap_err();
    /// assert_eq!(error.to_string(), "the share of enforced keys must be 0 to 100 percent, got 101");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when `percent` is above 100.
    pub fn try_share(percent: u8) -> Result<Self, Error> {
        check(percent).map(Self::share)
    }

    /// Changes the share, for all clones. Requests that are under way may still be decided by the old one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when `percent` is above 100. The old share then stays.
    pub fn set(&self, percent: u8) -> Result<(), Error> {
        self.0.store(check(percent)?, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the share in percent.
    #[must_use]
    #[inline]
    pub fn percent(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns whether the limit is enforced for this key.
    #[must_use]
    #[inline]
    pub fn applies_to(&self, key: &Key) -> bool {
        match self.percent() {
            0 => false,
            FULL => true,
            percent => place(key) < percent,
        }
    }
}

fn check(percent: u8) -> Result<u8, Error> {
    if percent <= FULL {
        return Ok(percent);
    }
    Err(Error::config(format!("the share of enforced keys must be 0 to 100 percent, got {percent}")))
}

/// Returns the place of a key among the percents. Replicas of all versions have to agree on it.
#[cold]
fn place(key: &Key) -> u8 {
    let digest = Sha256::digest(key.encoded());
    let number = digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    (number % u64::from(FULL)) as u8
}

impl Default for Enforcement {
    /// Enforces the limit for all keys.
    fn default() -> Self {
        Self::share(FULL)
    }
}

impl fmt::Debug for Enforcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Enforcement({} %)", self.percent())
    }
}
