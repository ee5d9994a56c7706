//! Shows an observer what happens to a limiter: denials, limits that are nearly reached, lockouts
//! and outages.
//!
//! Use it for what a program does about single events: an audit log, a mail to a customer, an
//! alert. Use the [metrics](crate#metrics) for figures, and
//! [`DeniedKeys`](crate::limiter::DeniedKeys) for the keys that are denied most.
//!
//! An [`Observer`] belongs to a limiter, and sees what layers, handlers and interceptors do with
//! it. It is called in the task of the request, so it has to return at once. [`channel`] hands the
//! events to a task of your own, and [`LogLine`] writes them into a log.
//!
//! ```
//! use tollgate::{
//!     Limiter, MemoryStore, Policy, Quota,
//!     limiter::events::{self, Event},
//! };
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
//! let (observer, mut events) = events::channel(1_000);
//! let limiter = Limiter::builder(MemoryStore::new())
//!     .policies(Policy::fixed_window("day", Quota::per_day(5)))
//!     .observer(observer)
//!     .build();
//! for _ in 0..6 {
//!     let _ = limiter.check("acme").await?;
//! }
//!
//! // Four units are 80 %. The fifth one goes beyond, and the sixth one is denied.
//! assert!(matches!(events.recv().await, Some(Event::NearLimit(near)) if near.remaining() == 0));
//! let Some(Event::Denied(denied)) = events.recv().await else { panic!("a denial") };
//! assert_eq!((denied.key(), denied.policy().name()), (&"acme".into(), "day"));
//! assert!(denied.retry_after().is_some());
//! assert_eq!(events.dropped(), 0);
//! # Ok(()) }
//! ```

// What an event is stands here; which decision raises one is in `watch.rs`, for users' tasks there
// is `channel.rs`, and their lines in a log are in `log.rs`.

mod channel;
mod log;
mod watch;

use std::{
    borrow::Cow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use tollgate_model::{PolicyState, raw::PolicyParts};

use crate::{Cost, ErrorKind, Key, Policy};
pub use channel::{ChannelObserver, EventReceiver, channel};
pub use log::LogLine;
pub(crate) use watch::Watch;

/// Sees the [events](Event) of a limiter. Set it with
/// [`LimiterBuilder::observer`](crate::LimiterBuilder::observer).
///
/// Applications implement it. For a closure, use
/// [`LimiterBuilder::observe`](crate::LimiterBuilder::observe).
///
/// The observer is called in the task of the request, after the decision, which it cannot change.
/// An observer that blocks delays the request, so it must not write to a disk or to the network,
/// nor call the limiter with [`block_on`](crate::Limiter::block_on). [`channel`] creates an
/// observer that never waits.
///
/// A panic of the observer is caught: the panic hook of the process reports it, the event is lost,
/// and the request goes on. A program that is built with `panic = "abort"` ends.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no observer of events",
    note = "pass a closure to `observe` instead of `observer`"
)]
pub trait Observer: Send + Sync + 'static {
    /// Sees an event.
    fn event(&self, event: &Event<'_>);
}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn event(&self, event: &Event<'_>) {
        (**self).event(event);
    }
}

/// Sees events by a closure.
pub(crate) struct Closure<F>(pub(crate) F);

impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Observer for Closure<F> {
    fn event(&self, event: &Event<'_>) {
        (self.0)(event);
    }
}

/// Describes what happened to a limiter, for an [`Observer`].
///
/// A check raises each of its events once, after its decision. A [peek](crate::Limiter::peek), a
/// refund, a commit and a reset raise none. In shadow mode a denial is an event too, although the
/// layer lets the request pass.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A check was denied.
    ///
    /// If several policies deny, the event has the policy with the longest wait. For a key with
    /// [branches](Key::with_branch), each branch that denies raises an event. Denials that the
    /// process remembers, and denials in an outage, raise it too. A caller that
    /// [waits](crate::limiter::CheckBuilder::wait) raises it for each attempt that finds no room,
    /// as in the metrics.
    Denied(KeyEvent<'a>),
    /// With this check, a key has spent more than 80 % of the burst of a policy.
    ///
    /// Exactly one check over all replicas crosses the line. In a window, that happens once in each
    /// window. A bucket refills all the time, and a refund gives units back, so a key may cross the
    /// line again and again. To warn once a day, let the receiver of the events check a limiter of
    /// its own, as the example `events` in the repository does.
    ///
    /// [Leased](Policy::leased) policies do not raise the event: no process knows how many leased
    /// units the others have spent.
    NearLimit(KeyEvent<'a>),
    /// A check charged the last failure that a [lockout](Policy::lockout) allows. Its key is locked
    /// from now on.
    LockedOut(KeyEvent<'a>),
    /// A check was decided by the quota of an [exception](crate::store::Exception), which is that of the
    /// policy of the event. It is raised beside [`Denied`](Self::Denied), and for each admitted check.
    Excepted(KeyEvent<'a>),
    /// The store failed, and the [`Outage`](crate::Outage) decides from now on. Each limiter of
    /// each process notices this by its own checks. An [overload](ErrorKind::Overloaded) is no
    /// outage.
    OutageBegan {
        /// The [name](crate::LimiterBuilder::name) of the limiter.
        limiter: Cow<'a, str>,
        /// The reason why the store did not decide.
        reason: ErrorKind,
    },
    /// The store decides again. A check notices this, at least one second after the last check that
    /// failed.
    OutageEnded {
        /// The [name](crate::LimiterBuilder::name) of the limiter.
        limiter: Cow<'a, str>,
        /// The time since the outage began.
        lasted: Duration,
    },
    /// New rules are in force. Only an observer of rules sees this: `Rules::set_observer` of
    /// `tollgate-rules`.
    RulesReloaded {
        /// The number of rules.
        rules: usize,
    },
}

impl Event<'_> {
    /// Returns the name of the event: `denied`, `near_limit`, `locked_out`, `excepted`, `outage_began`,
    /// `outage_ended` or `rules_reloaded`.
    ///
    /// The `tracing` log events have the same
    /// [names](https://docs.rs/tracing/0.1/tracing/struct.Metadata.html#method.name).
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Denied(_) => "denied",
            Self::NearLimit(_) => "near_limit",
            Self::LockedOut(_) => "locked_out",
            Self::Excepted(_) => "excepted",
            Self::OutageBegan { .. } => "outage_began",
            Self::OutageEnded { .. } => "outage_ended",
            Self::RulesReloaded { .. } => "rules_reloaded",
        }
    }

    /// Copies what the event borrows, to keep it or to send it to another task.
    #[must_use]
    pub fn into_owned(self) -> Event<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        match self {
            Self::Denied(of) => Event::Denied(of.into_owned()),
            Self::NearLimit(of) => Event::NearLimit(of.into_owned()),
            Self::LockedOut(of) => Event::LockedOut(of.into_owned()),
            Self::Excepted(of) => Event::Excepted(of.into_owned()),
            Self::OutageBegan { limiter, reason } => Event::OutageBegan {
                limiter: owned(limiter),
                reason,
            },
            Self::OutageEnded { limiter, lasted } => Event::OutageEnded {
                limiter: owned(limiter),
                lasted,
            },
            Self::RulesReloaded { rules } => Event::RulesReloaded { rules },
        }
    }

    /// Shows the event to an observer, and catches its panic.
    ///
    /// Limiters call this themselves. Use it for events that no limiter raises.
    pub fn show(&self, observer: &dyn Observer) {
        // The observer is shared by all requests anyway, so it has to cope with a call that ended
        // early.
        let _ = catch_unwind(AssertUnwindSafe(|| observer.event(self)));
    }
}

/// Describes what a check did to a key under one policy. It is part of an [`Event`].
///
/// The key may be personal data: an address, or the name of a person. The limiter never logs the
/// key, and `Debug` leaves it out. [`DeniedKeys::digest`](crate::limiter::DeniedKeys::digest)
/// returns a digest that can be logged instead.
#[derive(Clone)]
pub struct KeyEvent<'a> {
    limiter: Cow<'a, str>,
    key: Cow<'a, Key>,
    policy: Cow<'a, Policy>,
    cost: Cost,
    remaining: u64,
    kept: u64,
    wait: Option<Duration>,
    degraded: Option<ErrorKind>,
}

impl<'a> KeyEvent<'a> {
    fn new(
        limiter: &'a str,
        key: &'a Key,
        state: &PolicyState<'a>,
        wait: Option<Duration>,
        degraded: Option<ErrorKind>,
    ) -> Self {
        Self {
            limiter: limiter.into(),
            key: Cow::Borrowed(state.policy().branch_of(key)),
            policy: Cow::Borrowed(state.policy()),
            cost: state.cost(),
            remaining: state.remaining(),
            kept: state.kept(),
            wait,
            degraded,
        }
    }

    fn into_owned(self) -> KeyEvent<'static> {
        KeyEvent {
            limiter: Cow::Owned(self.limiter.into_owned()),
            key: Cow::Owned(self.key.into_owned()),
            policy: Cow::Owned(self.policy.into_owned()),
            ..self
        }
    }

    /// Returns the [name](crate::LimiterBuilder::name) of the limiter.
    #[must_use]
    pub fn limiter(&self) -> &str {
        &self.limiter
    }

    /// Returns the key of the check, with all its levels. If the key has
    /// [branches](Key::with_branch), returns the branch that the policy meters.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the policy that denied, or whose units were charged.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the units that the check spends from the policy, or would have spent.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Returns the units that are left after the check.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Returns the units that the [priority](crate::Priority) of the check leaves to higher ones: it is
    /// denied when it would spend of them. 0 for the highest priority.
    #[must_use]
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Returns how long until the same check would pass, if nobody else spends. For
    /// [`Event::LockedOut`]: until the lockout ends.
    ///
    /// `None` for [`Event::NearLimit`], and for a policy that [blocks](crate::Quota::is_blocked).
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.wait
    }

    /// Returns why the [`Outage`](crate::Outage) decided instead of the store. The quota of the
    /// policy is then the share of this replica. `None` when the store decided.
    #[must_use]
    pub fn degraded(&self) -> Option<ErrorKind> {
        self.degraded
    }
}

// Leaves out the key, which may identify a person.
crate::debug_fields! {
    KeyEvent<'a>: limiter, policy = .policy.name(), cost = .cost.units(), remaining,
    retry_after = .wait, degraded, ..
}
