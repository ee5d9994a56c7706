mod faults;
mod pool;
mod server;

use std::{num::NonZeroU32, time::Duration};

use tokio::time::Instant;
use tollgate_model::Concurrency;

use crate::{
    ErrorKind, Key, MemoryStore, Store, clock::Clock, permits::ConcurrencyLimiter,
    store::PermitRequest,
};
use server::{EXACT, POOLED, POOLED_LIMIT, Server, denied, held_at, permit, request, settled};

#[test]
fn a_store_in_the_process_needs_no_runtime_and_counts_exactly() {
    let store = MemoryStore::new();
    let both = [(); 2].map(|()| ConcurrencyLimiter::new(store.clone(), POOLED));
    let acquire = |limiter: &ConcurrencyLimiter| {
        let limiter = limiter.clone();
        let mut future = Box::pin(async move { limiter.acquire("acme").await });
        match future
            .as_mut()
            .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
        {
            std::task::Poll::Ready(acquired) => acquired.unwrap(),
            std::task::Poll::Pending => panic!("a store in the process answers at once"),
        }
    };
    let mut permits: Vec<_> = (0..8).map(|at| acquire(&both[at % 2]).unwrap()).collect();
    let denied = acquire(&both[0]).unwrap_err();
    assert_eq!((denied.limit(), denied.in_flight()), (8, 8));
    permits.pop();
    let again = acquire(&both[0]).unwrap();
    assert_eq!(
        (again.in_flight(), again.is_lost(), again.degraded()),
        (8, false, None)
    );
    drop((permits, again));
    assert!(
        both.iter().all(|limiter| limiter.shared.is_empty()),
        "an idle key leaves nothing in the limiter"
    );
    let state = store.permits(PermitRequest {
        number: u64::MAX,
        ..request(&POOLED_LIMIT, &Key::new("acme"))
    });
    assert_eq!(
        state.into_ready().unwrap().unwrap().in_flight,
        0,
        "nor in the store"
    );
}

#[tokio::test(start_paused = true)]
async fn slack_is_handed_out_without_a_call_and_goes_back_when_another_replica_waits() {
    let clock = Clock::tokio();
    let server = Server::new(&clock);
    let (first, second) = (
        server.replica(POOLED, &clock),
        server.replica(POOLED, &clock),
    );
    let mut permits = vec![permit(&first).await, permit(&first).await];
    let calls = server.calls();
    for _ in 0..10 {
        drop(permits.pop());
        permits.push(permit(&first).await);
    }
    assert_eq!(server.calls(), calls, "idle permits cost no call");
    for _ in 0..5 {
        permits.push(permit(&first).await);
    }
    permits.truncate(2);
    let mut others = Vec::new();
    let refused = loop {
        match second.acquire("acme").await.unwrap() {
            Ok(permit) => others.push(permit),
            Err(denied) => break denied,
        }
    };
    assert!(others.len() < 6, "the first replica holds idle permits");
    assert_eq!(refused.limit(), 8);
    // The next renewal of the first replica gives them back.
    while others.len() < 6 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        others.extend(second.acquire("acme").await.unwrap());
    }
    assert!(second.acquire("acme").await.unwrap().is_err());
}

/// Returns a replica's limiter with a lower limit.
fn lowered(limiter: &ConcurrencyLimiter, limit: u32) -> ConcurrencyLimiter {
    limiter.with_limit(NonZeroU32::new(limit).expect("not zero"))
}

#[test]
fn law_p2_a_lowered_limit_counts_in_a_process_too() {
    let store = MemoryStore::new();
    let both = [(); 2].map(|()| ConcurrencyLimiter::new(store.clone(), POOLED));
    let acquire = |limiter: &ConcurrencyLimiter| {
        let acquired = futures_util::FutureExt::now_or_never(limiter.acquire("acme"));
        acquired
            .expect("a store in the process answers at once")
            .unwrap()
            .ok()
    };
    let mut held: Vec<_> = (0..8)
        .map(|at| acquire(&both[at % 2]).expect("a permit"))
        .collect();
    let both = both.map(|limiter| lowered(&limiter, 3));
    for left in (0..8).rev() {
        drop(held.remove(0));
        for limiter in &both {
            assert_eq!(acquire(limiter).is_none(), left >= 3, "{left} are held");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_exact_limit_leaves_no_permit_idle_and_one_call_serves_callers_that_wait_for_it() {
    let clock = Clock::tokio();
    let server = Server::new(&clock);
    let replicas = [(); 2].map(|()| server.replica(EXACT, &clock));
    let (first, second) = (permit(&replicas[0]).await, permit(&replicas[1]).await);
    let before = server.calls();
    let all: Vec<_> = (0..20).map(|_| replicas[0].try_acquire("acme")).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let replica = replicas[0].clone();
        tasks.spawn(async move { replica.try_acquire("acme").await.unwrap().is_err() });
    }
    drop(all);
    assert!(
        tasks
            .join_all()
            .await
            .into_iter()
            .all(|is_denied| is_denied)
    );
    assert!(
        server.calls() - before <= 2,
        "{} calls for 20 denials",
        server.calls() - before
    );
    first.release().await.unwrap();
    let third = permit(&replicas[1]).await;
    assert!(replicas[0].acquire("acme").await.unwrap().is_err());
    drop((second, third));
    settled(|| held_at(&server, &EXACT) == 0).await;
}

#[tokio::test(start_paused = true)]
async fn held_permits_are_renewed_by_one_task_that_ends_when_nothing_is_held() {
    let clock = Clock::tokio();
    let server = Server::new(&clock);
    let limiter = server.replica(POOLED, &clock);
    let held = permit(&limiter).await;
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    assert_eq!(tasks(), 2, "the renewal, and the timer of its calls");
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(!held.is_lost());
    let renewals = server.calls();
    assert!(
        (20..=40).contains(&renewals),
        "{renewals} calls in ten lives"
    );
    drop(held);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(tasks(), 0);
    assert!(limiter.shared.is_empty());
    let idle = server.calls();
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(server.calls(), idle);
}

#[tokio::test(start_paused = true)]
async fn a_free_permit_is_taken_also_where_nobody_may_wait() {
    let clock = Clock::tokio();
    let server = Server::new(&clock);
    let policy = EXACT.wait(Duration::from_secs(60)).max_waiting(0);
    for limiter in [
        server.replica(policy.clone(), &clock),
        ConcurrencyLimiter::new(MemoryStore::new(), policy),
    ] {
        let _held = [permit(&limiter).await, permit(&limiter).await];
        assert!(limiter.acquire("acme").await.unwrap().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn callers_wait_in_their_order_for_a_bounded_time_and_in_a_bounded_number() {
    let clock = Clock::tokio();
    let server = Server::new(&clock);
    let policy = EXACT.wait(Duration::from_secs(60)).max_waiting(5);
    for limiter in [
        server.replica(policy.clone(), &clock),
        ConcurrencyLimiter::new(MemoryStore::new(), policy),
    ] {
        let mut held = vec![permit(&limiter).await, permit(&limiter).await];
        let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
        let mut waiting = Vec::new();
        for at in 0..5 {
            let (waiter, sender) = (limiter.clone(), sender.clone());
            waiting.push(tokio::spawn(async move {
                let permit = permit(&waiter).await;
                sender.send((at, permit)).unwrap();
            }));
            settled(|| limiter.shared.waiting.callers() == at + 1).await;
        }
        let begun = Instant::now();
        assert!(
            limiter.acquire("acme").await.unwrap().is_err(),
            "the sixth caller does not wait"
        );
        assert!(limiter.try_acquire("acme").await.unwrap().is_err());
        assert_eq!(begun.elapsed(), Duration::ZERO);
        // A caller that goes away leaves its place.
        waiting[1].abort();
        for expected in [0, 2, 3, 4] {
            drop(held.remove(0));
            assert!(
                limiter.try_acquire("acme").await.unwrap().is_err(),
                "those that wait come first"
            );
            let (at, permit) = order.recv().await.unwrap();
            assert_eq!(at, expected);
            held.push(permit);
        }
        let begun = Instant::now();
        assert!(
            limiter
                .with_wait(Duration::from_secs(3))
                .acquire("acme")
                .await
                .unwrap()
                .is_err()
        );
        let waited = begun.elapsed();
        assert!((3_000..3_100).contains(&waited.as_millis()), "{waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_caller_gets_the_permit_of_another_replica() {
    let clock = Clock::tokio();
    let server = Server::new(&clock);
    for policy in [EXACT, Concurrency::new("streams", 2)] {
        let replicas = [(); 2].map(|()| server.replica(policy.clone(), &clock));
        let held = [permit(&replicas[0]).await, permit(&replicas[0]).await];
        let patient = replicas[1].with_wait(Duration::from_secs(20));
        let wait = patient.acquire("acme");
        let give_back = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(held);
        };
        let (acquired, ()) = tokio::join!(wait, give_back);
        assert!(acquired.unwrap().is_ok(), "{policy:?}");
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn more_than_64_replicas_are_a_clear_error_and_not_a_wrong_count() {
    let clock = Clock::manual(1_000_000);
    let server = Server::new(&clock);
    let policy = Concurrency::new("many", 1_000).exact();
    let replicas: Vec<_> = (0..65)
        .map(|_| server.replica(policy.clone(), &clock))
        .collect();
    let mut permits = Vec::new();
    for replica in &replicas[..64] {
        permits.push(permit(replica).await);
    }
    let error = replicas[64].acquire("acme").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(
        error.to_string(),
        "64 other replicas hold permits of this key of concurrency many"
    );
    permits.push(permit(&replicas[3]).await);
    permits.remove(0).release().await.unwrap();
    permits.push(permit(&replicas[64]).await);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_keys_leave_nothing_behind() {
    let limiter = ConcurrencyLimiter::new(MemoryStore::new(), POOLED);
    let mut permits = Vec::new();
    for key in 0..100_000_u64 {
        permits.push(limiter.acquire(key).await.unwrap().unwrap());
    }
    for bytes in [&b"\0{}: \n"[..], b"", &[255; 1_000]] {
        permits.push(limiter.acquire(Key::bytes(bytes)).await.unwrap().unwrap());
    }
    drop(permits);
    assert!(limiter.shared.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_retry_time_is_estimated_from_the_work_of_this_process() {
    let clock = Clock::tokio();
    let server = Server::new(&clock);
    let limiter = server.replica(EXACT, &clock);
    let mut held = vec![permit(&limiter).await, permit(&limiter).await];
    assert_eq!(denied(&limiter).await.retry_after(), Duration::from_secs(1));
    tokio::time::sleep(Duration::from_secs(4)).await;
    held.pop();
    held.push(permit(&limiter).await);
    let estimate = denied(&limiter).await.retry_after();
    assert!(
        (1_990..=2_010).contains(&estimate.as_millis()),
        "{estimate:?}: four seconds each, two in flight"
    );
}
