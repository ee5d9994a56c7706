//! Asks a limiter, and waits: for quota, instead of being denied, or for the turn in a queue.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::{
    Cost, Costs, Decision, Enforcement, Error, Key, Limiter, Policy,
    reservation::Reservation,
    store::{CheckFuture, StoreFuture},
};

use crate::{
    charge::{Charged, in_background},
    metrics,
    rate_limit::{
        joint::{JointDecision, JointFuture},
        limits::Limit,
        reservation::ReserveOptions,
    },
};

/// Says how a check waits.
#[derive(Clone, Copy)]
enum Waits {
    Never,
    /// For quota, instead of being denied.
    UpTo(Duration),
    /// In the queue of a leaky bucket.
    InQueue,
}

impl Limit<'_> {
    /// Returns how a check waits where the layer waits for up to `max_wait`. A limit that is tried
    /// out delays nobody.
    #[inline(always)]
    fn waits(self, max_wait: Option<Duration>, is_shadow: bool) -> Waits {
        match max_wait {
            _ if is_shadow => Waits::Never,
            Some(max_wait) => Waits::UpTo(max_wait),
            None if self.profile.has_queue => Waits::InQueue,
            None => Waits::Never,
        }
    }

    /// Checks the limiter. Waits for up to `max_wait` where the layer waits instead of denying.
    // Inlined by force: the decision is built where the caller reads it, instead of being copied
    // there.
    #[inline(always)]
    pub(super) fn check(
        self,
        key: &Key,
        cost: Cost,
        max_wait: Option<Duration>,
        is_shadow: bool,
    ) -> CheckFuture {
        match self.waits(max_wait, is_shadow) {
            Waits::Never => self.limiter.check_key(key).cost(cost).into_future(),
            waits => check_costs(self.limiter, waits, key, cost.into()),
        }
    }

    /// Checks the limiter with a cost for each policy, as [`check`](Self::check) does.
    pub(super) fn check_costs(
        self,
        key: &Key,
        costs: Costs,
        max_wait: Option<Duration>,
        is_shadow: bool,
    ) -> CheckFuture {
        check_costs(self.limiter, self.waits(max_wait, is_shadow), key, costs)
    }

    /// Reserves an estimate, and waits in the queue of a limiter that has one, for up to `max_wait`
    /// if that is set.
    pub(super) fn reserve(
        self,
        key: &Key,
        estimate: Costs,
        options: ReserveOptions,
        max_wait: Option<Duration>,
        is_shadow: bool,
    ) -> StoreFuture<Reservation> {
        let reservation = options.reserve(self.limiter, key, estimate, max_wait);
        if !self.profile.has_queue || is_shadow {
            return reservation;
        }
        let is_in_process = self.limiter.is_in_process();
        let cancel = move |reservation: Reservation| {
            in_background(is_in_process, async move {
                if let Err(error) = reservation.cancel().await {
                    tracing::debug!(%error, "a refund failed");
                }
            });
        };
        StoreFuture::pending(async move {
            let reservation = reservation.await?;
            Ok(take_turn(reservation.decision().delay(), reservation, cancel).await)
        })
    }

    /// Looks whether the costs fit, and charges nothing then. Costs that do not fit are checked,
    /// which denies them with the exact time to retry. Those that never fit are refused before the
    /// store is asked, as in other checks.
    pub(super) fn look_or_check(
        self,
        key: &Key,
        costs: Costs,
        max_wait: Option<Duration>,
        is_shadow: bool,
    ) -> CheckFuture {
        let waits = self.waits(max_wait, is_shadow);
        let may_fit = |policy: &Policy| {
            let most = costs.priority().units_of_policy(policy);
            costs
                .cost_of(policy.name())
                .is_some_and(|cost| cost.units() <= most)
        };
        if !self.limiter.policies().iter().all(may_fit) {
            return check_costs(self.limiter, waits, key, costs);
        }
        let nothing = Costs::new(Cost::ZERO).with_priority(costs.priority());
        let look = match self
            .limiter
            .check_key(key)
            .cost(nothing)
            .into_future()
            .into_ready()
        {
            Ok(Ok(look)) if !has_room(&look, &costs) => {
                return check_costs(self.limiter, waits, key, costs);
            }
            Ok(result) => return StoreFuture::ready(result),
            Err(look) => look,
        };
        let (limiter, key) = (self.limiter.clone(), key.clone());
        StoreFuture::pending(async move {
            let look = look.await?;
            if has_room(&look, &costs) {
                return Ok(look);
            }
            check_costs(&limiter, waits, &key, costs).await
        })
    }
}

/// Returns whether every policy has the units left, for the priority of the look. A cost above the
/// share of a replica spends the share.
fn has_room(look: &Decision, costs: &Costs) -> bool {
    look.states().all(|state| {
        let most = costs.priority().units_of_policy(state.policy());
        costs
            .cost_of(state.policy().name())
            .is_some_and(|cost| state.remaining() >= cost.units().min(most))
    })
}

fn check_costs(limiter: &Limiter, waits: Waits, key: &Key, costs: Costs) -> CheckFuture {
    match waits {
        Waits::Never => limiter.check_key(key).cost(costs).into_future(),
        Waits::UpTo(max_wait) => check_or_wait(limiter, key.clone(), costs, max_wait),
        Waits::InQueue => check_and_queue(limiter, key.clone(), costs),
    }
}

/// Checks the limiter, and waits for up to `max_wait` when the quota is spent.
pub(crate) fn check_or_wait(
    limiter: &Limiter,
    key: Key,
    costs: impl Into<Costs>,
    max_wait: Duration,
) -> CheckFuture {
    let (limiter, costs) = (limiter.clone(), costs.into());
    StoreFuture::pending(async move {
        let _waiting = WaitingGauge::new();
        limiter.check(key).cost(costs).wait(max_wait).await
    })
}

/// Checks a limiter that may have a queue, and waits until the request leaves the queue.
pub fn check_and_queue(limiter: &Limiter, key: Key, costs: impl Into<Costs>) -> CheckFuture {
    let check = match limiter
        .check_key(&key)
        .cost(costs)
        .into_future()
        .into_ready()
    {
        Ok(Ok(decision)) if !decision.delay().is_zero() => StoreFuture::ready(Ok(decision)),
        Ok(result) => return StoreFuture::ready(result),
        Err(pending) => pending,
    };
    let limiter = limiter.clone();
    StoreFuture::pending(async move {
        let decision = check.await?;
        let charged = Charged {
            limiter,
            key,
            decision,
        };
        Ok(take_turn(charged.decision.delay(), charged, |charged| {
            charged.refund_all()
        })
        .await
        .decision)
    })
}

/// Returns the decision of several limits when the request has left the queues of those that the
/// layer enforces for it.
pub(super) fn leave_queues(decision: JointFuture, enforcement: Option<Enforcement>) -> JointFuture {
    let enforced = move |joint: Option<JointDecision>| {
        let mut joint = joint?;
        joint.enforce(|key| {
            enforcement
                .as_ref()
                .is_none_or(|enforcement| enforcement.applies_to(key))
        });
        Some(joint)
    };
    match decision.into_ready().map(|result| result.map(&enforced)) {
        Ok(Ok(Some(joint))) if !joint.delay().is_zero() => {
            StoreFuture::pending(take_joint_turn(Some(joint)))
        }
        Ok(result) => StoreFuture::ready(result),
        Err(pending) => {
            StoreFuture::pending(async move { take_joint_turn(enforced(pending.await?)).await })
        }
    }
}

async fn take_joint_turn(joint: Option<JointDecision>) -> Result<Option<JointDecision>, Error> {
    let Some(joint) = joint else { return Ok(None) };
    let give_back = |joint: JointDecision| joint.parts().for_each(|part| part.charged.refund_all());
    Ok(Some(take_turn(joint.delay(), joint, give_back).await))
}

/// Waits for the turn of a request in its queues. `give_back` returns what the request holds when
/// it is cancelled before.
async fn take_turn<T>(delay: Duration, held: T, give_back: impl FnOnce(T)) -> T {
    let mut turn = Turn(Some((held, give_back)));
    if !delay.is_zero() {
        let _waiting = WaitingGauge::new();
        sleep(delay).await;
    }
    turn.0.take().expect("what is held is taken once").0
}

struct Turn<T, F: FnOnce(T)>(Option<(T, F)>);

impl<T, F: FnOnce(T)> Drop for Turn<T, F> {
    fn drop(&mut self) {
        if let Some((held, give_back)) = self.0.take() {
            give_back(held);
        }
    }
}

/// Counts one waiting request in the metric `tollgate_waiting` until it is dropped.
struct WaitingGauge;

impl WaitingGauge {
    fn new() -> Self {
        metrics::add_waiting(1.0);
        Self
    }
}

impl Drop for WaitingGauge {
    fn drop(&mut self) {
        metrics::add_waiting(-1.0);
    }
}
