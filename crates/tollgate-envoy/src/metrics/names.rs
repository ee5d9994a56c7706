use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use foldhash::fast::RandomState;

/// Bounds the names. A name may have values of requests, of which there is no end.
const MAX_NAMES: usize = 10_000;

/// Takes the counts of names beyond the bound.
const OTHER: &str = "other";

/// Stores counters by name, up to a bound.
#[derive(Debug, Default)]
pub(super) struct Names<T> {
    by_name: RwLock<HashMap<Box<str>, Arc<T>, RandomState>>,
}

impl<T: Default> Names<T> {
    /// Runs a function on the counters with this name.
    pub(super) fn with<R>(&self, name: &str, run: impl FnOnce(&T) -> R) -> R {
        let found = self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name).map(Arc::clone);
        match found {
            Some(found) => run(&found),
            None => run(&self.insert(name)),
        }
    }

    fn insert(&self, name: &str) -> Arc<T> {
        let mut by_name = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        let name = if by_name.len() < MAX_NAMES || by_name.contains_key(name) { name } else { OTHER };
        Arc::clone(by_name.entry(name.into()).or_default())
    }

    /// Returns all names and their counters, in the order of the names.
    pub(super) fn sorted(&self) -> Vec<(Box<str>, Arc<T>)> {
        let by_name = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = by_name.iter().map(|(name, counters)| (name.clone(), Arc::clone(counters))).collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        all
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn names_beyond_the_bound_are_counted_together() {
        let names = Names::<AtomicU64>::default();
        for name in 0..MAX_NAMES + 5 {
            names.with(&name.to_string(), |count| count.fetch_add(1, Ordering::Relaxed));
        }
        let all = names.sorted();
        assert_eq!(all.len(), MAX_NAMES + 1);
        let other = all.iter().find(|(name, _)| **name == *OTHER).unwrap();
        assert_eq!(other.1.load(Ordering::Relaxed), 5);
    }
}
