//! An observer that hands events to a task of the user, and never waits.
//! When an event is raised is decided in `watch.rs`.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::mpsc;

use super::{Event, Observer};

/// Creates an observer that hands its events to a task, through a queue of up to `capacity` events.
/// 0 counts as 1.
///
/// The observer never waits: an event that finds the queue full is dropped and
/// [counted](EventReceiver::dropped). So a slow receiver loses events, and delays no request.
/// Choose a capacity above the number of denials per second. An event takes a few hundred bytes,
/// and the memory of the queue grows with its use. No runtime is needed.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota, limiter::events};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// let (observer, mut events) = events::channel(2);
/// let limiter = Limiter::builder(MemoryStore::new())
///     .policies(Policy::token_bucket("api", Quota::per_hour(1)))
///     .observer(observer)
///     .build();
/// for _ in 0..5 {
///     let _ = limiter.check("acme").await?;
/// }
/// // One event for the first unit, which is more than 80 %, and four for denials.
/// assert_eq!(events.dropped(), 3);
///
/// drop(limiter);
/// let mut names = Vec::new();
/// while let Some(event) = events.recv().await {
///     names.push(event.name());
/// }
/// assert_eq!(names, ["near_limit", "denied"]);
/// # Ok(()) }
/// ```
#[must_use]
pub fn channel(capacity: usize) -> (ChannelObserver, EventReceiver) {
    let most = tokio::sync::Semaphore::MAX_PERMITS;
    let (sender, events) = mpsc::channel(capacity.clamp(1, most));
    let dropped = Arc::new(AtomicU64::new(0));
    (
        ChannelObserver {
            sender,
            dropped: Arc::clone(&dropped),
        },
        EventReceiver { events, dropped },
    )
}

/// Hands events to an [`EventReceiver`], and never waits. [`channel`] creates it. Clones share the
/// queue, so several limiters can use it.
#[derive(Clone)]
pub struct ChannelObserver {
    sender: mpsc::Sender<Event<'static>>,
    dropped: Arc<AtomicU64>,
}

impl Observer for ChannelObserver {
    fn event(&self, event: &Event<'_>) {
        // The event is copied when there is room for it.
        match self.sender.try_reserve() {
            Ok(room) => room.send(event.clone().into_owned()),
            Err(_) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

crate::debug_fields! { ChannelObserver: dropped, .. }

/// Receives the events of a [`ChannelObserver`], in the order in which they were raised.
pub struct EventReceiver {
    events: mpsc::Receiver<Event<'static>>,
    dropped: Arc<AtomicU64>,
}

impl EventReceiver {
    /// Waits for the next event. Returns `None` when no limiter has the observer any more, and all
    /// events were received.
    ///
    /// # Cancellation
    ///
    /// A dropped future loses no event.
    pub async fn recv(&mut self) -> Option<Event<'static>> {
        self.events.recv().await
    }

    /// Returns the next event if there is one, and does not wait.
    pub fn try_recv(&mut self) -> Option<Event<'static>> {
        self.events.try_recv().ok()
    }

    /// Returns how many events found the queue full and were dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

crate::debug_fields! { EventReceiver: waiting = .events.len(), dropped, .. }
