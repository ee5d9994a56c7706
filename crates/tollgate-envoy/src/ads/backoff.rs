//! How long the client of a control plane waits before it connects again.
//! When it does so is decided in `client.rs`. The store has waits of its own, in the core.

use std::time::Duration;

/// Sets the waits between two connections to a control plane.
///
/// The first wait is `initial`, and each further one is twice as long, up to `max`. After a
/// connection that brought rules, the waits start over. Each wait is changed by a random share of
/// up to `jitter`, so that many services do not connect at the same moment. It stays between
/// `initial` and `max`.
///
/// ```
/// use std::time::Duration;
/// use tollgate_envoy::Backoff;
///
/// let backoff = Backoff::default();
/// assert_eq!((backoff.initial, backoff.max), (Duration::from_secs(10), Duration::from_secs(60)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The first wait, and the shortest.
    pub initial: Duration,
    /// The longest wait.
    pub max: Duration,
    /// The largest share by which a wait is changed, from 0 to 1.
    pub jitter: f64,
}

impl Default for Backoff {
    /// Returns 10 to 60 seconds with a jitter of one half.
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(10),
            max: Duration::from_secs(60),
            jitter: 0.5,
        }
    }
}

impl Backoff {
    /// Returns the wait after `failures` connections in a row that brought no rules. `random` is
    /// from 0 to 1.
    pub(super) fn wait(&self, failures: u32, random: f64) -> Duration {
        let doubled = self.initial.saturating_mul(
            1_u32
                .checked_shl(failures.saturating_sub(1))
                .unwrap_or(u32::MAX),
        );
        let wait = doubled.min(self.max);
        let jitter = if self.jitter.is_finite() {
            self.jitter.clamp(0.0, 1.0)
        } else {
            0.0
        };
        let changed = wait.mul_f64(1.0 + jitter * (2.0 * random - 1.0));
        changed.clamp(self.initial.min(self.max), self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_from_ten_to_sixty_seconds() {
        let backoff = Backoff::default();
        let waits: Vec<_> = (0..=6)
            .map(|failures| backoff.wait(failures, 0.5).as_secs())
            .collect();
        assert_eq!(waits, [10, 10, 20, 40, 60, 60, 60]);
        assert_eq!(backoff.wait(u32::MAX, 0.5).as_secs(), 60);
    }

    #[test]
    fn a_random_share_changes_a_wait_within_the_bounds() {
        let backoff = Backoff::default();
        assert_eq!(backoff.wait(2, 0.0).as_secs(), 10);
        assert_eq!(backoff.wait(2, 1.0).as_secs(), 30);
        assert_eq!(backoff.wait(9, 1.0).as_secs(), 60);
        assert_eq!(backoff.wait(1, 0.0).as_secs(), 10);
    }
}
