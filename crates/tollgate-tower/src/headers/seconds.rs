//! Times in headers.

use std::time::Duration;

use tollgate::PolicyState;

/// Returns whole seconds, rounded up.
#[inline]
pub(crate) fn round_up(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// Returns the time until a policy has more units, or until the denied request fits when no unit is left.
#[inline]
pub(super) fn until_more(state: &PolicyState<'_>) -> Duration {
    match state.retry_after() {
        Some(retry_after) if state.remaining() == 0 => retry_after,
        _ => state.more_after(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!(round_up(Duration::ZERO), 0);
        assert_eq!(round_up(Duration::from_micros(1)), 1);
        assert_eq!(round_up(Duration::from_secs(1)), 1);
        assert_eq!(round_up(Duration::from_micros(1_000_001)), 2);
    }
}
