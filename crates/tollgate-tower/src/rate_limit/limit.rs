use std::{fmt, sync::Arc, time::Duration};

use tollgate::{CheckFuture, Cost, Costs, Decision, Key, Limiter, Reservation, StoreFuture};

use crate::rate_limit::{profile::Profile, reservation::ReserveOptions, wait};

/// Stores a limiter that is the same for all requests.
pub(crate) struct FixedLimit {
    pub(crate) limiter: Limiter,
    pub(crate) profile: Profile,
}

/// Names the limiter of a request.
#[derive(Clone)]
pub(crate) enum LimitRef {
    /// The fixed limiter at this index.
    Fixed(usize),
    /// A limiter that was looked up for the request.
    LookedUp(Limiter, Arc<Profile>),
}

/// Borrows the limiter of a request, and what the layer keeps for its policies.
#[derive(Clone, Copy)]
pub(crate) struct Limit<'a> {
    pub(crate) limiter: &'a Limiter,
    pub(crate) profile: &'a Profile,
}

impl LimitRef {
    /// Borrows the limiter. `fixed` lists the fixed ones.
    #[inline(always)]
    pub(crate) fn get<'a>(&'a self, fixed: &'a [FixedLimit]) -> Limit<'a> {
        match self {
            Self::Fixed(at) => Limit { limiter: &fixed[*at].limiter, profile: &fixed[*at].profile },
            Self::LookedUp(limiter, profile) => Limit { limiter, profile },
        }
    }
}

impl Limit<'_> {
    /// Checks the limiter. Waits for up to `max_wait` where the layer waits instead of denying.
    // Inlined by force: the decision is built where the caller reads it, instead of being copied there.
    #[inline(always)]
    pub(crate) fn check(self, key: &Key, cost: Cost, max_wait: Option<Duration>) -> CheckFuture {
        check(self.limiter, self.profile.has_queue, key, cost, max_wait)
    }

    /// Checks the limiter with a cost for each policy, as [`check`](Self::check) does.
    pub(crate) fn check_costs(self, key: &Key, costs: Costs, max_wait: Option<Duration>) -> CheckFuture {
        check_costs(self.limiter, self.profile.has_queue, key, costs, max_wait)
    }

    /// Reserves an estimate, and waits in the queue of a limiter that has one, for up to `max_wait` if that is set.
    pub(crate) fn reserve(
        self,
        key: &Key,
        estimate: Costs,
        options: ReserveOptions,
        max_wait: Option<Duration>,
    ) -> StoreFuture<Reservation> {
        let reservation = options.reserve(self.limiter, key, estimate, max_wait);
        if !self.profile.has_queue {
            return reservation;
        }
        let is_in_process = self.limiter.is_in_process();
        StoreFuture::pending(async move { wait::leave_queue_reserved(reservation.await?, is_in_process).await })
    }

    /// Looks whether the costs fit, and charges nothing then. Costs that do not fit are checked, which denies them with the
    /// exact time to retry.
    pub(crate) fn look_or_check(self, key: &Key, costs: Costs, max_wait: Option<Duration>) -> CheckFuture {
        let look = match self.limiter.check_key(key, Cost::ZERO).into_ready() {
            Ok(Ok(look)) if !has_room(&look, &costs) => return self.check_costs(key, costs, max_wait),
            Ok(result) => return StoreFuture::ready(result),
            Err(look) => look,
        };
        let (limiter, has_queue, key) = (self.limiter.clone(), self.profile.has_queue, key.clone());
        StoreFuture::pending(async move {
            let look = look.await?;
            if has_room(&look, &costs) {
                return Ok(look);
            }
            check_costs(&limiter, has_queue, &key, costs, max_wait).await
        })
    }
}

#[inline(always)]
fn check(limiter: &Limiter, has_queue: bool, key: &Key, cost: Cost, max_wait: Option<Duration>) -> CheckFuture {
    match max_wait {
        Some(max_wait) => wait::check_or_wait(limiter, key.clone(), cost, max_wait),
        None if has_queue => wait::check_and_queue(limiter, key.clone(), cost),
        None => limiter.check_key(key, cost),
    }
}

fn check_costs(limiter: &Limiter, has_queue: bool, key: &Key, costs: Costs, max_wait: Option<Duration>) -> CheckFuture {
    match max_wait {
        Some(max_wait) => wait::check_or_wait(limiter, key.clone(), costs, max_wait),
        None if has_queue => wait::check_and_queue(limiter, key.clone(), costs),
        None => limiter.check_costs(key.clone(), costs),
    }
}

/// Returns whether every policy has the units left. A policy without a cost has not: the check tells what is wrong.
fn has_room(look: &Decision, costs: &Costs) -> bool {
    look.states()
        .all(|state| costs.cost_of(state.policy().name()).is_some_and(|cost| state.remaining() >= cost.units()))
}

impl fmt::Debug for FixedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limiter.fmt(f)
    }
}
