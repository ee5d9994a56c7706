//! The state of any algorithm, and the steps of a decision.

use super::{
    Algorithm, Meter, Refund, State, by_algorithm, by_state,
    table::{PolicyLevel, Words},
};
use crate::{Policy, model::charge::Ask};

/// A state that was brought to the current time and the current quota.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    pub(crate) state: State,
    /// The state had to be mended. A mended state is stored even after a denial.
    pub(crate) mended: bool,
}

impl State {
    /// Returns the state of a key from which nothing was spent.
    pub(crate) fn fresh(algorithm: Algorithm) -> Self {
        by_algorithm!(algorithm, Of => Of::default().into())
    }

    /// Brings this state to `now_us` under `policy`. It was stored at the pace `other`, if that is
    /// not the policy's.
    ///
    /// A state on the heap [is moved out](Self::is_moved) unless it had to be mended. The caller
    /// puts it back when it stores nothing.
    pub(crate) fn settle(&mut self, policy: &Policy, other: Option<f64>, now_us: u64) -> Settled {
        by_state!(self, state => {
            let (state, mended) = Meter::settle(state, policy, other, now_us);
            Settled { state: state.into(), mended }
        })
    }

    /// Decides for a set of one policy, in place. Returns the level, and whether the state was
    /// changed.
    #[inline(always)]
    pub(crate) fn decide(
        &mut self,
        policy: &Policy,
        other: Option<f64>,
        now_us: u64,
        cost: u64,
        tag: &[u8],
    ) -> (PolicyLevel, bool) {
        by_state!(self, state => Meter::decide(state, policy, other, now_us, cost, tag))
    }

    /// Returns `true` when settling moved this state out instead of copying it.
    pub(crate) fn is_moved(&self) -> bool {
        by_state!(self, state => Meter::is_moved(state))
    }

    /// Returns `true` when `ask` fits a settled state.
    pub(crate) fn fits(&self, policy: &Policy, now_us: u64, ask: Ask) -> bool {
        by_state!(self, state => Meter::fits(state, policy, now_us, ask))
    }

    /// Spends `cost` from a settled state that it fits. Only a sliding log stores the tag.
    pub(crate) fn charge(&mut self, policy: &Policy, now_us: u64, cost: u64, tag: &[u8]) {
        by_state!(self, state => Meter::charge(state, policy, now_us, cost, tag));
    }

    /// Brings this state to `now_us` for a settlement. Returns whether it was marked. A state on
    /// the heap is moved out, as by [`settle`](Self::settle).
    pub(crate) fn hold(&mut self, policy: &Policy, now_us: u64) -> (Self, bool) {
        by_state!(self, state => {
            let (state, was_marked) = Meter::hold(state, policy, now_us);
            (state.into(), was_marked)
        })
    }

    /// Returns whether a held state keeps another pace.
    pub(crate) fn keeps_pace(&self, now_us: u64) -> bool {
        by_state!(self, state => Meter::keeps_pace(state, now_us))
    }

    /// Marks a held state, before it is stored.
    pub(crate) fn mark_held(
        &mut self,
        policy: &Policy,
        other: Option<f64>,
        now_us: u64,
        was_marked: bool,
    ) {
        by_state!(self, state => Meter::mark_held(state, policy, other, now_us, was_marked));
    }

    /// Returns the words of a check that charges nothing to this state, which was stored at another
    /// pace, when they are not those of the settled state.
    pub(crate) fn kept_words(
        &self,
        policy: &Policy,
        pace: f64,
        now_us: u64,
        ask: Ask,
    ) -> Option<Words> {
        by_state!(self, state => Meter::kept_words(state, policy, pace, now_us, ask))
    }

    /// Charges `cost` to a held state although it need not fit, up to [the most](Meter::most_spent)
    /// that is spent in debt. Returns whether the state is written.
    pub(crate) fn owe(
        &mut self,
        policy: &Policy,
        other: Option<f64>,
        now_us: u64,
        cost: u64,
    ) -> bool {
        by_state!(self, state => Meter::owe(state, policy, other, now_us, cost))
    }

    /// Lets a settled state that was charged by a reservation remember what a late refund has to
    /// know.
    pub(crate) fn remember(&mut self, now_us: u64) {
        by_state!(self, state => Meter::remember(state, now_us));
    }

    /// Marks a settled state that is in debt, before it is stored.
    pub(crate) fn mark_debt(&mut self, policy: &Policy, now_us: u64) {
        by_state!(self, state => Meter::mark_debt(state, policy, now_us));
    }

    /// Returns what a look at this state reads: one that holds more than the quota, because that
    /// was lowered, is not corrected, because nothing is stored. It is read as a debt.
    pub(crate) fn looked_at(&self) -> Self {
        let mut state = self.clone();
        by_state!(&mut state, state => Meter::mark_as_debt(state));
        state
    }

    /// Returns units to a held state. Returns whether the state is written.
    pub(crate) fn refund(&mut self, refund: &Refund<'_>) -> bool {
        by_state!(self, state => Meter::refund(state, refund))
    }

    /// Returns the words of a settled state. `denied` is what did not fit, or nothing.
    pub(crate) fn words(&self, policy: &Policy, now_us: u64, denied: impl Into<Ask>) -> Words {
        let denied = denied.into();
        by_state!(self, state => Meter::words(state, policy, now_us, denied))
    }

    /// Returns the time at which the state equals a fresh one. It is not after the current time
    /// when the state is fresh.
    pub(crate) fn fresh_at(&self, policy: &Policy) -> u64 {
        by_state!(self, state => Meter::fresh_at(state, policy))
    }

    /// Returns the time at which the stored bytes expire, in milliseconds since the Unix epoch.
    pub(crate) fn expires_ms(&self, policy: &Policy) -> u64 {
        by_state!(self, state => Meter::expires_ms(state, policy))
    }

    /// Returns the bytes that are stored.
    pub(crate) fn to_bytes(&self, policy: &Policy, other: Option<f64>) -> Vec<u8> {
        by_state!(self, state => Meter::to_bytes(state, policy, other))
    }

    /// Reads the bytes of a state under `policy`, and the pace at which it was stored, if that is
    /// not the policy's.
    pub(crate) fn of_bytes(policy: &Policy, bytes: &[u8]) -> Option<(Self, Option<f64>)> {
        let (state, beside): (Self, f64) = by_algorithm!(policy.algorithm(), Of => {
            let (state, beside) = <Of as Meter>::of_bytes(bytes)?;
            (state.into(), beside)
        });
        let has_pace = policy.algorithm().is_queued(false);
        Some((
            state,
            (has_pace && beside != policy.quota_ref().pace()).then_some(beside),
        ))
    }
}
