//! Collects log lines for a test.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tracing::{Level, subscriber::DefaultGuard};

/// Collects all text that is written to it. Clones share the text.
///
/// ```
/// use std::io::Write;
/// use tollgate_tests::Log;
///
/// let log = Log::default();
/// log.clone().write_all(b"a line").unwrap();
/// assert_eq!(log.text(), "a line");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Collects what this thread logs from now on, until the guard is dropped.
    #[must_use]
    pub fn of_this_thread() -> (Self, DefaultGuard) {
        Self::of_this_thread_from(Level::INFO)
    }

    /// Collects what this thread logs at this level or above, until the guard is dropped.
    #[must_use]
    pub fn of_this_thread_from(level: Level) -> (Self, DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt().with_max_level(level).with_ansi(false);
        let writer = log.clone();
        let guard = tracing::subscriber::set_default(subscriber.with_writer(move || writer.clone()).finish());
        (log, guard)
    }

    /// Returns the text so far. Invalid UTF-8 is replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.lock()).into_owned()
    }

    /// A poisoned lock is used on: a panic of a writer leaves whole lines behind.
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
