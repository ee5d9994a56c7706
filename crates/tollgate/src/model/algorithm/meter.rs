//! The steps that every algorithm has.
//! Nothing here is of one algorithm: each has its own file. The choice among them is made in
//! `state.rs`.

use std::ops::Range;

use super::{
    StoredState, debt,
    table::{Numbers, PolicyLevel, Words},
};
use crate::{
    Policy,
    model::{charge::Ask, quota::Span},
};

/// The units that come back to a held state.
///
/// `end` is the end of the places that a request has in a queue or in a debt, or the time at which
/// a token bucket would have been full. Only the last places are taken back: the requests behind
/// keep their turns, and a place between them would be given to two requests. `None` returns the
/// last places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refund<'a> {
    pub(crate) policy: &'a Policy,
    /// The pace at which the state was stored, if that is another one.
    pub(crate) other: Option<f64>,
    pub(crate) now_us: u64,
    /// The time at which the units were spent.
    pub(crate) spent_us: u64,
    /// The most units that come back.
    pub(crate) cost: u64,
    pub(crate) end: Option<Span>,
}

/// Meters a policy: the state of one key, and the steps of a decision.
///
/// Each algorithm has one type with this trait, in a file of its name. [`State`](super::State)
/// calls it by a `match` over the [table](super::table), without a pointer. A *settled* state is
/// one that [`settle`](Self::settle) returned. All methods but that one,
/// [`mark_as_debt`](Self::mark_as_debt) and the bytes expect a settled state.
///
/// `other` is the [number](Policy::number) that the policy which stored the state has, if this
/// policy has another one: the pace of a bucket, or the period of a window.
pub(crate) trait Meter: Sized + Clone + Default {
    /// A state that admits a check may be in debt. Only a sliding window counts a debt of the
    /// window before.
    const ADMITS_IN_DEBT: bool = false;

    /// A state that holds more than a lowered quota is cut to it whenever it is read, and not only
    /// when it is stored. A look then reads what a check reads.
    const IS_CUT_WHEN_READ: bool = false;

    /// Returns this state at `now_us` under `policy`, and whether it had to be mended.
    fn settle(&mut self, policy: &Policy, other: Option<f64>, now_us: u64) -> (Self, bool);

    /// Returns whether settling moved this state out instead of copying it.
    fn is_moved(&self) -> bool {
        false
    }

    /// Returns whether `ask` fits.
    fn fits(&self, policy: &Policy, now_us: u64, ask: Ask) -> bool;

    /// Spends a cost that fits. Only a sliding log stores the tag.
    fn charge(&mut self, policy: &Policy, now_us: u64, cost: u64, tag: &[u8]);

    /// Returns the units that are counted. A debt has a greatest number of them.
    fn spent(&self) -> u64 {
        0
    }

    /// Returns the policy by which a settlement reads this stored state, if it is another one: an
    /// open window ends when its own period is over.
    fn held(&self, _policy: &Policy, _other: f64, _now_us: u64) -> Option<Policy> {
        None
    }

    /// Returns this state at `now_us` for a settlement, and whether it was marked as a debt.
    ///
    /// A settlement comes with the policy of its decision, which others may have changed since. It
    /// returns or charges its own units, and corrects nothing: what another quota admitted stays.
    fn hold(&mut self, policy: &Policy, now_us: u64) -> (Self, bool) {
        (self.settle(policy, None, now_us).0, false)
    }

    /// Returns whether a held state keeps another pace: a bucket that is not full.
    fn keeps_pace(&self, _now_us: u64) -> bool {
        false
    }

    /// Marks a state that was [held](Self::hold), before it is stored.
    fn mark_held(&mut self, policy: &Policy, _other: Option<f64>, now_us: u64, was_marked: bool) {
        if was_marked {
            self.mark_as_debt();
        } else {
            self.mark_debt(policy, now_us);
        }
    }

    /// Returns the words for a check that charges nothing, if they differ from those of the settled
    /// state: this one stays as it was stored, at another pace, and its units return at that rate.
    fn kept_words(&self, _policy: &Policy, _pace: f64, _now_us: u64, _ask: Ask) -> Option<Words> {
        None
    }

    /// Charges a cost that need not fit to a held state, up to [the most](Self::most_spent).
    /// Returns whether the state is written.
    fn owe(&mut self, policy: &Policy, _other: Option<f64>, now_us: u64, cost: u64) -> bool {
        let cost = cost.min(Self::most_spent(policy).saturating_sub(self.spent()));
        if cost > 0 {
            self.charge(policy, now_us, cost, &[]);
        }
        cost > 0
    }

    /// Returns the most units that a policy spends in debt.
    fn most_spent(policy: &Policy) -> u64 {
        policy.quota_ref().burst() * debt::MOST_BURSTS
    }

    /// Marks a state that is in debt, before it is stored.
    fn mark_debt(&mut self, _policy: &Policy, _now_us: u64) {}

    /// Marks a stored state whatever it holds.
    fn mark_as_debt(&mut self) {}

    /// Marks a stored state for a look: what it holds above the quota returns in its time.
    fn mark_for_look(&mut self) {
        if !Self::IS_CUT_WHEN_READ {
            self.mark_as_debt();
        }
    }

    /// Remembers a reservation that was charged, for a refund that comes late.
    fn remember(&mut self, _now_us: u64) {}

    /// Returns units to a held state. Returns whether the state is written.
    fn refund(&mut self, refund: &Refund<'_>) -> bool;

    /// Returns the words of this state. `denied` is what did not fit, or nothing.
    fn words(&self, policy: &Policy, now_us: u64, denied: Ask) -> Words;

    /// Returns the time at which this state equals a fresh one.
    fn fresh_at(&self, policy: &Policy) -> u64;

    /// Returns the bytes that are stored: those that the script writes. Of a log, which is a list
    /// there, each entry follows its length.
    fn to_bytes(&self, policy: &Policy, other: Option<f64>) -> Vec<u8>;

    /// Returns the time at which the bytes expire, in milliseconds since the Unix epoch.
    fn expires_ms(&self, policy: &Policy) -> u64 {
        self.fresh_at(policy) / 1_000 + 1
    }

    /// Reads the bytes of a state, and the number behind it: the pace of a bucket, the length of a
    /// window, or 0. `None` for bytes that are never stored.
    fn of_bytes(bytes: &[u8]) -> Option<(Self, f64)>;

    /// Returns this state as tools see it, with the number behind it.
    fn shown(&self, beside: f64) -> StoredState;

    /// Derives the numbers that a caller sees from the words. By default the words are the used
    /// units and the three times.
    fn numbers(policy: &Policy, words: &Words, _denied: Ask) -> Numbers {
        let [used, retry_us, reset_us, more_us] = *words;
        Numbers {
            remaining: policy.quota_ref().amount().saturating_sub(used),
            retry_us,
            reset_us,
            more_us,
        }
    }

    /// Returns the time until the turn of a request that charged `charged` units, or until its debt
    /// is paid, in microseconds.
    fn delay_us(_policy: &Policy, _words: &Words, _charged: u64) -> u64 {
        0
    }

    /// Returns the period whose units count at `now_us`, in microseconds on the clock of the store.
    /// `more_us` is the time until there are more units, and 0 when none is spent. `None` where units
    /// come back one by one, and before a period has begun.
    fn period_us(_policy: &Policy, _now_us: u64, _more_us: u64) -> Option<Range<u64>> {
        None
    }

    /// Returns the end of the places of a request: two numbers that the refund of the script takes.
    /// `is_owed` returns whether it left a debt.
    fn end_of(_words: &Words, _is_owed: impl FnOnce() -> bool) -> Option<Span> {
        None
    }

    /// Returns the words as they were before the last `units` units were charged at the same
    /// instant.
    fn unspend(_policy: &Policy, words: &mut Words, units: u64) {
        words[0] = words[0].saturating_sub(units);
    }

    /// Returns the state that has these words. `None` for an algorithm with more in its state than
    /// in its words.
    fn of_words(_policy: &Policy, _words: &Words, _now_us: u64) -> Option<Self> {
        None
    }

    /// Returns the numbers that the script takes behind the amount of the quota: up to three.
    fn args(policy: &Policy) -> [Option<u64>; 3] {
        [Some(policy.quota_ref().period_us()), None, None]
    }

    /// Returns the numbers of a ceiling that the script takes: one or two.
    fn ceiling_args(policy: &Policy, ask: Ask) -> (u64, Option<u64>) {
        (ask.limit(policy.quota_ref().burst()), None)
    }

    /// Decides for a set of one policy, in place. Returns the level, and whether the state was
    /// changed.
    ///
    /// Inlined: the steps of each algorithm then compile into one function, without calls between
    /// them.
    #[inline(always)]
    fn decide(
        &mut self,
        policy: &Policy,
        other: Option<f64>,
        now_us: u64,
        cost: u64,
        tag: &[u8],
    ) -> (PolicyLevel, bool) {
        let (mut state, mended) = self.settle(policy, other, now_us);
        let ask = Ask::from(cost);
        let fits = state.fits(policy, now_us, ask);
        let is_charged = fits && cost > 0;
        if is_charged {
            state.charge(policy, now_us, cost, tag);
        }
        let kept = match other {
            Some(pace) if !fits || cost == 0 => self.kept_words(policy, pace, now_us, ask),
            _ => None,
        };
        let words = kept.unwrap_or_else(|| state.words(policy, now_us, ask.denied_unless(fits)));
        let is_written = is_charged || (mended && cost > 0);
        if is_written {
            if Self::ADMITS_IN_DEBT || !is_charged {
                state.mark_debt(policy, now_us);
            }
            *self = state;
        } else if !mended && state.is_moved() {
            *self = state;
        }
        (PolicyLevel { fits, words }, is_written)
    }
}
