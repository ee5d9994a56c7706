//! Costs that cascade, as an application spends them: on every store, in a cluster, and by many
//! callers at the edge.

use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::{
    Cost, Costs, Customer, ErrorKind, Key, Limiter, MemoryStore, Policy, Priority, Quota,
    reservation::Settlement,
};
use tollgate_test_support::{Deployment, Kind, patient_limiter, remaining_of_each};

use crate::suite::run;

const PLAN: Policy = Policy::fixed_window("plan", Quota::new(100, DECADE));
const CREDITS: Policy = Policy::fixed_window("credits", Quota::new(50, DECADE));
/// The pool of the organisation, whose key is the outer level.
const POOL: Policy = Policy::fixed_window("pool", Quota::new(200, DECADE)).at_level(1);

const DECADE: Duration = Duration::from_secs(3_650 * 86_400);

fn ann() -> Key {
    Key::new("acme").child("ann")
}

/// Returns a limiter on each store.
async fn limiters(deployment: &Deployment) -> [Limiter; 2] {
    let redis = deployment.builder("cascade").connect().await;
    [
        patient_limiter(redis.expect("a store"), [PLAN, CREDITS, POOL]),
        patient_limiter(MemoryStore::new(), [PLAN, CREDITS, POOL]),
    ]
}

async fn settled_in_reverse_order(deployment: &Deployment) {
    for limiter in limiters(deployment).await {
        let reserve = async |cost| {
            let reserved = limiter.reserve(ann(), Costs::cascading(cost)).await;
            reserved.expect("a decision")
        };
        let left = async || remaining_of_each(&limiter, ann()).await;
        let job = reserve(170).await;
        let gave = job.decision().states().map(|state| state.cost().units());
        assert_eq!(gave.collect::<Vec<_>>(), [100, 50, 20]);
        assert_eq!(left().await, [0, 0, 180]);
        // The pool gets its units back first, then the credits, and the plan last.
        assert_eq!(job.commit(120).await.expect("settled"), Settlement::Settled);
        assert_eq!(left().await, [0, 30, 200]);
        let job = reserve(230).await;
        assert_eq!(left().await, [0, 0, 0]);
        let denied = reserve(1).await;
        assert!(denied.is_denied());
        assert!(denied.decision().states().all(|state| state.is_exceeded()));
        assert_eq!(job.cancel().await.expect("settled"), Settlement::Settled);
        assert_eq!(left().await, [0, 30, 200]);
        // So does a refund.
        let job = reserve(100).await;
        let refund = limiter.refund(ann(), Cost::new(75)).of(job.decision());
        refund.await.expect("refunded");
        assert_eq!(left().await, [0, 5, 200]);
        // What is spent beyond the reservation is a debt of the pool.
        let job = reserve(10).await;
        assert_eq!(job.commit(215).await.expect("settled"), Settlement::Settled);
        assert_eq!(left().await, [0, 0, 0]);
        // Bob has a plan of his own, and the pool of the organisation is in debt.
        let bob = Key::new("acme").child("bob");
        assert_eq!(remaining_of_each(&limiter, bob).await, [100, 50, 0]);
    }
}

#[tokio::test]
async fn a_cascade_is_settled_in_reverse_order() {
    run(Kind::Server, "", settled_in_reverse_order).await;
}

#[tokio::test]
async fn a_cascade_is_settled_in_reverse_order_in_a_cluster() {
    run(Kind::Cluster, "", settled_in_reverse_order).await;
}

/// Tokens a minute beside the plan. Nothing accrues within a minute.
const RATE: Policy = Policy::token_bucket("rate", Quota::new(400, DECADE));
const REQUESTS: Policy = Policy::sliding_log("requests", Quota::new(6, DECADE));

async fn joined_by_rate_limits(deployment: &Deployment) {
    let redis = deployment.builder("joined").connect().await;
    let set = [RATE, PLAN, REQUESTS, CREDITS, POOL];
    for limiter in [
        patient_limiter(redis.expect("a store"), set.clone()),
        patient_limiter(MemoryStore::new(), set.clone()),
    ] {
        let costs = |cost| {
            let costs = Costs::cascading(cost).with("rate", cost);
            costs.with("requests", Cost::ONE)
        };
        let reserve = async |costs| {
            let reserved = limiter.reserve(ann(), costs).await;
            reserved.expect("a decision")
        };
        let left = async || remaining_of_each(&limiter, ann()).await;
        let job = reserve(costs(170)).await;
        let gave = job.decision().states().map(|state| state.cost().units());
        assert_eq!(gave.collect::<Vec<_>>(), [170, 100, 1, 50, 20]);
        assert_eq!(left().await, [230, 0, 5, 0, 180]);
        // The number is that of the rate, and the sum of the cascade. The requests are named.
        let settled = job
            .commit(Costs::from(120).with("requests", Cost::ONE))
            .await;
        assert_eq!(settled.expect("settled"), Settlement::Settled);
        assert_eq!(left().await, [280, 0, 5, 30, 200]);
        // The rate denies, and the plan and the pool keep what they have.
        let denied = reserve(costs(220).with("rate", Cost::new(281))).await;
        assert!(denied.is_denied());
        let exceeded = denied.decision().states();
        let exceeded: Vec<_> = exceeded.filter(|state| state.is_exceeded()).collect();
        assert_eq!(exceeded.len(), 1);
        assert_eq!(exceeded[0].policy().name(), "rate");
        assert_eq!(left().await, [280, 0, 5, 30, 200]);
        // The pool denies, and the rate keeps what it has.
        let denied = reserve(costs(231)).await;
        let exceeded = denied.decision().states();
        let exceeded = exceeded.filter(|state| state.is_exceeded());
        let names: Vec<_> = exceeded.map(|state| state.policy().name()).collect();
        assert_eq!(names, ["plan", "credits", "pool"]);
        assert_eq!(left().await, [280, 0, 5, 30, 200]);
        // All of it comes back, and a part of it by a refund.
        let job = reserve(costs(50)).await;
        assert_eq!(job.cancel().await.expect("settled"), Settlement::Settled);
        assert_eq!(left().await, [280, 0, 5, 30, 200]);
        let job = reserve(costs(100)).await;
        let refund = limiter.refund(ann(), Costs::from(75).with("requests", Cost::ZERO));
        refund.of(job.decision()).await.expect("refunded");
        assert_eq!(left().await, [255, 0, 4, 5, 200]);
        // More than reserved is a debt of the rate, and of the pool.
        let job = reserve(costs(10)).await;
        assert_eq!(job.commit(300).await.expect("settled"), Settlement::Settled);
        assert_eq!(left().await, [0, 0, 0, 0, 0]);
        // Bob has a plan of his own, and the pool of the organisation is in debt.
        let bob = Key::new("acme").child("bob");
        assert_eq!(remaining_of_each(&limiter, bob).await, [400, 100, 6, 50, 0]);
        // One that waits for its turn, and the order of the policies is another reservation.
        let queue = Policy::leaky_bucket("queue", Quota::per_hour(60).with_burst(6));
        let queued = limiter.with_policies([PLAN, queue, POOL]);
        let key = || Key::new("other").child("carl");
        let reserve = async |wait| {
            let costs = Costs::cascading(101).with("queue", Cost::ONE);
            let reserve = queued.reserve(key(), costs).wait(wait);
            reserve.await.expect("a decision")
        };
        assert!(reserve(Duration::ZERO).await.is_allowed());
        let denied = reserve(Duration::from_secs(1)).await;
        assert!(denied.is_denied());
        assert_eq!(remaining_of_each(&queued, key()).await[1..], [5, 199]);
        let waits = queued.reserve(key(), Costs::cascading(1).with("queue", Cost::ONE));
        assert!(waits.await.expect("a decision").decision().delay() > Duration::from_secs(1));
    }
}

#[tokio::test]
async fn rate_limits_that_join_a_cascade_are_charged_with_it_or_not_at_all() {
    run(Kind::Server, "", joined_by_rate_limits).await;
}

#[tokio::test]
async fn rate_limits_that_join_a_cascade_are_charged_with_it_or_not_at_all_in_a_cluster() {
    run(Kind::Cluster, "", joined_by_rate_limits).await;
}

/// Counts what many callers were admitted, and what is left then.
struct Edge {
    admitted: u64,
    left: u64,
}

/// Lets 64 callers spend seven units each, until each is denied.
async fn edge<F>(limiter: &Limiter, spend: impl Fn(Limiter) -> F) -> Edge
where
    F: Future<Output = u64> + Send + 'static,
{
    let mut callers = JoinSet::new();
    for _ in 0..64 {
        callers.spawn(spend(limiter.clone()));
    }
    let admitted = callers.join_all().await.iter().sum();
    let left = remaining_of_each(limiter, ann()).await.iter().sum();
    Edge { admitted, left }
}

/// Leaves nine requests for 64 callers, and four units: 25 of the plan, 3 credits, and 39 of the pool.
async fn spend_all_but_67(limiter: &Limiter) {
    let costs = [("plan", 75), ("credits", 47), ("pool", 161)];
    let spent = limiter.check(ann()).cost(costs).await;
    assert!(spent.expect("a decision").is_allowed());
}

/// Reserves in one step.
async fn in_one_step(limiter: Limiter) -> u64 {
    let reserved = limiter.reserve(ann(), Costs::cascading(7)).await;
    if reserved.expect("a decision").is_allowed() {
        7
    } else {
        0
    }
}

/// Looks what is left, and charges it then: what one writes without a cascade. The charge may not
/// fit any more, and is a debt.
async fn in_two_steps(limiter: Limiter) -> u64 {
    let state = limiter.peek(ann()).await.expect("a state");
    let (mut rest, mut shares) = (7, Costs::new(Cost::ZERO));
    for state in state.states() {
        let share = state.remaining().min(rest);
        rest -= share;
        shares = shares.with(state.policy().name().to_owned(), share);
    }
    if rest > 0 {
        return 0;
    }
    let job = limiter
        .reserve(ann(), Cost::ZERO)
        .await
        .expect("a decision");
    job.commit(shares).await.expect("settled");
    7
}

#[tokio::test]
async fn callers_at_the_edge_overspend_nothing_in_one_step() {
    let deployment = Deployment::start(Kind::Server, "callers_at_the_edge_overspend_nothing");
    for limiter in limiters(&deployment.expect("a server")).await {
        spend_all_but_67(&limiter).await;
        let edge = edge(&limiter, in_one_step).await;
        assert_eq!((edge.admitted, edge.left), (63, 4));
    }
}

/// The recipe reads before it spends, so it admits more than there is as soon as two callers meet.
#[tokio::test]
async fn the_recipe_of_two_steps_overspends() {
    let deployment = Deployment::start(Kind::Server, "the_recipe_of_two_steps_overspends");
    let deployment = deployment.expect("a server");
    let [limiter, _] = limiters(&deployment).await;
    spend_all_but_67(&limiter).await;
    let edge = edge(&limiter, in_two_steps).await;
    println!("{} of 67 units admitted", edge.admitted);
    assert!(edge.admitted > 67, "{} of 67", edge.admitted);
}

#[tokio::test]
async fn what_cannot_cascade_is_refused_with_name_and_value() {
    let limiter = Limiter::new(MemoryStore::new(), [PLAN, CREDITS, POOL]);
    let cascading = || Costs::cascading(7);
    let refused = |error: tollgate::Error| (error.kind(), error.to_string());
    let needs_reservation = "costs that cascade must be those of a reservation";
    let expected = (ErrorKind::Config, needs_reservation.to_owned());
    let error = limiter.check(ann()).cost(cascading()).await.unwrap_err();
    assert_eq!(refused(error), expected);
    let error = limiter.peek(ann()).cost(cascading()).await.unwrap_err();
    assert_eq!(refused(error), expected);
    let error = limiter.refund(ann(), cascading()).await.unwrap_err();
    assert_eq!(refused(error), expected);
    let job = limiter.reserve(ann(), cascading()).await.expect("held");
    let named = cascading().with("plan", Cost::ONE);
    let error = job.commit(named).await.unwrap_err();
    assert_eq!(refused(error), expected);
    job.cancel().await.expect("settled");
    let unknown = cascading().with("rate", Cost::ONE);
    let error = limiter.reserve(ann(), unknown).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "costs name policy \"rate\", which is not in the set plan, credits, pool"
    );
    let all = cascading()
        .with("plan", Cost::ONE)
        .with("credits", Cost::ONE)
        .with("pool", Cost::ONE);
    let error = limiter.reserve(ann(), all).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "costs that cascade have a policy without a cost of its own, got plan, credits, pool that are all named"
    );
    let much = cascading().with("credits", Cost::new(51));
    let error = limiter.reserve(ann(), much).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "cost 51 exceeds the burst 50 of policy credits"
    );
    let much = Costs::cascading(301).with("credits", Cost::ONE);
    let error = limiter.reserve(ann(), much.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CostExceedsBurst);
    let capped = limiter
        .reserve(ann(), much.with("credits", Cost::new(77)))
        .capped();
    let capped = capped.await.expect("a decision");
    let gave = capped.decision().states().map(|state| state.cost().units());
    assert_eq!(gave.collect::<Vec<_>>(), [100, 50, 200]);
    capped.cancel().await.expect("settled");
    let ranked = cascading().with_priority(Priority::NORMAL);
    let error = limiter.reserve(ann(), ranked).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("costs that cascade have no priority, got "),
        "{error}"
    );
    let shared = cascading().with_customer(Customer::new("ann"));
    let error = limiter.reserve(ann(), shared).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("costs that cascade have no customer, got "),
        "{error}"
    );
    let error = limiter
        .reserve(ann(), Costs::cascading(351))
        .await
        .unwrap_err();
    let message = "cost 351 exceeds the 350 units that the policies that cascade can give";
    assert_eq!(
        refused(error),
        (ErrorKind::CostExceedsBurst, message.to_owned())
    );
    let error = limiter
        .reserve(ann(), Costs::cascading(201).undivided())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CostExceedsBurst);
    let capped = limiter.reserve(ann(), Costs::cascading(351)).capped().await;
    assert_eq!(
        capped.expect("a decision").decision().cost(),
        Cost::new(350)
    );
    let bucket = Policy::token_bucket("rate", Quota::per_second(9));
    let limiter = Limiter::new(MemoryStore::new(), [PLAN, bucket]);
    let error = limiter.reserve("acme", cascading()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "costs cascade over windows with one counter that are not leased, got policy rate: TokenBucket, 9 per 1s: name its cost to charge it in full"
    );
    let joined = limiter
        .reserve("acme", cascading().with("rate", Cost::new(7)))
        .await;
    assert!(joined.expect("a decision").is_allowed());
}
