//! The options of a limiter, and how it is built from them.
//! What an option does with a check is in the file of its subject, such as `outage/` and
//! `fair_shares.rs`.

use std::{any::Any, borrow::Cow, fmt, sync::Arc, time::Duration};

use tollgate_model::raw::PolicyParts;

use super::{IntoPolicySet, Limiter, LimiterInner};
use crate::{
    Enforcement, Error, ErrorKind, MemoryStore, Outage, Policy, PolicySet, Store,
    clock::Clock,
    limiter::{
        DeniedKeys,
        events::{Closure, Event, Observer, Watch},
        fair_shares::{self, FairShares},
        outage::Fallback,
        unsettled::Unsettled,
        wait::queue::WaitQueues,
    },
    store::{Deadline, ExceptionsInForce, Publication, ReplicaGroup},
};

/// The default of [`LimiterBuilder::max_waiting`].
const MAX_WAITING: usize = 10_000;

/// The default deadline of a check that may wait for this long.
pub(super) const WAITING_DEADLINE: Duration = Duration::from_secs(1);

/// Builds a [`Limiter`].
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Limiter, MemoryStore, Outage, Policy, Quota};
///
/// let login = Limiter::builder(MemoryStore::new())
///     .policies(Policy::token_bucket("login", Quota::per_minute(5)))
///     .on_outage(Outage::Closed)
///     .deadline(Duration::from_secs(1))
///     .build();
/// assert_eq!(login.policies().len(), 1);
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct LimiterBuilder<P> {
    store: Arc<dyn Store>,
    policies: P,
    name: Option<Cow<'static, str>>,
    /// `None` for the defaults.
    deadline: Option<Duration>,
    outage: Outage,
    max_waiting: usize,
    watch: Watch,
    is_published: bool,
    takes_exceptions: bool,
    is_fair: bool,
    /// The share that operators may set.
    operated: Option<Enforcement>,
    /// The clock of decisions in an outage. `None` for the monotonic one.
    outage_clock: Option<Clock>,
}

impl Limiter {
    /// Creates a limiter with the default [`Outage`] and the default deadline of 50 ms.
    ///
    /// # Panics
    ///
    /// When [`PolicySet::try_new`] refuses the policies. For policies that are known only at run
    /// time, call `try_new` and pass the set. And as [`LimiterBuilder::build`].
    #[must_use]
    #[track_caller]
    pub fn new(store: impl Store, policies: impl IntoPolicySet) -> Self {
        Self::builder(store).policies(policies).build()
    }

    /// Creates a limiter that counts in this process, on a [`MemoryStore`] of its own.
    ///
    /// Use [`new`](Self::new) with `open` for a limit that all replicas share.
    ///
    /// # Panics
    ///
    /// When [`PolicySet::try_new`] refuses the policies.
    #[must_use]
    pub fn in_memory(policies: impl IntoPolicySet) -> Self {
        Self::new(MemoryStore::new(), policies)
    }

    /// Returns a builder for the options. Call [`policies`](LimiterBuilder::policies) first.
    pub fn builder(store: impl Store) -> LimiterBuilder<()> {
        LimiterBuilder::new(store)
    }
}

/// Returns the store as it is, if it is shared already: another pointer around it would cost each
/// check a step.
fn shared(store: impl Store) -> Arc<dyn Store> {
    match (&store as &dyn Any).downcast_ref() {
        Some(store) => Arc::clone(store),
        None => Arc::new(store),
    }
}

impl LimiterBuilder<()> {
    fn new(store: impl Store) -> Self {
        Self {
            store: shared(store),
            policies: (),
            name: None,
            deadline: None,
            outage: Outage::default(),
            max_waiting: MAX_WAITING,
            watch: Watch::default(),
            is_published: false,
            takes_exceptions: false,
            is_fair: false,
            operated: None,
            outage_clock: None,
        }
    }
}

impl<P> LimiterBuilder<P> {
    /// Sets the policies that are checked together.
    ///
    /// # Panics
    ///
    /// When [`PolicySet::try_new`] refuses the policies.
    pub fn policies(self, policies: impl IntoPolicySet) -> LimiterBuilder<PolicySet> {
        LimiterBuilder {
            store: self.store,
            policies: policies.into_policy_set(),
            name: self.name,
            deadline: self.deadline,
            outage: self.outage,
            max_waiting: self.max_waiting,
            watch: self.watch,
            is_published: self.is_published,
            takes_exceptions: self.takes_exceptions,
            is_fair: self.is_fair,
            operated: self.operated,
            outage_clock: self.outage_clock,
        }
    }

    /// Sets the name of the limiter in log lines and metrics. By default the names of its policies,
    /// joined by `+`.
    ///
    /// The name becomes the value of a metric label. Do not form it from requests. Replicas are
    /// [counted](crate::limiter::Replicas::Counted) together when their limiters have the same name
    /// and policies.
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    ///
    /// let policies = [
    ///     Policy::token_bucket("burst", Quota::per_second(5)),
    ///     Policy::fixed_window("daily", Quota::per_day(100)),
    /// ];
    /// let named = Limiter::builder(MemoryStore::new()).policies(policies.clone()).name("reports").build();
    /// assert_eq!(named.name(), "reports");
    /// assert_eq!(Limiter::new(MemoryStore::new(), policies).name(), "burst+daily");
    /// ```
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the answer to a check that the store cannot decide in time. By default, each replica
    /// decides in its process: see [`Outage::Local`].
    pub fn on_outage(mut self, outage: Outage) -> Self {
        self.outage = outage;
        self
    }

    /// Sets how long a check may take, from the call to the answer, connecting included. The
    /// default is 50 ms, and 1 s for a check that may still
    /// [wait](crate::limiter::CheckBuilder::wait) for 1 s or longer: its caller has the time, and a
    /// decision without the store does not know the turns of others.
    ///
    /// After the deadline the [`Outage`] decides. Set 1 s for a limiter that is
    /// [closed](Outage::Closed) in an outage: a late decision is better than none.
    ///
    /// The round trip to the server may take four fifths of the deadline. While it takes longer,
    /// the `Outage` decides all checks at once, with
    /// [`ErrorKind::Distant`](crate::ErrorKind::Distant). Set a longer deadline for a far server. A
    /// store in the process answers at once, so no deadline applies to it.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets how many callers may [wait](crate::limiter::CheckBuilder::wait) at a time, over all
    /// keys. 10 000 by default. A further caller that would have to wait is denied at once.
    pub fn max_waiting(mut self, max_waiting: usize) -> Self {
        self.max_waiting = max_waiting;
        self
    }

    /// Counts the denied checks of each key, to see which keys are denied most. By default, nothing
    /// is counted.
    ///
    /// Keep a clone of the [`DeniedKeys`] to read the counts.
    pub fn denied_keys(mut self, denied_keys: DeniedKeys) -> Self {
        self.watch.denied_keys = Some(denied_keys);
        self
    }

    /// Sets the observer of the [events](crate::limiter::events) of this limiter: denials, limits
    /// that are nearly reached, lockouts and outages. By default there is none. A second call
    /// replaces the observer.
    ///
    /// The observer is called in the task of each request, and has to return at once. Its panics
    /// are caught.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.watch.observer = Some(Arc::new(observer));
        self
    }

    /// Sets a closure as the [`observer`](Self::observer).
    pub fn observe(self, observer: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.observer(Closure(observer))
    }

    /// Gives each customer of a shared limit the same share, times its
    /// [weight](crate::Customer::weighing), of what customers ask for. By default, who asks more
    /// often is admitted more often.
    ///
    /// A check names its [customer](crate::Costs::with_customer). One that is alone has the whole
    /// rate, and 88 % of the burst: the rest is kept for who comes next. So a customer that asks for
    /// less than its share is served, whatever others ask for. One that exceeds its share while others
    /// ask has a lower [`Priority`](crate::Priority): it leaves up to 60 % of the burst to those who had
    /// less. The limit is used in full, and its bound holds. A store of several processes shows each
    /// the heaviest customers of the others, every second. A check without a customer has the
    /// whole burst.
    ///
    /// A policy that belongs to one customer alone is [unranked](crate::Policy::unranked). All
    /// others are buckets with a burst of 10 or more, and not leased. An interval bucket has a burst of
    /// 2.5 amounts or more: with less, each filling would lose what was left.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use tollgate::{Cost, Costs, Customer, Limiter, MemoryStore, Policy, Quota};
    ///
    /// let limiter = Limiter::builder(MemoryStore::new())
    ///     .policies(Policy::token_bucket("service", Quota::per_hour(1_000)))
    ///     .fair_shares()
    ///     .build();
    /// let costs = |customer| Costs::new(Cost::ONE).with_customer(Customer::new(customer));
    /// for _ in 0..1_000 {
    ///     let _ = limiter.check("all").cost(costs("heavy")).await?;
    /// }
    /// assert!(limiter.check("all").cost(costs("heavy")).await?.is_denied());
    /// assert!(limiter.check("all").cost(costs("light")).await?.is_allowed());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors of a check
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when it has a customer and a priority, or a
    /// [leased](crate::Policy::leased) policy that is ranked. Without this option, also when it has a
    /// customer: it would have no share.
    pub fn fair_shares(mut self) -> Self {
        self.is_fair = true;
        self
    }

    /// Sets the clock of decisions in an outage, and of fair shares, for tests. [`Clock::monotonic`] by default.
    ///
    /// With [`Outage::Local`] the limiter decides in the process while its store is away, and needs
    /// a clock for it. Give it the clock of the store, so that a test moves the time of both.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Limiter, Policy, Quota, store::Clock, test_util::FaultyStore};
    ///
    /// let (store, clock) = (FaultyStore::default(), Clock::manual(0));
    /// let limiter = Limiter::builder(store.clone())
    ///     .policies(Policy::token_bucket("api", Quota::per_second(1)))
    ///     .outage_clock(clock.clone())
    ///     .build();
    /// store.fail();
    /// assert!(limiter.check("acme").await?.is_allowed());
    /// assert!(limiter.check("acme").await?.is_denied());
    /// clock.advance(Duration::from_secs(1));
    /// assert!(limiter.check("acme").await?.is_allowed());
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "test-util")]
    pub fn outage_clock(mut self, clock: Clock) -> Self {
        self.outage_clock = Some(clock);
        self
    }
}

impl<P> LimiterBuilder<P> {
    /// Lets operators [grant exceptions](Limiter::grant_exception) for keys of limiters of this name. A
    /// [published](LimiterBuilder::published) limiter takes them anyway; the limiter of `tollgate-rules`
    /// does, too.
    ///
    /// The store is asked every two seconds for what has changed. A check that finds no exception in
    /// force costs one atomic load more.
    pub fn with_exceptions(mut self) -> Self {
        self.takes_exceptions = true;
        self
    }
}

impl<P> LimiterBuilder<P> {
    /// Builds all but the policies, under this name: the one of the builder is not used.
    pub(crate) fn build_inner(
        self,
        name: Cow<'static, str>,
        group: ReplicaGroup,
        publication: Option<Publication>,
    ) -> Arc<LimiterInner> {
        let Self {
            store,
            deadline,
            outage,
            max_waiting,
            watch,
            outage_clock,
            is_fair,
            takes_exceptions,
            ..
        } = self;
        let takes_exceptions = takes_exceptions || publication.is_some();
        let exceptions = takes_exceptions.then(|| ExceptionsInForce::new(&*name));
        if let Some(exceptions) = &exceptions {
            store.follow_exceptions(exceptions);
        }
        if let Some(publication) = &publication {
            store.publish(publication);
        }
        let fair_shares = is_fair.then(|| FairShares::new(group, outage_clock.clone()));
        Arc::new_cyclic(|limiter| LimiterInner {
            is_in_process: store.is_in_process(),
            fallback: Fallback::new(
                limiter.clone(),
                name,
                group,
                outage,
                &*store,
                watch.if_used(),
                outage_clock,
            ),
            store,
            timeout: deadline.unwrap_or(Deadline::DEFAULT),
            waiting_deadline: deadline.unwrap_or(WAITING_DEADLINE),
            wait_queues: WaitQueues::new(max_waiting),
            unsettled: Unsettled::default(),
            publication,
            exceptions,
            fair_shares,
        })
    }
}

impl LimiterBuilder<PolicySet> {
    /// Publishes the name and the policies of the limiter in the store, so that the command-line
    /// tool `tollgate` knows them. By default nothing is published.
    ///
    /// A `RedisStore` writes them under its prefix, and again about every two
    /// seconds. They expire eight seconds after the last write. Replicas with different policies,
    /// as during a roll-out, are all shown. Policies that a [`LimiterHandle`](crate::LimiterHandle)
    /// sets are shown within three seconds. Policies of [tenants](Limiter::with_policies) are not
    /// shown. A store publishes up to 64 limiters. Checks do not depend on it.
    ///
    /// A [`MemoryStore`](crate::MemoryStore) publishes nothing.
    ///
    /// A published limiter takes [exceptions](Limiter::grant_exception).
    pub fn published(mut self) -> Self {
        self.is_published = true;
        self
    }

    /// Publishes the limiter, as [`published`](Self::published) does, and lets operators set the
    /// share of the keys for which it is enforced: by the command `tollgate enforce`.
    ///
    /// Give a clone of `enforcement` to the layer that enforces the limit. A limiter alone decides,
    /// and enforces nothing. An operator's share reaches each replica within three seconds. It
    /// stays in force until it is withdrawn, whatever the code [sets](Enforcement::set) meanwhile.
    pub fn published_with(mut self, enforcement: Enforcement) -> Self {
        self.operated = Some(enforcement);
        self.published()
    }

    /// Builds the limiter, unless a policy needs what the store does not do.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) when a policy is
    /// [leased](crate::Policy::leased), and the store is on a server and [leases](Store::leases)
    /// nothing, or when the store does not [accept](Store::accepts) the policies. [`ErrorKind::Config`](crate::ErrorKind::Config) when
    /// [shares](Self::fair_shares) under a policy cannot be fair.
    pub fn try_build(mut self) -> Result<Limiter, Error> {
        let policies = self.policies.clone();
        let leases = self.store.leases() || self.store.is_in_process();
        let leased = policies.iter().find(|policy| policy.is_leased());
        if let (false, Some(policy)) = (leases, leased) {
            let name = policy.name();
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("the store does not lease, and the policy {name:?} is leased"),
            ));
        }
        self.store.accepts(&policies)?;
        if self.is_fair {
            fair_shares::refuse(&policies)?;
        }
        let joined = || {
            policies
                .iter()
                .map(Policy::name)
                .collect::<Vec<_>>()
                .join("+")
                .into()
        };
        let name = self.name.take().unwrap_or_else(joined);
        let group = ReplicaGroup::new(&name, &policies);
        let operated = self.operated.take();
        let publication = self
            .is_published
            .then(|| Publication::new(&*name, policies.clone(), operated));
        let inner = self.build_inner(name, group, publication);
        Ok(Limiter { inner, policies })
    }

    /// Builds the limiter.
    ///
    /// # Panics
    ///
    /// Panics when [`try_build`](Self::try_build) would fail: use that one where the policies or
    /// the store are not known when the program is written.
    #[must_use]
    #[track_caller]
    pub fn build(self) -> Limiter {
        match self.try_build() {
            Ok(limiter) => limiter,
            Err(error) => panic!("{error}"),
        }
    }
}

impl<P: fmt::Debug> fmt::Debug for LimiterBuilder<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterBuilder")
            .field("name", &self.name)
            .field("policies", &self.policies)
            .field("deadline", &self.deadline)
            .field("outage", &self.outage)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryStore, Quota};

    #[test]
    fn a_store_that_is_shared_already_is_not_wrapped_again() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let limiter = Limiter::new(
            Arc::clone(&store),
            Policy::token_bucket("api", Quota::per_second(1)),
        );
        assert!(Arc::ptr_eq(&limiter.inner.store, &store));
    }
}
