//! Collects log lines for a test.

use std::{
    io,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use tracing::{
    Dispatch, Level,
    dispatcher::{self, DefaultGuard},
};

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
        // A second subscriber that is never dropped. With a single one, a thread without a
        // subscriber could disable an event for the whole process.
        static SECOND: LazyLock<Dispatch> =
            LazyLock::new(|| Log::default().collector(Level::TRACE));
        LazyLock::force(&SECOND);
        let log = Self::default();
        let guard = dispatcher::set_default(&log.collector(level));
        (log, guard)
    }

    fn collector(&self, level: Level) -> Dispatch {
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false);
        Dispatch::new(subscriber.with_writer(move || writer.clone()).finish())
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
