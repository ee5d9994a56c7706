//! Selects how keys are shown.
//! Nothing is stored under a digest: it is for people who may not see keys. States are found in
//! `lookup.rs`.

use tollgate::{KeySecret, limiter::DeniedKeys};

use super::entry::StateEntry;

/// Selects the names of keys.
///
/// ```
/// use tollgate_operator::states::Names;
///
/// let names = Names::digests(Some(b"a secret"));
/// assert_ne!(names.digest("acme"), names.digest("other"));
/// assert_eq!(Names::Plain.digest("acme"), None);
/// ```
#[derive(Debug)]
pub enum Names {
    /// The keys themselves.
    Plain,
    /// Digests of them with this secret.
    Digests(KeySecret),
}

impl Names {
    /// Creates digests with this secret, or with that of this process.
    #[must_use]
    pub fn digests(secret: Option<&[u8]>) -> Self {
        Self::Digests(secret.map_or_else(DeniedKeys::process_secret, KeySecret::new))
    }

    /// Sets the name of the key of a state.
    pub fn apply(&self, entry: &mut StateEntry) {
        if let Some(name) = self.digest(&entry.subject) {
            entry.rename(name);
        }
    }

    /// Returns the digest of an encoded key, as `DeniedKeys` names it.
    #[must_use]
    pub fn digest(&self, subject: &str) -> Option<String> {
        match self {
            Self::Digests(secret) => Some(DeniedKeys::digest_of(subject, secret)),
            Self::Plain => None,
        }
    }
}
