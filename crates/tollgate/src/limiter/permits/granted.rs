use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use tokio::sync::Notify;

/// The permits that the store granted to this replica for one key, until they are lost. Permits of the same grant
/// share it.
#[derive(Debug)]
pub(super) struct Granted {
    /// The time on the clock of this replica at which the permits lapse unless they are renewed.
    until_us: AtomicU64,
    is_lost: AtomicBool,
    lost: Notify,
}

impl Granted {
    pub(super) fn new(until_us: u64) -> Self {
        Self { until_us: AtomicU64::new(until_us), is_lost: AtomicBool::new(false), lost: Notify::new() }
    }

    /// Returns whether the permits are lost.
    #[inline]
    pub(super) fn is_lost(&self, now_us: u64) -> bool {
        now_us >= self.until_us() || self.is_lost.load(Ordering::Acquire)
    }

    pub(super) fn until_us(&self) -> u64 {
        self.until_us.load(Ordering::Acquire)
    }

    /// Renews the permits until `until_us`, unless they last longer already.
    pub(super) fn renew(&self, until_us: u64) {
        self.until_us.fetch_max(until_us, Ordering::AcqRel);
    }

    /// Marks the permits as lost: the store does not hold them any more.
    pub(super) fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
        self.lost.notify_waiters();
    }

    /// Waits until the permits are lost. Without a runtime, waits for the store to say so.
    pub(super) async fn lost(&self, now_us: impl Fn() -> u64) {
        loop {
            let lost = self.lost.notified();
            let now_us = now_us();
            if self.is_lost(now_us) {
                return;
            }
            // The clock of tokio may stand still while the system sleeps. So the pause is short.
            let left_us = (self.until_us() - now_us).min(LONGEST_PAUSE_US);
            if tokio::runtime::Handle::try_current().is_ok() {
                // Rounded up, so that the permits have lapsed after the last pause.
                let pause = Duration::from_millis(left_us / 1_000 + 1);
                let _ = tokio::time::timeout(pause, lost).await;
            } else {
                lost.await;
            }
        }
    }
}

/// The longest pause before the clock is read again.
const LONGEST_PAUSE_US: u64 = 1_000_000;
