//! Times in headers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate::PolicyState;

/// Returns whole seconds, rounded up.
#[inline]
pub(crate) fn round_up(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// Returns the time since the Unix epoch, by the clock of this machine.
pub(super) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the time until a policy has more units, or until the denied request fits when no unit is left. Clients come
/// back at that time when no unit is left, so only then it grows by the jitter.
#[inline]
pub(super) fn until_more(state: &PolicyState<'_>, jitter: Duration) -> Duration {
    if state.remaining() > 0 {
        return state.more_after();
    }
    more_or_retry_after(state).saturating_add(jitter)
}

/// Returns the time until the denied request fits, or until an allowed request leaves one unit more.
#[inline]
pub(super) fn more_or_retry_after(state: &PolicyState<'_>) -> Duration {
    state.retry_after().unwrap_or_else(|| state.more_after())
}

/// Returns whole milliseconds, rounded up.
pub(crate) fn round_up_to_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Converts a reset time in seconds to a delay. Servers write either seconds from now or seconds since the Unix epoch.
pub(crate) fn from_now(reset: u64) -> Duration {
    let reset = Duration::from_secs(reset);
    // A delay of more than 30 years must be a time since the epoch.
    if reset.as_secs() > 1_000_000_000 { reset.saturating_sub(since_epoch()) } else { reset }
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
