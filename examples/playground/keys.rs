//! The key that is charged, and the number of keys in use.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::problem::FieldError;

/// The most keys that a playground charges. It bounds the memory of the store.
const MAX_KEYS: usize = 100;

/// The longest key, in bytes.
const MAX_LENGTH: usize = 64;

/// Holds the key of requests that name none, and every key in use.
#[derive(Debug)]
pub(crate) struct Keys(Mutex<State>);

#[derive(Debug)]
struct State {
    current: String,
    used: HashSet<String>,
}

impl Keys {
    pub(crate) fn new(current: &str) -> Self {
        Self(Mutex::new(State {
            current: current.to_owned(),
            used: HashSet::from([current.to_owned()]),
        }))
    }

    pub(crate) fn current(&self) -> String {
        self.lock().current.clone()
    }

    /// Allows requests for this key.
    ///
    /// # Errors
    ///
    /// Refuses an empty key, a key of more than 64 bytes, and the 101st key.
    pub(crate) fn admit(&self, key: &str) -> Result<(), FieldError> {
        if key.is_empty() || key.len() > MAX_LENGTH {
            let message = format!("key must have 1 to {MAX_LENGTH} bytes, got {}", key.len());
            return Err(FieldError::new("key", key, message));
        }
        let mut state = self.lock();
        if !state.used.contains(key) {
            if state.used.len() >= MAX_KEYS {
                let message = format!(
                    "key must be one of the {MAX_KEYS} keys in use, got {key:?}: restart to use others"
                );
                return Err(FieldError::new("key", key, message));
            }
            state.used.insert(key.to_owned());
        }
        Ok(())
    }

    /// Sets the key of requests that name none.
    ///
    /// # Errors
    ///
    /// As [`admit`](Self::admit).
    pub(crate) fn set(&self, key: &str) -> Result<(), FieldError> {
        self.admit(key)?;
        self.lock().current = key.to_owned();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_keys_is_refused_and_known_keys_still_work() {
        let keys = Keys::new("demo");
        let refused = (0..10_000)
            .filter(|at| keys.admit(&format!("k{at}")).is_err())
            .count();
        assert_eq!(refused, 10_000 - (MAX_KEYS - 1));
        assert!(keys.admit("demo").is_ok() && keys.admit("k0").is_ok());
        let error = keys.set("k9999").expect_err("it is not in use");
        assert_eq!(
            (error.field.as_str(), error.value.as_str()),
            ("key", "k9999")
        );
        assert_eq!(keys.current(), "demo");
    }

    #[test]
    fn an_empty_key_and_a_long_key_are_refused() {
        let keys = Keys::new("demo");
        assert_eq!(
            keys.admit("").expect_err("empty").message,
            "key must have 1 to 64 bytes, got 0"
        );
        assert!(keys.admit(&"k".repeat(65)).is_err());
        assert!(keys.admit(&"k".repeat(64)).is_ok());
    }
}
