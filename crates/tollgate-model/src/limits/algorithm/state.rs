//! The state of any algorithm.
//! It only passes the steps on: what they are is in `decide.rs`, `adjust.rs` and `meter.rs`, and what
//! they do in the file of each algorithm. Numbers that need no state are in `numbers.rs`.

use std::fmt;

#[cfg(feature = "calendar")]
use super::calendar_window::CalendarWindowState;
use super::{
    Adjust, Algorithm, Decide, Meter, Refund, StoredState,
    bucket::Bucket,
    fixed_window::FixedWindowState,
    interval_bucket::IntervalBucketState,
    level::{PolicyLevel, Reading},
    lockout::LockoutState,
    sliding_buckets::SlidingBucketsState,
    sliding_log::SlidingLogState,
    sliding_window::SlidingWindowState,
    token_bucket::TokenBucketState,
    window_from_first_hit::WindowFromFirstHitState,
};
use crate::{Policy, algorithm::AlgorithmParts, charge::Ask};

/// Makes the enum of the states of all algorithms.
macro_rules! states {
    ($($(#[$cfg:meta])? $Variant:ident($State:ident),)*) => {
        #[derive(Clone, PartialEq)]
        enum AnyState {
            $($(#[$cfg])? $Variant($State),)*
        }

        $(
            $(#[$cfg])?
            impl From<$State> for State {
                #[inline]
                fn from(state: $State) -> Self {
                    Self(AnyState::$Variant(state))
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
            AnyState::TokenBucket($of) => $run,
            AnyState::IntervalBucket($of) => $run,
            AnyState::LeakyBucket($of) => $run,
            AnyState::FixedWindow($of) => $run,
            #[cfg(feature = "calendar")]
            AnyState::CalendarWindow($of) => $run,
            AnyState::WindowFromFirstHit($of) => $run,
            AnyState::SlidingWindow($of) => $run,
            AnyState::SlidingBuckets($of) => $run,
            AnyState::SlidingLog($of) => $run,
            AnyState::Lockout($of) => $run,
        }
    };
}

/// Runs an expression with the type of the state of an algorithm.
macro_rules! by_algorithm {
    ($algorithm:expr, $Of:ident => $run:expr) => {
        match $algorithm {
            $crate::Algorithm::TokenBucket => {
                type $Of = $crate::algorithm::token_bucket::TokenBucketState;
                $run
            }
            $crate::Algorithm::IntervalBucket => {
                type $Of = $crate::algorithm::interval_bucket::IntervalBucketState;
                $run
            }
            $crate::Algorithm::LeakyBucket => {
                type $Of = $crate::algorithm::bucket::Bucket;
                $run
            }
            $crate::Algorithm::FixedWindow => {
                type $Of = $crate::algorithm::fixed_window::FixedWindowState;
                $run
            }
            #[cfg(feature = "calendar")]
            $crate::Algorithm::CalendarWindow { .. } => {
                type $Of = $crate::algorithm::calendar_window::CalendarWindowState;
                $run
            }
            $crate::Algorithm::WindowFromFirstHit => {
                type $Of = $crate::algorithm::window_from_first_hit::WindowFromFirstHitState;
                $run
            }
            $crate::Algorithm::SlidingWindow => {
                type $Of = $crate::algorithm::sliding_window::SlidingWindowState;
                $run
            }
            $crate::Algorithm::SlidingBuckets { .. } => {
                type $Of = $crate::algorithm::sliding_buckets::SlidingBucketsState;
                $run
            }
            $crate::Algorithm::SlidingLog => {
                type $Of = $crate::algorithm::sliding_log::SlidingLogState;
                $run
            }
            $crate::Algorithm::Lockout { .. } => {
                type $Of = $crate::algorithm::lockout::LockoutState;
                $run
            }
        }
    };
}
pub(super) use by_algorithm;

/// The state of one policy for one key, and the steps of its algorithm.
///
/// A *current* state is one that [`advance`](Self::advance) returned, or
/// [`adjustable`](Self::adjustable). Each other step takes a current state, the policy under which it
/// was brought to the present time, and that time: `now_us`, in microseconds since the Unix epoch.
///
/// `stored_interval` is the emission interval of a bucket, or the period of a window, of the policy
/// that stored the state, in microseconds, if the policy has another one.
///
/// ```
/// use tollgate_model::{Policy, Quota, algorithm::State};
///
/// let policy = Policy::fixed_window("api", Quota::per_second(2));
/// let mut window = State::fresh(policy.algorithm()).advance(&policy, None, 500_000).state;
/// window.charge(&policy, 500_000, 2, b"");
/// assert!(!window.fits(&policy, 500_000, 1.into()));
/// assert_eq!(window.fresh_at(&policy), 1_000_000);
///
/// let bytes = window.to_bytes(&policy, None);
/// assert_eq!(State::of_bytes(&policy, &bytes), Some((window, None)));
/// ```
#[derive(Clone, PartialEq)]
pub struct State(AnyState);

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        by_state!(&self.0, state => state.fmt(f))
    }
}

/// A state that was brought to the current time and the current quota.
#[derive(Clone, Debug)]
pub struct Advanced {
    /// The state now.
    pub state: State,
    /// The state had to be mended. A mended state is stored even after a denial.
    pub mended: bool,
}

/// Takes a step with the state of any algorithm.
macro_rules! step {
    ($(#[$doc:meta])+ $Trait:ident: $name:ident(&$self:ident $(, $arg:ident: $Arg:ty)*) -> $Out:ty) => {
        $(#[$doc])+
        #[must_use]
        pub fn $name(&$self, $($arg: $Arg),*) -> $Out {
            by_state!(&$self.0, state => $Trait::$name(state, $($arg),*))
        }
    };
    ($(#[$doc:meta])+ $Trait:ident: $name:ident(&mut $self:ident $(, $arg:ident: $Arg:ty)*) -> $Out:ty) => {
        $(#[$doc])+
        pub fn $name(&mut $self, $($arg: $Arg),*) -> $Out {
            by_state!(&mut $self.0, state => $Trait::$name(state, $($arg),*))
        }
    };
}

impl State {
    step! {
        /// Returns whether advancing moved this state out instead of copying it: a state on the heap.
        #[inline]
        Decide: is_moved(&self) -> bool
    }
    step! {
        /// Returns whether what is asked for fits.
        #[inline]
        Decide: fits(&self, policy: &Policy, now_us: u64, ask: Ask) -> bool
    }
    step! {
        /// Spends a cost that fits. Only a sliding log stores the tag.
        #[inline]
        Decide: charge(&mut self, policy: &Policy, now_us: u64, cost: u64, tag: &[u8]) -> ()
    }
    step! {
        /// Notes a debt, before the state is stored.
        Decide: note_debt(&mut self, policy: &Policy, stored_interval: Option<f64>, now_us: u64) -> ()
    }
    step! {
        /// Returns the reading of a stored state, not advanced, where they are read under the quota that stored
        /// it. `None` for every other state.
        Decide: reading_as_stored(&self, policy: &Policy, stored_interval: f64, now_us: u64, ask: Ask) -> Option<Reading>
    }

    step! {
        /// Returns the policy by which a stored state is adjusted, if it is another one: an open window ends
        /// when its own period is over.
        Adjust: adjusted_under(&self, policy: &Policy, stored_interval: f64, now_us: u64) -> Option<Policy>
    }
    step! {
        /// Returns whether the state keeps the interval at which it was stored: a bucket that is not full.
        Adjust: keeps_interval(&self, now_us: u64) -> bool
    }
    step! {
        /// Charges a cost that need not fit, up to [the most](super::most_spent). Returns whether the state has
        /// changed. The state is an [adjustable](Self::adjustable) one.
        Adjust: owe(&mut self, policy: &Policy, stored_interval: Option<f64>, now_us: u64, cost: u64) -> bool
    }
    step! {
        /// Returns units. Returns whether the state has changed. The state is an
        /// [adjustable](Self::adjustable) one.
        Adjust: refund(&mut self, refund: &Refund<'_>) -> bool
    }
    step! {
        /// Remembers a reservation that was charged, for a refund that comes late.
        Adjust: remember(&mut self, now_us: u64) -> ()
    }

    step! {
        /// Returns the time at which the state equals a fresh one, in microseconds since the Unix epoch.
        #[inline]
        Meter: fresh_at(&self, policy: &Policy) -> u64
    }
    step! {
        /// Returns when stored bytes may be dropped, in milliseconds since the Unix epoch.
        Meter: expires_ms(&self, policy: &Policy) -> u64
    }
    step! {
        /// Returns the bytes in which stores keep the state.
        Meter: to_bytes(&self, policy: &Policy, stored_interval: Option<f64>) -> Vec<u8>
    }
}

impl State {
    /// Returns the state of a key from which nothing was spent.
    #[inline]
    #[must_use]
    pub fn fresh(algorithm: Algorithm) -> Self {
        by_algorithm!(algorithm, Of => Of::default().into())
    }

    /// Brings this state to `now_us` under `policy`, without a debt that is paid.
    ///
    /// A state on the heap [is moved out](Self::is_moved) unless it had to be mended. The caller
    /// puts it back when it stores nothing.
    #[inline]
    pub fn advance(
        &mut self,
        policy: &Policy,
        stored_interval: Option<f64>,
        now_us: u64,
    ) -> Advanced {
        by_state!(&mut self.0, state => {
            let (state, mended) = state.advance(policy, stored_interval, now_us);
            Advanced { state: state.into(), mended }
        })
    }

    /// Returns this state at `now_us` as it is adjusted: in debt if it was. A state on the heap is
    /// moved out, as by [`advance`](Self::advance).
    pub fn adjustable(&mut self, policy: &Policy, now_us: u64) -> Self {
        by_state!(&mut self.0, state => state.adjustable(policy, now_us).into())
    }

    /// Decides for a set of one policy, in place. Returns the level, and whether the state was
    /// changed.
    #[inline(always)]
    pub fn decide(
        &mut self,
        policy: &Policy,
        stored_interval: Option<f64>,
        now_us: u64,
        cost: u64,
        tag: &[u8],
    ) -> (PolicyLevel, bool) {
        let ask = Ask::from(cost);
        by_state!(&mut self.0, state => state.decide(policy, stored_interval, now_us, ask, tag))
    }

    /// Decides for a set of one policy under a ceiling, in place. Returns the level, and whether the
    /// state was changed.
    ///
    /// Compiled into one function with [`decide`](Self::decide), ceilings would cost each check
    /// without one 30 instructions.
    pub fn decide_capped(
        &mut self,
        policy: &Policy,
        stored_interval: Option<f64>,
        now_us: u64,
        ask: Ask,
        tag: &[u8],
    ) -> (PolicyLevel, bool) {
        by_state!(&mut self.0, state => state.decide(policy, stored_interval, now_us, ask, tag))
    }

    /// Returns what a look reads of this stored state.
    #[must_use]
    pub fn looked_at(&self) -> Self {
        let mut state = self.clone();
        by_state!(&mut state.0, state => state.look());
        state
    }

    /// Returns the reading of a current state. `denied` is what did not fit, or nothing.
    #[inline]
    pub fn reading(&self, policy: &Policy, now_us: u64, denied: impl Into<Ask>) -> Reading {
        let denied = denied.into();
        by_state!(&self.0, state => state.reading(policy, now_us, denied))
    }

    /// Reads the bytes of a state under `policy`, and the interval that is stored with it, if the policy
    /// has another one. `None` for bytes that no store writes.
    #[must_use]
    pub fn of_bytes(policy: &Policy, bytes: &[u8]) -> Option<(Self, Option<f64>)> {
        let (state, interval): (Self, f64) = by_algorithm!(policy.algorithm(), Of => {
            let (state, interval) = Of::of_bytes(bytes)?;
            (state.into(), interval)
        });
        let has_interval = policy.algorithm().is_queued(false) || policy.algorithm().is_timed();
        let is_other = has_interval && interval != policy.interval_us();
        Some((state, is_other.then_some(interval)))
    }
}

impl State {
    /// Returns the time and the tag of each unit that a sliding log counts at `now_us`, newest first.
    /// Returns nothing for every other state.
    pub fn entries(&self, policy: &Policy, now_us: u64) -> impl Iterator<Item = (u64, &[u8])> {
        let log = match &self.0 {
            AnyState::SlidingLog(log) => Some(log),
            _ => None,
        };
        let period_us = policy.quota_ref().period_us();
        log.into_iter()
            .flat_map(move |log| log.entries(period_us, now_us))
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
