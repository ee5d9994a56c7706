#[cfg(feature = "redis")]
use std::any::Any;
use std::{fmt, sync::Arc, time::Duration};

use super::{Inner, Limiter};
use crate::{Outage, PolicySet, Store, outage::Fallback, wait::queue::WaitQueues};
#[cfg(feature = "redis")]
use crate::{RedisStore, redis::Watch};

/// The default of [`LimiterBuilder::deadline`].
const DEADLINE: Duration = Duration::from_millis(50);

/// The default of [`LimiterBuilder::max_waiting`].
const MAX_WAITING: usize = 10_000;

/// Builds a [`Limiter`].
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Limiter, MemoryStore, Outage, Policy, Quota};
///
/// let login = Limiter::builder(MemoryStore::new())
///     .policies(Policy::token_bucket("login", Quota::per_minute(5)))
///     .on_outage(Outage::Closed)
///     .deadline(Duration::from_millis(20))
///     .build();
/// assert_eq!(login.policies().len(), 1);
/// ```
#[must_use = "a builder does nothing until it is built"]
pub struct LimiterBuilder<P> {
    store: Arc<dyn Store>,
    #[cfg(feature = "redis")]
    redis: Option<RedisStore>,
    policies: P,
    deadline: Duration,
    outage: Outage,
    max_waiting: usize,
}

impl LimiterBuilder<()> {
    pub(super) fn new(store: impl Store) -> Self {
        Self {
            #[cfg(feature = "redis")]
            redis: (&store as &dyn Any).downcast_ref::<RedisStore>().cloned(),
            store: Arc::new(store),
            policies: (),
            deadline: DEADLINE,
            outage: Outage::default(),
            max_waiting: MAX_WAITING,
        }
    }
}

impl<P> LimiterBuilder<P> {
    /// The policies that are checked together.
    ///
    /// # Panics
    ///
    /// When [`PolicySet::try_new`] refuses the policies.
    pub fn policies(self, policies: impl Into<PolicySet>) -> LimiterBuilder<PolicySet> {
        LimiterBuilder {
            store: self.store,
            #[cfg(feature = "redis")]
            redis: self.redis,
            policies: policies.into(),
            deadline: self.deadline,
            outage: self.outage,
            max_waiting: self.max_waiting,
        }
    }

    /// What to answer when the store cannot decide in time. By default each replica decides by
    /// itself, see [`Outage::Local`].
    pub fn on_outage(mut self, outage: Outage) -> Self {
        self.outage = outage;
        self
    }

    /// How long a check may take in all, connecting included, from the call that asks for it; 50 ms
    /// by default. After it the [`Outage`] decides. In-process stores answer at once and know no
    /// deadline.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How many may wait in line at a time for [`Limiter::until_ready`], for all keys together;
    /// 10 000 by default. One more is denied.
    pub fn max_waiting(mut self, max_waiting: usize) -> Self {
        self.max_waiting = max_waiting;
        self
    }
}

impl LimiterBuilder<PolicySet> {
    /// The limiter.
    #[must_use]
    pub fn build(self) -> Limiter {
        let fallback = Fallback::new(self.outage, &self.policies);
        let Self { store, policies, deadline, .. } = self;
        let (is_in_process, wait_queues) = (store.is_in_process(), WaitQueues::new(self.max_waiting));
        Limiter(Arc::new(Inner {
            store,
            #[cfg(feature = "redis")]
            redis: self.redis,
            #[cfg(feature = "redis")]
            watch: Watch::default(),
            is_in_process,
            policies,
            deadline,
            fallback,
            wait_queues,
        }))
    }
}

impl<P: fmt::Debug> fmt::Debug for LimiterBuilder<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterBuilder")
            .field("policies", &self.policies)
            .field("deadline", &self.deadline)
            .field("outage", &self.outage)
            .finish_non_exhaustive()
    }
}
