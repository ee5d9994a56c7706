use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use tokio::time::Instant;
use tollgate_model::{Concurrency, OnLoss};

use super::server::{
    ANSWERS, AWAY, EXACT, MUTE, POOLED, Server, held_at, permit, request, settled,
};
use crate::{
    ErrorKind, Key, MemoryStore, Outage, Store,
    clock::Clock,
    limiter::permits::{
        Lost,
        pool::{PermitPool, PoolRules},
    },
    store::{PermitGrant, PermitOutcome, PermitRequest},
};

#[tokio::test(start_paused = true)]
async fn a_replica_that_stalls_for_a_life_loses_its_permits_before_another_gets_them() {
    let (time, stalled) = (Clock::manual(1_000_000), Clock::manual(5));
    let server = Server::new(&time);
    let policy = EXACT.on_loss(OnLoss::Cancel);
    let (first, second) = (
        server.replica(policy.clone(), &stalled),
        server.replica(policy, &time),
    );
    let permits = [permit(&first).await, permit(&first).await];
    assert!(second.acquire("acme").await.unwrap().is_err());
    // No task runs meanwhile: the whole process is stopped.
    for clock in [&time, &stalled] {
        clock.advance(Duration::from_millis(9_989));
    }
    assert!(!permits[0].is_lost() && second.acquire("acme").await.unwrap().is_err());
    for clock in [&time, &stalled] {
        clock.advance(Duration::from_millis(1));
    }
    assert!(permits[0].is_lost() && second.acquire("acme").await.unwrap().is_err());
    let polled = AtomicU32::new(0);
    let work = permits[0].run(async { polled.fetch_add(1, Ordering::SeqCst) });
    assert_eq!(work.await, Err(Lost(())));
    assert_eq!(
        polled.into_inner(),
        0,
        "the work is not polled once the permit is lost"
    );
    permits[1].lost().await;
    time.advance(Duration::from_millis(10));
    let others = [permit(&second).await, permit(&second).await];
    assert!(
        first.acquire("acme").await.unwrap().is_err(),
        "what was lost does not come back"
    );
    drop(permits);
    assert!(
        first.acquire("acme").await.unwrap().is_err(),
        "a lost permit is not given back twice"
    );
    drop(others);
}

#[tokio::test(start_paused = true)]
async fn work_under_finish_runs_on_and_under_cancel_is_dropped_when_the_renewals_fail() {
    for (on_loss, expected) in [(OnLoss::Finish, Ok(())), (OnLoss::Cancel, Err(Lost(())))] {
        let clock = Clock::tokio();
        let server = Server::new(&clock);
        let limiter = server.replica(EXACT.on_loss(on_loss), &clock);
        let permit = permit(&limiter).await;
        server.set(AWAY);
        let begun = Instant::now();
        let outcome = permit
            .run(tokio::time::sleep(Duration::from_secs(30)))
            .await;
        assert_eq!(outcome, expected);
        assert_eq!(
            begun.elapsed() < Duration::from_secs(11),
            on_loss == OnLoss::Cancel
        );
        assert!(permit.is_lost());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_costs_no_permit() {
    let clock = Clock::tokio();
    let server = Server::new(&clock);
    for policy in [EXACT, Concurrency::new("streams", 2)] {
        let limiter = server.replica(policy.clone(), &clock);
        server.set(MUTE);
        let error = limiter.acquire("acme").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        server.set(ANSWERS);
        // The store has granted it. The next call of the replica states what it really holds.
        let permits = [permit(&limiter).await, permit(&limiter).await];
        assert!(limiter.acquire("acme").await.unwrap().is_err());
        drop(permits);
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(held_at(&server, &policy), 0, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_acquire_gives_back_what_was_granted() {
    let clock = Clock::tokio();
    let server = Server::new(&clock);
    let limiter = server.replica(EXACT, &clock);
    for polls in 1..6 {
        let mut acquire = Box::pin(limiter.acquire("acme"));
        for _ in 0..polls {
            let is_ready = std::future::poll_fn(|cx| {
                std::task::Poll::Ready(acquire.as_mut().poll(cx).is_ready())
            })
            .await;
            if is_ready {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(acquire);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(held_at(&server, &EXACT), 0, "after {polls} polls");
        assert!(limiter.shared.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn in_an_outage_permits_stay_valid_slack_is_used_and_then_the_outage_answers() {
    let clock = Clock::tokio();
    for (outage, expected) in [
        (Outage::Open, 10),
        (Outage::Closed, 0),
        (Outage::local(2), 1),
    ] {
        let server = Server::new(&clock);
        let limiter = server.replica_in(outage, POOLED, &clock);
        let held = [
            permit(&limiter).await,
            permit(&limiter).await,
            permit(&limiter).await,
        ];
        // Of the permits granted so far, two are idle.
        server.set(AWAY);
        let slack = [permit(&limiter).await, permit(&limiter).await];
        assert!(slack.iter().all(|permit| permit.degraded().is_none()));
        let mut degraded = Vec::new();
        for _ in 0..10 {
            match limiter.acquire("acme").await {
                Ok(Ok(permit)) => degraded.push(permit),
                Ok(Err(denied)) => assert_eq!(denied.degraded(), Some(ErrorKind::CircuitOpen)),
                Err(error) => assert_eq!(
                    (outage, error.kind()),
                    (Outage::Closed, ErrorKind::CircuitOpen)
                ),
            }
        }
        let shared = degraded
            .iter()
            .filter(|permit| permit.degraded().is_some())
            .count();
        // This replica's share is four permits, and it holds five.
        assert_eq!(
            shared,
            if expected == 1 { 0 } else { expected },
            "{outage:?}"
        );
        assert!(held.iter().all(|permit| !permit.is_lost()));
        server.set(ANSWERS);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(
            held.iter().chain(&slack).all(|permit| !permit.is_lost()),
            "they are renewed when the store is back"
        );
    }
}

#[tokio::test]
async fn permits_that_the_state_lacks_are_counted_again_if_they_fit_and_are_lost_otherwise() {
    let clock = Clock::manual(1_000_000);
    let (store, key) = (
        MemoryStore::builder().clock(clock.clone()).build(),
        Key::new("acme"),
    );
    let policy = Concurrency::new("streams", 5).exact();
    let call = |replica, number, used, needed| {
        let request = PermitRequest {
            replica,
            number,
            used,
            needed,
            ..request(&policy, &key)
        };
        let grant = store.permits(request).into_ready().unwrap().unwrap();
        (grant.outcome, grant.held, grant.in_flight)
    };
    // An older copy of the state knows the first replica alone.
    assert_eq!(call(1, 1, 0, 1), (PermitOutcome::Decided, 1, 1));
    assert_eq!(call(2, 7, 2, 2), (PermitOutcome::Decided, 2, 3));
    assert_eq!(call(3, 4, 3, 3), (PermitOutcome::Lost, 0, 3));
    assert_eq!(
        call(4, 9, 1, 4),
        (PermitOutcome::Decided, 2, 5),
        "what is in use fits, and one more"
    );
    // The server's clock went forward: all have lapsed for it.
    clock.advance(Duration::from_secs(10));
    assert_eq!(call(2, 8, 2, 2), (PermitOutcome::Decided, 2, 2));
}

#[test]
fn permits_outlive_their_runtime_and_are_dropped_without_one() {
    let clock = Clock::manual(1);
    let server = Server::new(&clock);
    let limiter = server.replica(EXACT, &clock);
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
    };
    let first = runtime();
    let held = [
        first.block_on(permit(&limiter)),
        first.block_on(permit(&limiter)),
    ];
    drop(first);
    drop(held);
    assert_eq!(
        futures_util::FutureExt::now_or_never(limiter.acquire("acme"))
            .unwrap()
            .map(|acquired| acquired.is_err())
            .ok(),
        Some(false),
        "the pool still holds both: their release could not be sent"
    );
    clock.advance(Duration::from_secs(10));
    let outside = futures_util::FutureExt::now_or_never(limiter.acquire("acme"))
        .unwrap()
        .unwrap_err();
    assert_eq!(outside.kind(), ErrorKind::NoRuntime);
    let second = runtime();
    let held = second.block_on(permit(&limiter));
    second.block_on(held.release()).unwrap();
    second.block_on(async { settled(|| limiter.shared.is_empty()).await });
}

#[test]
fn a_reply_that_does_not_cover_the_permits_in_use_loses_all_of_them() {
    let rules = PoolRules {
        is_pooled: true,
        life_us: 1_000,
    };
    let grant = |held| PermitGrant {
        held,
        in_flight: 2,
        wanted: 0,
        outcome: PermitOutcome::Decided,
    };
    let mut pool = PermitPool::default();
    pool.demand = 2;
    let turn = pool.begin(10, 2, rules);
    pool.end(turn, &grant(2), 11, rules);
    let leases = [pool.take(11, 2).unwrap(), pool.take(11, 2).unwrap()];
    assert!(!leases[0].is_lost(11));
    // The server has failed over to an older copy, and others have taken the rest.
    let turn = pool.begin(12, 2, rules);
    pool.end(turn, &grant(1), 13, rules);
    assert!(leases.iter().all(|lease| lease.is_lost(13)));
    assert!(
        !pool.has_free(13, 2),
        "and what is held at the server is given back before it is used"
    );
    assert!(pool.is_due(13, rules));
}
