//! Lines of the log for what may happen thousands of times a second. Their words are in `dial.rs`.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The least time between two lines.
const PAUSE: Duration = Duration::from_secs(60);

/// Counts events of a kind. The first one is a line, and later ones are counted until the next line
/// is due.
#[derive(Debug, Default)]
pub(crate) struct Seldom(Mutex<(Option<Instant>, u64)>);

impl Seldom {
    /// Counts an event. Returns how many there were since the last line when a line is due.
    pub(crate) fn count(&self) -> Option<u64> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, count) = &mut *held;
        *count += 1;
        if last.is_some_and(|last| last.elapsed() < PAUSE) {
            return None;
        }
        *last = Some(Instant::now());
        Some(std::mem::take(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_event_is_a_line_and_the_others_are_counted() {
        let events = Seldom::default();
        assert_eq!(events.count(), Some(1));
        for _ in 0..25_000 {
            assert_eq!(events.count(), None);
        }
        tokio::time::advance(PAUSE).await;
        assert_eq!(events.count(), Some(25_001));
        assert_eq!(events.count(), None);
    }
}
