use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::redis::{
    connect::{Connection, Numbered},
    protocol::Script,
};

/// The scripts that were sent on the current connection by their bodies, so that the server knows them.
#[derive(Debug, Default)]
pub(super) struct KnownScripts(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    connection: u64,
    shas: HashSet<String>,
    /// The last one. Most calls are of the same script.
    last: String,
}

/// The most scripts that are known of. With one more, all are sent by their bodies again.
const MOST_SCRIPTS: usize = 4_096;

impl KnownScripts {
    /// Returns whether the server knows the script. It knows the script for the next call in any case.
    pub(super) fn know(&self, connection: &Connection, script: &Script) -> bool {
        let mut known = self.lock();
        if known.connection != connection.number() || known.shas.len() > MOST_SCRIPTS {
            *known = Known { connection: connection.number(), ..Known::default() };
        }
        if known.last == script.sha {
            return true;
        }
        known.last.clone_from(&script.sha);
        !known.shas.insert(script.sha.clone())
    }

    /// Forgets all scripts, because the server has.
    pub(super) fn forget(&self) {
        *self.lock() = Known::default();
    }

    /// A panic cannot leave a partial set behind this lock, so a poisoned lock is used as it is.
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
