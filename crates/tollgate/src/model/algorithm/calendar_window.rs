//! One counter per period of a calendar: a local day, week, month or year.
//!
//! The state is that of a [fixed window](super::fixed_window): the start of the period and the units spent in it. The
//! calendar of the policy has the end of the period, which keeps the state as small as the others.

use super::{fixed_window::State, numbers::Words};
use crate::{Policy, model::calendar::Periods};

/// Brings the state to the current period. `periods` are those around the current time.
pub(super) fn settle(state: &mut State, periods: Periods) -> bool {
    let start = state.start_us;
    let is_old = state.count == 0 || start < periods.begin;
    if !is_old && start == periods.close {
        // The next period, because the clock went back a little.
        return false;
    }
    // Units of the current period, of one that another calendar started within it, or of one that lies impossibly far
    // ahead.
    let count = if is_old { 0 } else { state.count };
    *state = State { start_us: periods.begin, count };
    !is_old && start > periods.close
}

/// Returns the state that has these words at the time around which `periods` are.
#[cfg(feature = "redis")]
pub(super) fn of_words(words: &Words, periods: Periods, now_us: u64) -> State {
    let is_next = now_us + words[1] > periods.close;
    State { start_us: if is_next { periods.close } else { periods.begin }, count: words[0] }
}

/// Returns the words of a settled state. `periods` are those around the current time.
pub(super) fn words(state: &State, periods: Periods, now_us: u64) -> Words {
    let end_us = if state.start_us == periods.close { periods.after } else { periods.close };
    [state.count, end_us - now_us, 0, 0]
}

pub(super) fn fresh_at(state: &State, policy: &Policy) -> u64 {
    if state.count == 0 { 0 } else { policy.periods(state.start_us).close }
}

/// Returns the bytes that the script stores.
#[cfg(feature = "testing")]
pub(super) fn to_bytes(state: &State, policy: &Policy) -> Vec<u8> {
    super::stored::doubles(&[state.start_us, state.count, policy.periods(state.start_us).close])
}
