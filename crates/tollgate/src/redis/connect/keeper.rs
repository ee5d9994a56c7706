use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};

use super::connection::Wire;

/// The time without an answer after which a connection is no longer trusted. Twice as long at most.
const TICK: Duration = Duration::from_secs(1);

/// The number of ticks without an answer between two `PING`s.
const TICKS_BETWEEN_PINGS: u32 = 5;

/// A connection that ends sooner counts as short-lived.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// The bounds of the pause before a dial that follows a failed one, or the second of two short-lived connections. Each
/// next pause is twice as long.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Watches one connection, and replaces it at its end.
///
/// So the next check finds a connection that works, also after a rest. The server, a load balancer or a NAT closes
/// connections at rest, some of them without a word.
pub(super) struct Keeper<K> {
    /// The store may be dropped meanwhile.
    shared: Weak<K>,
    number: u64,
    wire: Arc<Wire>,
}

/// Holds a connection that a [`Keeper`] replaces.
pub(super) trait Kept {
    /// Drops the connection with this number, which is of no use any more. Returns whether it was the shared one.
    fn ended(&self, number: u64) -> bool;

    /// Counts connections that ended soon after they were made. Returns how many there were in a row.
    fn short_lives(&self, is_short: bool) -> u32;

    /// Dials the successor of the connection, or of the failed dial, with this number. Returns the number of a dial that
    /// failed, and `None` when there is a new connection or another caller dials.
    fn redial(&self, number: u64) -> impl Future<Output = Option<u64>> + Send;

    /// Gives the connection with this number up when the server does not answer on it.
    fn probe(&self, number: u64) -> impl Future<Output = ()> + Send;
}

impl<K: Kept> Keeper<K> {
    pub(super) fn new(shared: Weak<K>, number: u64, wire: Arc<Wire>) -> Self {
        Self { shared, number, wire }
    }

    pub(super) async fn run(self) {
        let began = Instant::now();
        if !self.until_ended().await {
            return;
        }
        let Some(shared) = self.shared.upgrade() else { return };
        if !shared.ended(self.number) {
            // Another connection has taken its place.
            return;
        }
        let mut pauses = shared.short_lives(began.elapsed() < SHORT_LIFE).saturating_sub(1);
        let mut number = self.number;
        drop(shared);
        loop {
            if pauses > 0 {
                sleep(pause(pauses)).await;
            }
            let Some(shared) = self.shared.upgrade() else { return };
            match shared.redial(number).await {
                Some(dialled) => number = dialled,
                // Another caller dials.
                None => return,
            }
            drop(shared);
            pauses += 1;
        }
    }

    /// Waits until the connection has ended. Returns `false` when the store is gone.
    async fn until_ended(&self) -> bool {
        let (mut answers, mut silent_ticks) = (self.wire.answers(), 0);
        loop {
            if timeout(TICK, self.wire.until_over()).await.is_ok() {
                return true;
            }
            let answers_now = self.wire.answers();
            if answers_now != answers {
                (answers, silent_ticks) = (answers_now, 0);
                continue;
            }
            self.wire.fell_silent();
            silent_ticks += 1;
            if Arc::strong_count(&self.wire) == 1 {
                return true;
            }
            let Some(shared) = self.shared.upgrade() else { return false };
            if silent_ticks % TICKS_BETWEEN_PINGS == 0 {
                shared.probe(self.number).await;
            }
        }
    }
}

impl<K> Drop for Keeper<K> {
    /// Gives the connection up. When the runtime was shut down, the task of the client library that drives the connection
    /// is gone too, without a notice.
    fn drop(&mut self) {
        self.wire.give_up();
    }
}

/// Returns a random pause. Its longest value doubles with each step.
fn pause(step: u32) -> Duration {
    (PAUSES.0 * 2_u32.pow(step.min(6) - 1)).min(PAUSES.1).mul_f64(0.5 + 0.5 * fastrand::f64())
}
