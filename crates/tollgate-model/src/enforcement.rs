//! The share of keys for which a limit is enforced, and which keys those are.
//! What a layer does with the other keys is in tollgate-tower; an operator's share arrives in
//! `tollgate-remote/src/presence/publisher.rs`.

use std::{
    fmt,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use sha2::{Digest, Sha256};

use crate::{Error, Key};

/// The share of the keys for which a layer enforces a limit. For all other keys the limit is in
/// *shadow mode*: the layer counts the denials, and lets the requests pass.
///
/// Use it to bring a new limit into force: begin at 0 %, see whom the limit would deny, and raise
/// the share while the service runs. Clones share the setting: keep one, and give the others to the
/// layers.
///
/// A hash of the key decides. So the same keys are enforced on each replica and for each limit, and
/// a key that is enforced stays enforced at every greater share. The hash is public: the first 8
/// bytes of the SHA-256 of [`Key::encoded`], as a big-endian number, modulo 100. A key is enforced
/// when the result is below the percentage. A client that chooses its key can choose one outside of
/// the share, until the share is 100 %.
///
/// Operators may set the share of a limiter that is [published with
/// it][`LimiterBuilder::published_with`]. Their share is in force until they withdraw it.
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
///
/// [`LimiterBuilder::published_with`]: https://docs.rs/tollgate/latest/tollgate/struct.LimiterBuilder.html#method.published_with
#[doc(alias = "canary")]
#[doc(alias = "dry run")]
#[derive(Clone)]
pub struct Enforcement(Arc<AtomicU32>);

const FULL: u8 = 100;

/// The share of an operator who has set none.
const NONE: u8 = u8::MAX;

/// Packs the shares of the code and of the operator behind the one that is in force, so that a
/// check reads one byte.
const fn packed(code: u8, operator: u8) -> u32 {
    let in_force = if operator == NONE { code } else { operator };
    u32::from_le_bytes([in_force, code, operator, 0])
}

impl Enforcement {
    /// Enforces the limit for `percent` of the keys: 0 for none, 100 for all.
    ///
    /// # Panics
    ///
    /// When `percent` is above 100.
    #[must_use]
    pub fn share(percent: u8) -> Self {
        assert!(
            percent <= FULL,
            "the share of enforced keys must be 0 to 100 percent"
        );
        Self(Arc::new(AtomicU32::new(packed(percent, NONE))))
    }

    /// Enforces the limit for `percent` of the keys, as [`share`](Self::share) does for a number
    /// that is known only at run time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when `percent` is above 100.
    pub fn try_share(percent: u8) -> Result<Self, Error> {
        check(percent).map(Self::share)
    }

    /// Changes the share, for all clones. Requests that are under way may still be decided by the
    /// old one.
    ///
    /// An operator's share takes precedence: the new share is then in force only when the operator
    /// withdraws theirs.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when `percent` is above 100. The old share
    /// then stays.
    pub fn set(&self, percent: u8) -> Result<(), Error> {
        let percent = check(percent)?;
        self.change(|_, operator| (percent, operator));
        Ok(())
    }

    /// Replaces the shares of the code and of the operator. Returns the operator's from
    /// before.
    fn change(&self, change: impl Fn(u8, u8) -> (u8, u8)) -> u8 {
        let replace = |word: u32| {
            let [_, code, operator, _] = word.to_le_bytes();
            let (code, operator) = change(code, operator);
            Some(packed(code, operator))
        };
        let before = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, replace);
        before.unwrap_or_else(|unchanged| unchanged).to_le_bytes()[2]
    }

    /// Returns the share that is in force, in percent: the operator's, or else the one that the
    /// code set.
    #[must_use]
    #[inline]
    pub fn percent(&self) -> u8 {
        self.0.load(Ordering::Relaxed) as u8
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
    Err(Error::config(format!(
        "the share of enforced keys must be 0 to 100 percent, got {percent}"
    )))
}

/// Returns the place of a key among the percents. Replicas of all versions have to agree on it.
#[cold]
fn place(key: &Key) -> u8 {
    let digest = Sha256::digest(key.encoded());
    let number = digest
        .iter()
        .take(8)
        .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    (number % u64::from(FULL)) as u8
}

impl Default for Enforcement {
    /// Enforces the limit for all keys.
    fn default() -> Self {
        Self::share(FULL)
    }
}

impl fmt::Display for Enforcement {
    /// Writes the share that is in force: `25%`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.percent())
    }
}

impl FromStr for Enforcement {
    type Err = Error;

    /// Reads a share as operators write it: `25%`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the text is no whole number of percent
    /// from 0% to 100%.
    fn from_str(text: &str) -> Result<Self, Error> {
        let number = text
            .strip_suffix('%')
            .filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        let percent = number
            .and_then(|number| number.parse().ok())
            .filter(|percent| *percent <= FULL);
        percent.map(Self::share).ok_or_else(|| {
            let message = "the share of enforced keys must be 0% to 100%, in whole percent";
            Error::config(format!("{message}, got {text:?}"))
        })
    }
}

impl fmt::Debug for Enforcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Enforcement({} %)", self.percent())
    }
}

/// Changes the share that an operator sets.
pub trait EnforcementParts: Sized {
    /// Sets the share of the operator in percent, or withdraws it with `None`. Returns whether that changed it.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) when `percent` is above 100.
    fn set_by_operator(&self, percent: Option<u8>) -> Result<bool, Error>;
}

impl EnforcementParts for Enforcement {
    fn set_by_operator(&self, percent: Option<u8>) -> Result<bool, Error> {
        let operator = percent.map_or(Ok(NONE), check)?;
        let before = self.change(|code, _| (code, operator));
        Ok(before != operator)
    }
}
