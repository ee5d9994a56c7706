use std::sync::atomic::{AtomicU8, Ordering};

/// Tells whether anything waits for the server or is under way to it. It is a hint: nothing depends on it but speed.
#[derive(Debug)]
pub(super) struct Traffic(AtomicU8);

/// Nothing waits, and nothing is under way.
const NONE: u8 = 0;

/// One check was sent by its caller.
const DIRECT: u8 = 1;

/// The worker has checks to send, or waits for answers.
const QUEUED: u8 = 2;

impl Traffic {
    /// Creates the hint for a server without a worker, which has to be started first.
    pub(super) fn new() -> Self {
        Self(AtomicU8::new(QUEUED))
    }

    /// Notes that a check was queued.
    pub(super) fn queued(&self) {
        self.0.store(QUEUED, Ordering::Relaxed);
    }

    /// Notes that the worker has nothing to do.
    pub(super) fn rests(&self) {
        self.0.store(NONE, Ordering::Relaxed);
    }

    /// Returns whether the caller may send its check. If so, no other caller may until it is answered.
    pub(super) fn begins_direct(&self) -> bool {
        self.0.compare_exchange(NONE, DIRECT, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Notes that a check that its caller sent was answered, or given up.
    pub(super) fn ends_direct(&self) {
        let _ = self.0.compare_exchange(DIRECT, NONE, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_at_a_time_sends_its_check_and_none_while_checks_are_queued() {
        let traffic = Traffic::new();
        assert!(!traffic.begins_direct(), "no worker rests yet");
        traffic.rests();
        assert!(traffic.begins_direct() && !traffic.begins_direct());
        traffic.ends_direct();
        assert!(traffic.begins_direct());
        traffic.queued();
        traffic.ends_direct();
        assert!(!traffic.begins_direct(), "the end of a direct check does not hide the queue");
        traffic.rests();
        assert!(traffic.begins_direct());
    }
}
