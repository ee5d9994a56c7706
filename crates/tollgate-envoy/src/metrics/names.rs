//! Keeps the number and the length of names in bounds, because clients can choose parts of them.
//! What is counted under a name is decided in `registry.rs`.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use foldhash::fast::RandomState;
use tollgate::{Key, KeySecret};

/// Bounds the names. A name may have values of requests, and these have no end.
const MAX_NAMES: usize = 10_000;

/// Bounds the bytes of a name, and with them the memory of all names.
const MAX_BYTES: usize = 256;

/// The bytes of the digest at the end of a name that was cut. Different names stay different.
const DIGEST: usize = 12;

/// Takes the counts of names beyond the bound.
const OTHER: &str = "other";

/// Stores counters by name, up to a bound.
#[derive(Debug, Default)]
pub(super) struct Names<T> {
    by_name: RwLock<HashMap<Box<str>, Arc<T>, RandomState>>,
}

impl<T: Default> Names<T> {
    /// Runs a function on the counters with this name.
    ///
    /// A name of more than 256 bytes is cut, and control characters become `_`.
    pub(super) fn with<R>(&self, name: &str, run: impl FnOnce(&T) -> R) -> R {
        let found = self
            .by_name
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .map(Arc::clone);
        match found {
            Some(found) => run(&found),
            None => run(&self.insert(&bounded(name))),
        }
    }

    fn insert(&self, name: &str) -> Arc<T> {
        let mut by_name = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        let name = if by_name.len() < MAX_NAMES || by_name.contains_key(name) {
            name
        } else {
            OTHER
        };
        Arc::clone(by_name.entry(name.into()).or_default())
    }

    /// Returns all names and their counters, in the order of the names.
    pub(super) fn sorted(&self) -> Vec<(Box<str>, Arc<T>)> {
        let by_name = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = by_name
            .iter()
            .map(|(name, counters)| (name.clone(), Arc::clone(counters)))
            .collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        all
    }
}

/// Returns the name that is stored. The pages and lines of metrics then have one line for each
/// name.
pub(crate) fn bounded(name: &str) -> Cow<'_, str> {
    let is_long = name.len() > MAX_BYTES;
    if !is_long && !name.contains(char::is_control) {
        return name.into();
    }
    let fits = |end: &usize| name.is_char_boundary(*end);
    let end = if is_long {
        (0..MAX_BYTES - DIGEST).rev().find(fits).unwrap_or(0)
    } else {
        name.len()
    };
    let mut shown = name[..end].replace(char::is_control, "_");
    if is_long {
        // The digest is the same in every process, so that the counts of replicas can be added.
        let digest = Key::secret(name, &KeySecret::new(b"name of a metric"));
        shown.push('_');
        shown.push_str(&digest.encoded()[1..=DIGEST]);
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn names_beyond_the_bound_are_counted_together() {
        let names = Names::<AtomicU64>::default();
        for name in 0..MAX_NAMES + 5 {
            names.with(&name.to_string(), |count| {
                count.fetch_add(1, Ordering::Relaxed)
            });
        }
        let all = names.sorted();
        assert_eq!(all.len(), MAX_NAMES + 1);
        let other = all.iter().find(|(name, _)| **name == *OTHER).unwrap();
        assert_eq!(other.1.load(Ordering::Relaxed), 5);
    }
}
