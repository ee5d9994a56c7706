//! The state of any algorithm.
//! It only passes the steps on: what they are is in `meter.rs`, and what they do in the file of
//! each algorithm.

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

/// Takes steps of [`Meter`] with the state of any algorithm.
macro_rules! steps {
    (
        &$of:ident { $($look:ident($($what:ident: $What:ty),*) -> $Seen:ty;)* }
        &mut $me:ident { $($change:ident($($by:ident: $By:ty),*) $(-> $Done:ty)?;)* }
    ) => {
        impl State {
            $(
                pub(crate) fn $look(&$of, $($what: $What),*) -> $Seen {
                    by_state!($of, state => Meter::$look(state, $($what),*))
                }
            )*

            $(
                pub(crate) fn $change(&mut $me, $($by: $By),*) $(-> $Done)? {
                    by_state!($me, state => Meter::$change(state, $($by),*))
                }
            )*
        }
    };
}

steps! {
    &self {
        is_moved() -> bool;
        fits(policy: &Policy, now_us: u64, ask: Ask) -> bool;
        held(policy: &Policy, other: f64, now_us: u64) -> Option<Policy>;
        keeps_pace(now_us: u64) -> bool;
        kept_words(policy: &Policy, pace: f64, now_us: u64, ask: Ask) -> Option<Words>;
        fresh_at(policy: &Policy) -> u64;
        expires_ms(policy: &Policy) -> u64;
        to_bytes(policy: &Policy, other: Option<f64>) -> Vec<u8>;
    }
    &mut self {
        charge(policy: &Policy, now_us: u64, cost: u64, tag: &[u8]);
        mark_held(policy: &Policy, other: Option<f64>, now_us: u64, was_marked: bool);
        owe(policy: &Policy, other: Option<f64>, now_us: u64, cost: u64) -> bool;
        remember(now_us: u64);
        mark_debt(policy: &Policy, now_us: u64);
        refund(refund: &Refund<'_>) -> bool;
    }
}

impl State {
    /// Returns the state of a key from which nothing was spent.
    pub(crate) fn fresh(algorithm: Algorithm) -> Self {
        by_algorithm!(algorithm, Of => Of::default().into())
    }

    /// Brings this state to `now_us` under `policy`. It was stored at the pace `other`, if that is
    /// not the policy's.
    ///
    /// A state on the heap [is moved out](Meter::is_moved) unless it had to be mended. The caller
    /// puts it back when it stores nothing.
    pub(crate) fn settle(&mut self, policy: &Policy, other: Option<f64>, now_us: u64) -> Settled {
        by_state!(self, state => {
            let (state, mended) = Meter::settle(state, policy, other, now_us);
            Settled { state: state.into(), mended }
        })
    }

    /// Brings this state to `now_us` for a settlement. Returns whether it was marked. A state on
    /// the heap is moved out, as by [`settle`](Self::settle).
    pub(crate) fn hold(&mut self, policy: &Policy, now_us: u64) -> (Self, bool) {
        by_state!(self, state => {
            let (state, was_marked) = Meter::hold(state, policy, now_us);
            (state.into(), was_marked)
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

    /// Returns what a look at this state reads: one that holds more than the quota, because that
    /// was lowered, is not corrected, because nothing is stored. It is read as a debt, unless it
    /// [is cut whenever it is read](Meter::IS_CUT_WHEN_READ).
    pub(crate) fn looked_at(&self) -> Self {
        let mut state = self.clone();
        by_state!(&mut state, state => Meter::mark_for_look(state));
        state
    }

    /// Returns the words of a settled state. `denied` is what did not fit, or nothing.
    pub(crate) fn words(&self, policy: &Policy, now_us: u64, denied: impl Into<Ask>) -> Words {
        let denied = denied.into();
        by_state!(self, state => Meter::words(state, policy, now_us, denied))
    }

    /// Reads the bytes of a state under `policy`, and the [number](Policy::number) that is stored
    /// with it, if the policy has another one.
    pub(crate) fn of_bytes(policy: &Policy, bytes: &[u8]) -> Option<(Self, Option<f64>)> {
        let (state, beside): (Self, f64) = by_algorithm!(policy.algorithm(), Of => {
            let (state, beside) = <Of as Meter>::of_bytes(bytes)?;
            (state.into(), beside)
        });
        let has_number = policy.algorithm().is_queued(false) || policy.algorithm().is_timed();
        let other = (has_number && beside != policy.number()).then_some(beside);
        Some((state, other))
    }
}
