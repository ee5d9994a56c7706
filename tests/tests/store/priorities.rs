//! Priorities as an application uses them, by two limiters that share a store.

use std::time::Duration;

use tokio::{
    task::{JoinSet, yield_now},
    time::Instant,
};
use tollgate::{
    Cost, Costs, ErrorKind, Lease, Limiter, MemoryStore, Policy, Priority, Quota,
    limiter::PolicyState, store::Clock,
};
use tollgate_test_support::{connected_store, decided_at, patient_limiter};
use tollgate_tests::RedisServer;

const FLEET: Policy = Policy::fixed_window("fleet", Quota::per_day(100));

fn background() -> Costs {
    Costs::new(Cost::ONE).with_priority(Priority::BACKGROUND)
}

/// Counts how many of 200 checks are admitted.
async fn admitted(limiter: &Limiter, costs: &Costs) -> usize {
    let mut admitted = 0;
    for _ in 0..200 {
        admitted += usize::from(decided_at(limiter, "all", costs.clone()).await.is_allowed());
    }
    admitted
}

#[tokio::test]
async fn a_ranked_caller_is_told_what_its_rank_can_have() {
    let server = RedisServer::start();
    let redis = connected_store(server.url()).await;
    let bucket = Policy::token_bucket("bucket", Quota::per_day(100));
    for limiter in [
        patient_limiter(redis, [FLEET, bucket.clone()]),
        patient_limiter(MemoryStore::new(), [FLEET, bucket]),
    ] {
        let left = |states: Vec<PolicyState<'_>>| {
            states
                .iter()
                .map(PolicyState::remaining)
                .collect::<Vec<_>>()
        };
        let decision = decided_at(&limiter, "all", background()).await;
        assert_eq!(left(decision.states().collect()), [59, 59]);
        let look = limiter
            .peek("all")
            .cost(background())
            .await
            .expect("a state");
        assert_eq!(left(look.states().collect()), [59, 59]);
        assert!(
            decided_at(&limiter, "all", Cost::new(69))
                .await
                .is_allowed()
        );
        let denied = decided_at(&limiter, "all", background()).await;
        assert!(denied.is_denied());
        assert_eq!(left(denied.states().collect()), [0, 0]);
        for state in denied.states() {
            assert_eq!(
                Some(state.next_unit_after()),
                state.retry_after(),
                "one unit more is one that the rank can have"
            );
        }
        let look = limiter
            .peek("all")
            .cost(Costs::new(Cost::ZERO).with_priority(Priority::BACKGROUND))
            .await;
        let look = look.expect("a state");
        assert_eq!(left(look.states().collect()), [0, 0]);
        assert_eq!(
            left(
                limiter
                    .peek("all")
                    .await
                    .expect("a state")
                    .states()
                    .collect()
            ),
            [30, 30]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_of_a_lower_rank_takes_no_unit_of_a_higher_one() {
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let limiter = Limiter::new(store, Policy::token_bucket("calls", Quota::per_second(10)));
    let wait = Duration::from_secs(1);
    for _ in 0..6 {
        let ready = limiter
            .check("all")
            .cost(background())
            .wait(wait)
            .await
            .expect("a decision");
        assert!(ready.is_allowed() && ready.delay().is_zero());
    }
    // The seventh waits until a unit has accrued. Meanwhile four critical checks find the units
    // above the share.
    let waiter = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.check("all").cost(background()).wait(wait).await }
    });
    yield_now().await;
    for _ in 0..4 {
        assert!(limiter.check("all").await.expect("a decision").is_allowed());
    }
    // Five units have to accrue before it fits its share.
    let begin = Instant::now();
    assert!(
        waiter
            .await
            .expect("no panic")
            .expect("a decision")
            .is_allowed()
    );
    assert_eq!(begin.elapsed(), Duration::from_millis(500));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_of_a_lower_rank_gets_a_place_in_its_share_of_a_queue() {
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let limiter = Limiter::new(
        store,
        Policy::leaky_bucket("mails", Quota::per_second(10).with_burst(10)),
    );
    let mut places = JoinSet::new();
    for _ in 0..10 {
        let limiter = limiter.clone();
        places.spawn(async move {
            limiter
                .check("all")
                .cost(background())
                .wait(Duration::ZERO)
                .await
        });
    }
    // Without a wait only a place at the front of the queue is taken.
    let taken = places
        .join_all()
        .await
        .into_iter()
        .filter(|place| place.as_ref().is_ok_and(|one| one.is_allowed()));
    assert_eq!(taken.count(), 1);
    assert_eq!(
        admitted(&limiter, &background()).await,
        5,
        "six of ten places, one of them taken before"
    );
    assert_eq!(admitted(&limiter, &Costs::new(Cost::ONE)).await, 4);
}

#[tokio::test]
async fn what_makes_no_sense_is_an_error_that_names_it() {
    let limiter = Limiter::new(MemoryStore::new(), FLEET.leased(Lease::new()));
    let error = limiter
        .check("all")
        .cost(background())
        .await
        .expect_err("a leased policy");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(
        error.to_string(),
        "policy fleet is leased, and its units have no priority"
    );

    let limiter = Limiter::new(MemoryStore::new(), FLEET);
    let at_rank = |units| Costs::new(Cost::new(units)).with_priority(Priority::BACKGROUND);
    let error = limiter
        .check("all")
        .cost(at_rank(61))
        .await
        .expect_err("a cost above the share");
    assert_eq!(error.kind(), ErrorKind::CostExceedsBurst);
    assert_eq!(
        error.to_string(),
        "cost 61 exceeds the 60 units that a priority of 60 % may spend of policy fleet"
    );
    let error = limiter
        .reserve("all", at_rank(61))
        .await
        .expect_err("a cost above the share");
    assert_eq!(error.kind(), ErrorKind::CostExceedsBurst);
}

#[tokio::test]
async fn a_reservation_and_a_peek_have_a_priority() {
    let limiter = Limiter::new(MemoryStore::new(), FLEET);
    let estimate = Costs::new(Cost::new(60)).with_priority(Priority::BACKGROUND);
    assert!(
        limiter
            .reserve("all", estimate)
            .await
            .expect("a decision")
            .is_allowed()
    );
    assert!(
        limiter
            .reserve("all", background())
            .await
            .expect("a decision")
            .is_denied()
    );
    let look = limiter
        .peek("all")
        .cost(background())
        .await
        .expect("a state");
    assert!(look.retry_after().is_some());
    assert_eq!(
        limiter
            .peek("all")
            .cost(Cost::ONE)
            .await
            .expect("a state")
            .retry_after(),
        None
    );
}
