//! The rules that a program enforces, as operators see them: their digest, their source, and since
//! when they are in force.
//! Who shows them is decided in `tollgate-remote/src/presence/`; the text is made in
//! `replica_report.rs`. Rules themselves are those of `tollgate-rules`.

use std::{
    fmt,
    str::FromStr,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use crate::{Error, lock::Lock};

/// Identifies rules by their content. Equal rules have equal digests, on every machine and in every
/// version.
///
/// `Display` writes 16 hexadecimal digits. `tollgate-rules` takes the first digits of a SHA-256, so
/// `FromStr` accepts what `sha256sum` prints, too: digits behind the first 16 are not compared.
///
/// ```
/// use tollgate::store::RulesDigest;
///
/// let digest = RulesDigest::new([0, 17, 34, 51, 68, 85, 102, 119]);
/// assert_eq!(digest.to_string(), "0011223344556677");
/// assert_eq!("0011223344556677889900aabb".parse::<RulesDigest>()?, digest);
/// assert!("00112233".parse::<RulesDigest>().is_err());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RulesDigest([u8; 8]);

/// The digits of a digest, and those of a whole SHA-256.
const DIGITS: usize = 16;
const MOST_DIGITS: usize = 64;

impl RulesDigest {
    /// Creates a digest from the first bytes of a hash.
    #[must_use]
    pub const fn new(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for RulesDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl FromStr for RulesDigest {
    type Err = Error;

    /// Parses 16 to 64 hexadecimal digits.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for any other text.
    fn from_str(text: &str) -> Result<Self, Error> {
        let is_valid = (DIGITS..=MOST_DIGITS).contains(&text.len())
            && text.bytes().all(|sign| sign.is_ascii_hexdigit());
        let digits = text.get(..DIGITS).filter(|_| is_valid);
        digits
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .map(|number| Self(number.to_be_bytes()))
            .ok_or_else(|| {
                let text: String = text.chars().take(80).collect();
                Error::config(format!(
                    "a digest of rules must have {DIGITS} to {MOST_DIGITS} hexadecimal digits, got {text:?}"
                ))
            })
    }
}

/// The rules that a program enforces. Clones share what they say.
///
/// `Rules` of `tollgate-rules` keeps one up to date, and its limiter passes it to
/// [`Store::publish_rules`](crate::Store::publish_rules). A program with rules of its own does the
/// same: it calls [`enforce`](Self::enforce) *after* the rules are in force, so that no operator
/// reads of rules that nobody enforces yet.
///
/// ```
/// use tollgate::store::{RulesDigest, RulesInForce};
///
/// let rules = RulesInForce::new("/etc/limits");
/// assert_eq!((rules.source(), rules.digest()), ("/etc/limits", None));
/// rules.enforce(RulesDigest::new([1; 8]));
/// rules.refuse();
/// assert_eq!(rules.digest(), Some(RulesDigest::new([1; 8])));
/// ```
#[derive(Clone)]
pub struct RulesInForce(Arc<Shown>);

struct Shown {
    source: String,
    state: Lock<State>,
}

#[derive(Clone, Copy)]
struct State {
    digest: Option<RulesDigest>,
    since: Instant,
    /// The time at which newer rules were refused, if those in force are not the newest.
    refused: Option<Instant>,
}

impl RulesInForce {
    /// Creates rules from a source, such as a path. None are in force yet.
    #[must_use]
    pub fn new(source: impl Into<String>) -> Self {
        let state = State {
            digest: None,
            since: Instant::now(),
            refused: None,
        };
        Self(Arc::new(Shown {
            source: source.into(),
            state: Lock::new(state),
        }))
    }

    /// Returns the source of the rules.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// Returns the digest of the rules in force. `None` before the first ones.
    #[must_use]
    pub fn digest(&self) -> Option<RulesDigest> {
        self.0.state.lock().digest
    }

    /// Notes that rules with this digest are in force. Equal ones stay in force since before.
    pub fn enforce(&self, digest: RulesDigest) {
        let mut state = self.0.state.lock();
        if state.digest != Some(digest) {
            (state.digest, state.since) = (Some(digest), Instant::now());
        }
        state.refused = None;
    }

    /// Notes that newer rules were refused, so that those in force stay.
    pub fn refuse(&self) {
        self.0.state.lock().refused.get_or_insert_with(Instant::now);
    }

    /// Returns what a report says about the rules now.
    #[must_use]
    pub fn reported(&self) -> ReportedRules {
        let state = *self.0.state.lock();
        let whole = |duration: Duration| Duration::from_millis(duration.as_millis() as u64);
        ReportedRules {
            source: self.0.source.clone(),
            digest: state.digest,
            age: whole(state.since.elapsed()),
            refused: state.refused.map(|at| whole(at.elapsed())),
        }
    }

    /// Returns whether both are clones of the same rules.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns a reference that does not keep the store showing.
    #[must_use]
    pub fn downgrade(&self) -> WeakRulesInForce {
        WeakRulesInForce(Arc::downgrade(&self.0))
    }
}

/// Refers to rules that nobody may hold any more.
#[derive(Debug)]
pub struct WeakRulesInForce(Weak<Shown>);

impl WeakRulesInForce {
    /// Returns the rules while somebody holds them.
    pub fn upgrade(&self) -> Option<RulesInForce> {
        self.0.upgrade().map(RulesInForce)
    }
}

/// The rules of one handle, as a [`ReplicaReport`](super::ReplicaReport) has them. `Display` writes the
/// digest, both times in milliseconds, and the source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReportedRules {
    /// The source, such as a path.
    pub source: String,
    /// The digest of the rules in force. `None` when there are none.
    pub digest: Option<RulesDigest>,
    /// The time since which they are in force, in whole milliseconds before the report.
    pub age: Duration,
    /// The time since which newer rules are refused. `None` when the newest ones are in force.
    pub refused: Option<Duration>,
}

impl fmt::Display for ReportedRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.digest {
            Some(digest) => write!(f, "{digest}")?,
            None => f.write_str("-")?,
        }
        write!(f, " {} ", self.age.as_millis())?;
        match self.refused {
            Some(refused) => write!(f, "{}", refused.as_millis())?,
            None => f.write_str("-")?,
        }
        write!(f, " {}", self.source)
    }
}

impl FromStr for ReportedRules {
    type Err = Error;

    /// Parses what `Display` writes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for any other text.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut parts = text.splitn(4, ' ');
        let mut part = || {
            parts.next().ok_or_else(|| {
                Error::config("reported rules must have a digest, two times and a source")
            })
        };
        let time = |text: &str| {
            text.parse().map(Duration::from_millis).map_err(|_| {
                Error::config("the times of reported rules must be whole milliseconds")
            })
        };
        let known = |text: &&str| *text != "-";
        Ok(Self {
            digest: Some(part()?).filter(known).map(str::parse).transpose()?,
            age: time(part()?)?,
            refused: Some(part()?).filter(known).map(time).transpose()?,
            source: part()?.to_owned(),
        })
    }
}

crate::debug_fields! { RulesInForce: source = .source(), digest = .digest() }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rules_keep_their_age_and_end_a_refusal() {
        let rules = RulesInForce::new("rules.yaml");
        rules.enforce(RulesDigest::new([1; 8]));
        let since = rules.0.state.lock().since;
        rules.refuse();
        let refused = rules.0.state.lock().refused;
        assert!(refused.is_some());
        rules.refuse();
        assert_eq!(
            rules.0.state.lock().refused,
            refused,
            "the first refusal counts"
        );
        rules.enforce(RulesDigest::new([1; 8]));
        let state = *rules.0.state.lock();
        assert_eq!((state.since, state.refused), (since, None));
        rules.enforce(RulesDigest::new([2; 8]));
        assert!(rules.0.state.lock().since >= since);
    }

    #[test]
    fn a_digest_is_16_digits_of_any_hash_up_to_64() {
        let sum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let digest: RulesDigest = sum.parse().expect("a digest");
        assert_eq!(digest.to_string(), sum[..16]);
        let upper = sum[..16].to_uppercase();
        assert_eq!(upper.parse::<RulesDigest>().expect("a digest"), digest);
        let long = format!("{sum}0");
        for text in [
            "",
            "e3b0c44298fc1c1",
            "e3b0c44298fc1c1g",
            "+3b0c44298fc1c14",
            &long,
        ] {
            let error = text.parse::<RulesDigest>().expect_err(text);
            assert!(
                error.to_string().contains("16 to 64 hexadecimal"),
                "{error}"
            );
        }
    }
}
