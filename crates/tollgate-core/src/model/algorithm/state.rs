//! The state of any algorithm.
//! It only passes the steps on: what they are is in `decide.rs`, `adjust.rs` and `meter.rs`, and what
//! they do in the file of each algorithm. Numbers that need no state are in `numbers.rs`.

#[cfg(feature = "calendar")]
use super::calendar_window::CalendarWindowState;
use super::{
    Adjust, Algorithm, Decide, Meter, Refund, StoredState,
    bucket::Bucket,
    fixed_window::FixedWindowState,
    interval_bucket::IntervalBucketState,
    level::{PolicyLevel, Words},
    lockout::LockoutState,
    sliding_buckets::SlidingBucketsState,
    sliding_log::SlidingLogState,
    sliding_window::SlidingWindowState,
    token_bucket::TokenBucketState,
    window_from_first_hit::WindowFromFirstHitState,
};
use crate::{Policy, model::charge::Ask};

/// Makes the enum of the states of all algorithms.
macro_rules! states {
    ($($(#[$cfg:meta])? $Variant:ident($State:ident),)*) => {
        /// The state of one policy for one key.
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) enum State {
            $($(#[$cfg])? $Variant($State),)*
        }

        $(
            $(#[$cfg])?
            impl From<$State> for State {
                #[inline]
                fn from(state: $State) -> Self {
                    Self::$Variant(state)
                }
            }
        )*
    };
}

states! {
    TokenBucket(TokenBucketState),
    IntervalBucket(IntervalBucketState),
    LeakyBucket(Bucket),
    FixedWindow(FixedWindowState),
    #[cfg(feature = "calendar")]
    CalendarWindow(CalendarWindowState),
    WindowFromFirstHit(WindowFromFirstHitState),
    SlidingWindow(SlidingWindowState),
    SlidingBuckets(SlidingBucketsState),
    SlidingLog(SlidingLogState),
    Lockout(LockoutState),
}

/// Runs an expression with the state of an algorithm.
macro_rules! by_state {
    ($state:expr, $of:ident => $run:expr) => {
        match $state {
            State::TokenBucket($of) => $run,
            State::IntervalBucket($of) => $run,
            State::LeakyBucket($of) => $run,
            State::FixedWindow($of) => $run,
            #[cfg(feature = "calendar")]
            State::CalendarWindow($of) => $run,
            State::WindowFromFirstHit($of) => $run,
            State::SlidingWindow($of) => $run,
            State::SlidingBuckets($of) => $run,
            State::SlidingLog($of) => $run,
            State::Lockout($of) => $run,
        }
    };
}

/// Runs an expression with the type of the state of an algorithm.
macro_rules! by_algorithm {
    ($algorithm:expr, $Of:ident => $run:expr) => {
        match $algorithm {
            $crate::Algorithm::TokenBucket => {
                type $Of = $crate::model::algorithm::token_bucket::TokenBucketState;
                $run
            }
            $crate::Algorithm::IntervalBucket => {
                type $Of = $crate::model::algorithm::interval_bucket::IntervalBucketState;
                $run
            }
            $crate::Algorithm::LeakyBucket => {
                type $Of = $crate::model::algorithm::bucket::Bucket;
                $run
            }
            $crate::Algorithm::FixedWindow => {
                type $Of = $crate::model::algorithm::fixed_window::FixedWindowState;
                $run
            }
            #[cfg(feature = "calendar")]
            $crate::Algorithm::CalendarWindow { .. } => {
                type $Of = $crate::model::algorithm::calendar_window::CalendarWindowState;
                $run
            }
            $crate::Algorithm::WindowFromFirstHit => {
                type $Of = $crate::model::algorithm::window_from_first_hit::WindowFromFirstHitState;
                $run
            }
            $crate::Algorithm::SlidingWindow => {
                type $Of = $crate::model::algorithm::sliding_window::SlidingWindowState;
                $run
            }
            $crate::Algorithm::SlidingBuckets { .. } => {
                type $Of = $crate::model::algorithm::sliding_buckets::SlidingBucketsState;
                $run
            }
            $crate::Algorithm::SlidingLog => {
                type $Of = $crate::model::algorithm::sliding_log::SlidingLogState;
                $run
            }
            $crate::Algorithm::Lockout { .. } => {
                type $Of = $crate::model::algorithm::lockout::LockoutState;
                $run
            }
        }
    };
}
pub(super) use by_algorithm;

/// A state that was brought to the current time and the current quota.
#[derive(Clone, Debug)]
pub(crate) struct Advanced {
    pub(crate) state: State,
    /// The state had to be mended. A mended state is stored even after a denial.
    pub(crate) mended: bool,
}

/// Takes a step with the state of any algorithm.
macro_rules! step {
    ($Trait:ident: $name:ident(&$self:ident $(, $arg:ident: $Arg:ty)*) -> $Out:ty) => {
        pub(crate) fn $name(&$self, $($arg: $Arg),*) -> $Out {
            by_state!($self, state => $Trait::$name(state, $($arg),*))
        }
    };
    ($Trait:ident: $name:ident(&mut $self:ident $(, $arg:ident: $Arg:ty)*) -> $Out:ty) => {
        pub(crate) fn $name(&mut $self, $($arg: $Arg),*) -> $Out {
            by_state!($self, state => $Trait::$name(state, $($arg),*))
        }
    };
}

impl State {
    step!(Decide: is_moved(&self) -> bool);
    step!(Decide: fits(&self, policy: &Policy, now_us: u64, ask: Ask) -> bool);
    step!(Decide: charge(&mut self, policy: &Policy, now_us: u64, cost: u64, tag: &[u8]) -> ());
    step!(Decide: note_debt(&mut self, policy: &Policy, stored_interval: Option<f64>, now_us: u64) -> ());
    step!(Decide: words_as_stored(&self, policy: &Policy, stored_interval: f64, now_us: u64, ask: Ask) -> Option<Words>);

    step!(Adjust: adjusted_under(&self, policy: &Policy, stored_interval: f64, now_us: u64) -> Option<Policy>);
    step!(Adjust: keeps_interval(&self, now_us: u64) -> bool);
    step!(Adjust: owe(&mut self, policy: &Policy, stored_interval: Option<f64>, now_us: u64, cost: u64) -> bool);
    step!(Adjust: refund(&mut self, refund: &Refund<'_>) -> bool);
    step!(Adjust: remember(&mut self, now_us: u64) -> ());

    step!(Meter: fresh_at(&self, policy: &Policy) -> u64);
    step!(Meter: expires_ms(&self, policy: &Policy) -> u64);
    step!(Meter: to_bytes(&self, policy: &Policy, stored_interval: Option<f64>) -> Vec<u8>);
}

impl State {
    /// Returns the state of a key from which nothing was spent.
    pub(crate) fn fresh(algorithm: Algorithm) -> Self {
        by_algorithm!(algorithm, Of => Of::default().into())
    }

    /// Brings this state to `now_us` under `policy`, see [`Decide::advance`].
    ///
    /// A state on the heap [is moved out](Decide::is_moved) unless it had to be mended. The caller
    /// puts it back when it stores nothing.
    pub(crate) fn advance(
        &mut self,
        policy: &Policy,
        stored_interval: Option<f64>,
        now_us: u64,
    ) -> Advanced {
        by_state!(self, state => {
            let (state, mended) = state.advance(policy, stored_interval, now_us);
            Advanced { state: state.into(), mended }
        })
    }

    /// Returns this state at `now_us` as it is [adjusted](Adjust::adjustable). A state on the heap is
    /// moved out, as by [`advance`](Self::advance).
    pub(crate) fn adjustable(&mut self, policy: &Policy, now_us: u64) -> Self {
        by_state!(self, state => state.adjustable(policy, now_us).into())
    }

    /// Decides for a set of one policy, in place. Returns the level, and whether the state was
    /// changed.
    #[inline(always)]
    pub(crate) fn decide(
        &mut self,
        policy: &Policy,
        stored_interval: Option<f64>,
        now_us: u64,
        cost: u64,
        tag: &[u8],
    ) -> (PolicyLevel, bool) {
        by_state!(self, state => state.decide(policy, stored_interval, now_us, cost, tag))
    }

    /// Decides for a set of one policy under a ceiling, in place. Returns the level, and whether the
    /// state was changed.
    ///
    /// The steps are called here: compiled into one function for ceilings too, [`decide`](Self::decide)
    /// would cost each check without one 30 instructions.
    pub(crate) fn decide_capped(
        &mut self,
        policy: &Policy,
        stored_interval: Option<f64>,
        now_us: u64,
        ask: Ask,
        tag: &[u8],
    ) -> (PolicyLevel, bool) {
        let Advanced { mut state, mended } = self.advance(policy, stored_interval, now_us);
        let fits = state.fits(policy, now_us, ask);
        let is_charged = fits && ask.cost > 0;
        if is_charged {
            state.charge(policy, now_us, ask.cost, tag);
        }
        let denied = ask.denied_unless(fits);
        let as_stored = match stored_interval {
            Some(interval) if !is_charged => self.words_as_stored(policy, interval, now_us, denied),
            _ => None,
        };
        let words = as_stored.unwrap_or_else(|| state.words(policy, now_us, denied));
        let is_written = is_charged || (mended && ask.cost > 0);
        if is_written {
            // A ceiling may let any state go into debt.
            state.note_debt(policy, None, now_us);
            *self = state;
        } else if !mended && state.is_moved() {
            *self = state;
        }
        (PolicyLevel { fits, words }, is_written)
    }

    /// Returns what a [look](Meter::look) reads of this stored state.
    pub(crate) fn looked_at(&self) -> Self {
        let mut state = self.clone();
        by_state!(&mut state, state => state.look());
        state
    }

    /// Returns the words of a current state. `denied` is what did not fit, or nothing.
    pub(crate) fn words(&self, policy: &Policy, now_us: u64, denied: impl Into<Ask>) -> Words {
        let denied = denied.into();
        by_state!(self, state => state.words(policy, now_us, denied))
    }

    /// Reads the bytes of a state under `policy`, and the [interval](Policy::interval_us) that is
    /// stored with it, if the policy has another one.
    pub(crate) fn of_bytes(policy: &Policy, bytes: &[u8]) -> Option<(Self, Option<f64>)> {
        let (state, interval): (Self, f64) = by_algorithm!(policy.algorithm(), Of => {
            let (state, interval) = Of::of_bytes(bytes)?;
            (state.into(), interval)
        });
        let has_interval = policy.algorithm().is_queued(false) || policy.algorithm().is_timed();
        let is_other = has_interval && interval != policy.interval_us();
        Some((state, is_other.then_some(interval)))
    }
}

impl StoredState {
    /// Reads the value of a key with this tag. Returns `None` for a value that no script writes.
    ///
    /// A sliding log is a list in Redis: [`SlidingLog`](Self::SlidingLog) has its length. The
    /// values of a calendar window are known with the feature `calendar`.
    #[must_use]
    pub fn decode(tag: &str, value: &[u8]) -> Option<Self> {
        by_algorithm!(Algorithm::of_tag(tag)?, Of => {
            let (state, interval) = Of::of_bytes(value)?;
            Some(state.shown(interval))
        })
    }
}
