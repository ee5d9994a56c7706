//! The store of several regions: checks at the purse of this one.
//! See `rules/` and `scripts/` for what a purse and a home do. Calls of the home are in `carrier.rs`.

use std::{pin::pin, sync::Arc, time::Duration};

use tokio::time::{Instant, timeout};
use tollgate_core::{
    Algorithm, Cost, Decision, Error, ErrorKind, Key, Policy, PolicySet, Quota, Store,
    limiter::Entry,
    raw::{CheckParts, DecisionParts, PolicyLevel, PolicyLevels, lowered},
    reservation::{ReservationId, Settlement},
    store::{Check, CheckFuture, Deadline, PermitGrant, PermitRequest, StoreFuture},
};
use tollgate_redis::{
    RedisStore,
    raw::{self, Place},
};

use crate::{
    ask::{ask, give_back_all},
    carrier::{RegionFigures, Servers},
    durability::Durability,
    housekeeping,
    rules::{Ask, Call, Checked, Meter, Terms},
    terms::{self, terms},
    wire,
};

/// The longest time for which a check waits for units, in round trips. A region whose load has moved
/// to another one gives back what it holds within that time.
const PATIENCE: u32 = 6;

/// The shortest deadline that leaves time for a denial, in round trips. A check with a shorter one
/// ends with it, because a region that has not heard of the home yet does not know that there is
/// nothing.
const DENIABLE: u32 = 2;

/// Shares one limit among regions: a home grants units, and the server of each region spends them.
///
/// It decides one [leased](tollgate_core::Policy::leased) policy at a time, a token bucket or a fixed
/// window, whose share lasts for four round trips to the home. [`Limiter::builder`] refuses others
/// with the reason.
///
/// No more is admitted in all regions together than the algorithm allows, with the exceptions that
/// [`Durability`] names. [`remaining`] is what the region holds: a lower bound. A check of a key
/// without units waits for one trip to the home; so let the [deadline] of the limiter be two round
/// trips or more. Refunds, reservations, permits and priorities are not supported.
///
/// Policies that are not leased are refused too, or decided by the server of the region:
/// [`unleased_in_region`](crate::RegionalStoreBuilder::unleased_in_region). That server counts the
/// processes of the region, and shows their limits to operators.
///
/// [`Limiter::builder`]: tollgate_core::Limiter::builder
/// [`remaining`]: tollgate_core::limiter::PolicyState::remaining
/// [deadline]: tollgate_core::LimiterBuilder::deadline
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::{Lease, Limiter, Policy, Quota};
/// use tollgate_regions::{Durability, RegionalStore};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate_core::Error> {
/// let store = RegionalStore::builder("redis://eu.example/", "redis://us.example/")
///     .region("eu")
///     .durability(Durability::Replicas(1))
///     .round_trip(Duration::from_millis(80))
///     .build()?;
/// let large = Policy::token_bucket("api", Quota::per_second(1_000)).leased(Lease::new().share(2));
/// assert!(Limiter::builder(store.clone()).policies(large).try_build().is_ok());
///
/// let small = Policy::token_bucket("api", Quota::per_second(1_000).with_burst(500)).leased(Lease::new().share(2));
/// let refused = Limiter::builder(store).policies(small).try_build().unwrap_err();
/// assert!(refused.to_string().contains("its burst must be at least 640"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RegionalStore(Arc<Servers>);

impl RegionalStore {
    /// Returns what became of the calls of the home that this process has carried.
    #[must_use]
    pub fn figures(&self) -> RegionFigures {
        self.0.figures()
    }

    /// Waits until the server of the region has answered. While the home is away, regions decide by
    /// what they hold.
    ///
    /// # Errors
    ///
    /// As those of [`RedisStore::ping`].
    pub async fn ping(&self) -> Result<(), Error> {
        self.0.local.ping().await
    }

    /// Returns whether checks are sent to the server of the region. See
    /// [`RedisStore::is_available`].
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.0.local.is_available()
    }

    /// Gives the units back that this process has leased, to the purses of its region.
    ///
    /// Call it when the service has answered its last request. Units that are not given back count as
    /// used until they lapse.
    ///
    /// # Errors
    ///
    /// When the server of the region does not answer. Units of other keys were given back all the
    /// same.
    pub async fn release_leases(&self) -> Result<(), Error> {
        give_back_all(&self.0, self.0.leases.holders()).await
    }

    pub(crate) fn new(
        servers: (RedisStore, RedisStore),
        region: &str,
        durability: Durability,
        trip: Duration,
        takes_unleased: bool,
    ) -> Self {
        Self(Arc::new(Servers::new(
            servers,
            region,
            durability,
            trip,
            takes_unleased,
        )))
    }

    /// Returns the server of the region if it decides these policies alone.
    fn alone(&self, policies: &PolicySet) -> Option<&RedisStore> {
        let is_unleased = || policies.iter().all(|policy| policy.lease().is_none());
        (self.0.takes_unleased && is_unleased()).then_some(&self.0.local)
    }

    /// Lets both servers run their script once, on keys that nobody asks for.
    pub(crate) async fn prove(&self) -> Result<(), Error> {
        let servers = &self.0;
        servers.local.ping().await?;
        servers.home.ping().await?;
        let policies = PolicySet::from(Policy::fixed_window("proof", Quota::per_second(1)));
        let (key, policy) = (Key::new("proof"), terms::the_one(&policies)?);
        let terms = Terms {
            meter: Meter::Window {
                period_us: 1_000_000,
            },
            burst: 0,
            length_us: 1_000_000,
            most: 0,
        };
        let place = Place {
            policy,
            key: &key,
            suffix: wire::PURSE,
        };
        let look = Ask {
            trip_us: 1,
            ..Ask::default()
        };
        let numbers = wire::check(wire::At::SERVER, 0, &terms, &look);
        let reply = raw::run(&servers.local, wire::purse(), place, &numbers, None).await?;
        let call = wire::checked(&reply)?.1.call;
        let call = call.unwrap_or_else(|| Call {
            reign: 0,
            number: 1,
            since_us: 0,
            want: 0,
            held: 0,
            reports: Default::default(),
        });
        let numbers = wire::call(wire::At::SERVER, &terms, 1, servers.region, &call);
        servers.ask(&policies, &key, &numbers).await.map(drop)
    }

    /// Returns the terms of a check that this store decides.
    fn terms_of(&self, check: Check<'_>) -> Result<Terms, Error> {
        let terms = terms(check.policies, self.0.set_trip())?;
        if !check.charge().is_plain() {
            return Err(unsupported(
                "several regions decide no check with ceilings or several costs",
            ));
        }
        if check.cost.units() > terms.most {
            return Err(unsupported(format!(
                "the cost {} is above the share {} that regions hold",
                check.cost.units(),
                terms.most
            )));
        }
        Ok(terms)
    }

    /// Decides a check, or looks at the purse, and waits for units that are under way.
    fn decide(&self, check: Check<'_>, is_look: bool) -> CheckFuture {
        let terms = match self.terms_of(check) {
            Ok(terms) => terms,
            Err(refusal) => return StoreFuture::ready(Err(refusal)),
        };
        housekeeping::serve(&self.0);
        let hash = self.0.hash(check.key);
        if !is_look && let Some(decided) = self.0.leases.spend(&check, hash) {
            return decided;
        }
        let (servers, kept) = (Arc::clone(&self.0), check.keep());
        StoreFuture::keeping(kept.clone(), async move {
            let check = kept.check();
            let (begun, mut is_first) = (Instant::now(), !is_look);
            loop {
                let mut arrival = pin!(servers.arrival(check.key).notified());
                arrival.as_mut().enable();
                let trip = (!is_look).then(|| {
                    servers
                        .leases
                        .trip(check.policies, check.key, hash, terms.length_us)
                });
                let cost = if is_look { Cost::ZERO } else { check.cost };
                let asked = (cost, is_first);
                let (now_us, checked) = ask(&servers, check, &terms, asked, trip.as_ref()).await?;
                let is_lacking = match is_look {
                    true => checked.free < check.cost.units().max(1),
                    false => cost > Cost::ZERO && !checked.is_admitted,
                };
                let round = servers.trip();
                let left = patience(check.deadline, round).saturating_sub(begun.elapsed());
                if !is_lacking || !checked.is_awaited || left.is_zero() {
                    let decision = decision(check, now_us, &checked, is_look)?;
                    if let Some(trip) = trip {
                        trip.answered(check.key, &decision, checked.lease);
                    }
                    return Ok(decision);
                }
                is_first = false;
                // Another process may carry the call. Then nothing wakes this one.
                let arrives = Duration::from_micros(checked.retry_us) + round / 8;
                let _ = timeout(arrives.min(round).min(left), arrival).await;
            }
        })
    }
}

/// Returns how long a check waits for units: so long that a denial is in time.
fn patience(deadline: Option<Deadline>, round: Duration) -> Duration {
    let most = round * PATIENCE;
    match deadline.map(Deadline::timeout) {
        Some(timeout) if timeout >= round * DENIABLE => most.min(timeout - round / 4),
        _ => most,
    }
}

/// Makes the decision of a check: what the region holds is what remains.
fn decision(
    check: Check<'_>,
    now_us: u64,
    checked: &Checked,
    is_look: bool,
) -> Result<Decision, Error> {
    let policy = terms::the_one(check.policies)?;
    let fresh = PolicyLevel {
        fits: true,
        reading: [0; 4],
    };
    let mut level = lowered(policy, &fresh, now_us, 0, checked.free);
    level.fits = match is_look {
        true => checked.free >= check.cost.units(),
        false => checked.is_admitted || check.cost == Cost::ZERO,
    };
    if !level.fits {
        let retry_us = checked.retry_us.max(1);
        level.reading[3] = retry_us;
        if policy.algorithm() == Algorithm::FixedWindow {
            // Units may come back before the window ends.
            level.reading[1] = retry_us;
        }
    }
    let levels = PolicyLevels::collect([(policy, level)]);
    let charge = check.charge();
    Ok(Decision::from_levels(
        check.policies,
        levels,
        charge,
        now_us,
    ))
}

impl Store for RegionalStore {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        if let Some(local) = self.alone(check.policies) {
            return local.check(check);
        }
        match StoreFuture::if_blocked(check) {
            Some(blocked) => blocked,
            None => self.decide(check, check.cost == Cost::ZERO),
        }
    }

    fn look(&self, check: Check<'_>) -> CheckFuture {
        if let Some(local) = self.alone(check.policies) {
            return local.look(check);
        }
        match StoreFuture::if_blocked(check) {
            Some(blocked) => blocked,
            None => self.decide(check, true),
        }
    }

    /// Refuses: the home may have charged the units, to a window that is over.
    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        match self.alone(check.policies) {
            Some(local) => local.refund(check, decision),
            None => StoreFuture::ready(Err(unsupported("several regions refund no units"))),
        }
    }

    /// Makes the key fresh at the home and in this region. Other regions, and other processes of this
    /// one, spend what they hold.
    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        if let Some(local) = self.alone(check.policies) {
            return local.reset(check);
        }
        let (servers, kept) = (Arc::clone(&self.0), check.keep());
        StoreFuture::pending(async move {
            let check = kept.check();
            let place = |suffix| -> Result<Place<'_>, Error> {
                Ok(Place {
                    policy: terms::the_one(check.policies)?,
                    key: check.key,
                    suffix,
                })
            };
            servers.leases.clear(check.key, servers.hash(check.key));
            raw::remove(&servers.local, place(wire::PURSE)?, check.deadline).await?;
            raw::remove(&servers.home, place(wire::HOME)?, None::<Deadline>).await
        })
    }

    /// Returns the server of the region: it counts the processes, and shows limits to operators.
    fn inner(&self) -> Option<&dyn Store> {
        Some(&self.0.local)
    }

    fn entries(&self, check: Check<'_>, limit: usize) -> StoreFuture<Vec<Entry>> {
        match self.alone(check.policies) {
            Some(local) => local.entries(check, limit),
            None => StoreFuture::ready(Err(unsupported("several regions list no entries"))),
        }
    }

    fn permits(&self, request: PermitRequest<'_>) -> StoreFuture<PermitGrant> {
        match self.0.takes_unleased {
            true => self.0.local.permits(request),
            false => StoreFuture::ready(Err(unsupported("several regions share no permits"))),
        }
    }

    fn reserve(&self, check: Check<'_>, id: &ReservationId, time_to_live: Duration) -> CheckFuture {
        match self.alone(check.policies) {
            Some(local) => local.reserve(check, id, time_to_live),
            None => StoreFuture::ready(Err(unsupported("several regions reserve no units"))),
        }
    }

    fn commit(&self, check: Check<'_>, id: &ReservationId) -> StoreFuture<Settlement> {
        match self.alone(check.policies) {
            Some(local) => local.commit(check, id),
            None => StoreFuture::ready(Err(unsupported("several regions reserve no units"))),
        }
    }

    /// Returns whether one step can decide: over a single policy of the whole key, or over those that
    /// the server of the region decides alone.
    fn can_decide(&self, policies: &PolicySet, key: &Key) -> bool {
        match self.alone(policies) {
            Some(local) => local.can_decide(policies, key),
            None => terms(policies, self.0.set_trip()).is_ok(),
        }
    }

    fn leases(&self) -> bool {
        true
    }

    fn accepts(&self, policies: &PolicySet) -> Result<(), Error> {
        match self.alone(policies) {
            Some(local) => local.accepts(policies),
            None => terms(policies, self.0.set_trip()).map(drop),
        }
    }
}

fn unsupported(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsupported, message.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_waits_for_units_so_long_that_a_denial_is_in_time() {
        let ms = Duration::from_millis;
        let of = |timeout: u64| patience(Some(Deadline::after(ms(timeout))), ms(80));
        assert_eq!(patience(None, ms(80)), ms(480));
        assert_eq!(of(1_000), ms(480));
        assert_eq!(of(250), ms(230));
        assert_eq!(of(160), ms(140));
        // No time for a denial: the deadline ends it.
        assert_eq!(of(159), ms(480));
    }
}
