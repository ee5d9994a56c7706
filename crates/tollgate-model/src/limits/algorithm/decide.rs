//! The steps of a decision over one policy, and the decision that takes them.
//! What changes a state after its decision is in `adjust.rs`, its bytes and numbers are in
//! `meter.rs`. A decision over several policies is in `store/step.rs`.

use super::level::{PolicyLevel, Reading};
use crate::{Policy, charge::Ask};

/// Decides with the state of one key, step by step.
///
/// A *current* state is one that [`advance`](Self::advance) returned. All other steps expect one.
pub(crate) trait Decide: Sized {
    /// A state that admits a check may be in debt. Only a sliding window counts a debt of the
    /// window before.
    const ADMITS_IN_DEBT: bool = false;

    /// Returns this state at `now_us` under `policy`, without a debt that is paid, and whether it
    /// had to be mended.
    ///
    /// `stored_interval` is the [interval](Policy::interval_us) of the policy that stored the
    /// state, if this policy has another one.
    fn advance(
        &mut self,
        policy: &Policy,
        stored_interval: Option<f64>,
        now_us: u64,
    ) -> (Self, bool);

    /// Returns whether advancing moved this state out instead of copying it.
    fn is_moved(&self) -> bool {
        false
    }

    /// Returns whether `ask` fits.
    fn fits(&self, policy: &Policy, now_us: u64, ask: Ask) -> bool;

    /// Spends a cost that fits. Only a sliding log stores the tag.
    fn charge(&mut self, policy: &Policy, now_us: u64, cost: u64, tag: &[u8]);

    /// Notes whether the state is in debt, before it is stored. A state that was in debt already,
    /// and was not advanced since, stays so while it owes something.
    fn note_debt(&mut self, _policy: &Policy, _stored_interval: Option<f64>, _now_us: u64) {}

    /// Returns the reading of this state. `denied` is what did not fit, or nothing.
    fn reading(&self, policy: &Policy, now_us: u64, denied: Ask) -> Reading;

    /// Returns the reading of a check that charges nothing to this stored state. It is not converted
    /// then, so its units return at the rate at which it was stored. `None` when the reading is that
    /// of the current state.
    fn reading_as_stored(
        &self,
        _policy: &Policy,
        _stored_interval: f64,
        _now_us: u64,
        _ask: Ask,
    ) -> Option<Reading> {
        None
    }

    /// Decides for a set of one policy, in place. Returns the level, and whether the state was
    /// changed.
    #[inline(always)]
    fn decide(
        &mut self,
        policy: &Policy,
        stored_interval: Option<f64>,
        now_us: u64,
        ask: Ask,
        tag: &[u8],
    ) -> (PolicyLevel, bool) {
        decide_by_steps(self, policy, stored_interval, now_us, ask, tag)
    }
}

/// Decides for a set of one policy, in place, as [`Decide::decide`] does.
///
/// Inlined: the steps of each algorithm then compile into one function, without calls between them,
/// and without a ceiling into another one.
#[inline(always)]
pub(super) fn decide_by_steps<S: Decide>(
    stored: &mut S,
    policy: &Policy,
    stored_interval: Option<f64>,
    now_us: u64,
    ask: Ask,
    tag: &[u8],
) -> (PolicyLevel, bool) {
    let (mut state, mended) = stored.advance(policy, stored_interval, now_us);
    let fits = state.fits(policy, now_us, ask);
    let is_charged = fits && ask.cost > 0;
    if is_charged {
        state.charge(policy, now_us, ask.cost, tag);
    }
    let denied = ask.denied_unless(fits);
    let as_stored = match stored_interval {
        Some(interval) if !is_charged => stored.reading_as_stored(policy, interval, now_us, denied),
        _ => None,
    };
    let reading = as_stored.unwrap_or_else(|| state.reading(policy, now_us, denied));
    let is_written = is_charged || (mended && ask.cost > 0);
    if is_written {
        // A ceiling may let any state go into debt.
        if S::ADMITS_IN_DEBT || !is_charged || ask.ceiling.is_some() {
            state.note_debt(policy, None, now_us);
        }
        *stored = state;
    } else if !mended && state.is_moved() {
        *stored = state;
    }
    (PolicyLevel { fits, reading }, is_written)
}
