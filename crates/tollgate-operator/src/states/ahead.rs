//! Looks when a cost fits a state.
//! Whether it fits now is seen from the state alone, in `entry.rs`.

use tollgate::store::StoredState;

use super::{entry::StateEntry, server::Server};
use crate::error::OperatorError;

/// Sets the time after which `cost` units fit each state whose quota is known.
///
/// # Errors
///
/// When the server does not answer, or refuses.
pub async fn look_ahead(
    server: &mut Server,
    states: &mut [StateEntry],
    cost: u64,
) -> Result<(), OperatorError> {
    for state in states {
        let Some(quota) = &state.known_quota else {
            continue;
        };
        let (stored, now_us) = state.reading.stored();
        state.fits_after_us = match (stored, quota.burst().checked_sub(cost)) {
            (StoredState::SlidingLog { .. }, Some(room)) => {
                // The cost fits when the unit behind those that may be inside has left. It is
                // absent when fewer are inside.
                let leaves_us = server.unit(&state.redis_key, room).await?.unwrap_or(0);
                let period_us = u64::try_from(quota.period().as_micros()).unwrap_or(u64::MAX);
                let fits_us = if leaves_us > 0 {
                    leaves_us.saturating_add(period_us)
                } else {
                    0
                };
                Some(if cost > 0 {
                    fits_us.saturating_sub(now_us)
                } else {
                    0
                })
            }
            _ => stored
                .fits_after(now_us, cost, quota)
                .and_then(|wait| u64::try_from(wait.as_micros()).ok()),
        };
    }
    Ok(())
}
