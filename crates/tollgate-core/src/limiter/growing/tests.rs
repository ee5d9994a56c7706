//! Growing reservations over a store that is far away, in paused time. What holds on every store is in
//! the program `store` of the tests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    task::yield_now,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{GrowingReservation, GrowthError};
use crate::{
    Cost, Decision, Error, ErrorKind, Limiter, MemoryStore, Outage, Policy, Quota, Store,
    clock::Clock,
    reservation::{ReservationId, Settlement},
    store::{Check, CheckFuture, StoreFuture},
};

const AMOUNT: u64 = 1_000;
const TRIP: Duration = Duration::from_millis(50);

/// A store whose answers take a round trip, or are lost.
#[derive(Clone)]
struct FarStore {
    store: MemoryStore,
    loses: Arc<AtomicBool>,
    cause: ErrorKind,
    reserved: Arc<AtomicU64>,
}

impl FarStore {
    fn answer<T: Send + Unpin + 'static>(&self, answer: StoreFuture<T>) -> StoreFuture<T> {
        let (is_lost, cause) = (self.loses.load(Ordering::Relaxed), self.cause);
        StoreFuture::pending(async move {
            sleep(TRIP).await;
            match is_lost {
                true => Err(Error::new(cause, "the answer is lost")),
                false => answer.await,
            }
        })
    }
}

impl Store for FarStore {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        self.store.check(check)
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.store.refund(check, decision)
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.store.reset(check)
    }

    fn reserve(&self, check: Check<'_>, id: &ReservationId, time_to_live: Duration) -> CheckFuture {
        self.reserved.fetch_add(1, Ordering::Relaxed);
        self.answer(self.store.reserve(check, id, time_to_live))
    }

    /// It arrives after a trip: a call that is dropped before settles nothing.
    fn commit(&self, check: Check<'_>, id: &ReservationId) -> StoreFuture<Settlement> {
        let (store, kept, id) = (self.store.clone(), check.keep(), id.clone());
        self.answer(StoreFuture::pending(async move {
            store.commit(kept.check(), &id).await
        }))
    }
}

struct Scene {
    limiter: Limiter,
    store: FarStore,
    clock: Clock,
}

impl Scene {
    fn new() -> Self {
        Self::losing_by(ErrorKind::Timeout)
    }

    /// Returns a scene whose lost answers fail for this reason.
    fn losing_by(cause: ErrorKind) -> Self {
        let clock = Clock::manual(1_000_000_000);
        let store = FarStore {
            store: MemoryStore::builder().clock(clock.clone()).build(),
            loses: Arc::default(),
            cause,
            reserved: Arc::default(),
        };
        let limiter = Limiter::builder(store.clone())
            .policies(Policy::fixed_window("tokens", Quota::per_day(AMOUNT)))
            .deadline(10 * TRIP)
            .on_outage(Outage::Closed)
            .build();
        Self {
            limiter,
            store,
            clock,
        }
    }

    async fn grown(&self, slice: u64) -> GrowingReservation {
        let stream = self.limiter.reserve("acme", Cost::ZERO).growing(slice);
        stream.await.expect("a decision")
    }

    /// Returns the units that are spent when all calls have ended.
    async fn spent(&self) -> u64 {
        sleep(Duration::from_secs(60)).await;
        let state = self.limiter.peek("acme").await.expect("a decision");
        state.state("tokens").expect("a state").spent()
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_over_a_distant_store_never_stops_and_calls_once_for_each_slice() {
    for (between, slice, tokens) in [(10, 50, 400), (1, 200, 900), (40, 20, 100)] {
        let scene = Scene::new();
        let stream = scene.grown(slice).await;
        let (began, between) = (Instant::now(), Duration::from_millis(between));
        for _ in 0..tokens {
            sleep(between).await;
            stream.growth().take(1).await.expect("reserved");
        }
        assert_eq!(began.elapsed(), between * tokens, "no token waits");
        stream.commit().await.expect("settled");
        assert_eq!(scene.spent().await, u64::from(tokens));
        let slices = u64::from(tokens).div_ceil(slice);
        let calls = scene.store.reserved.load(Ordering::Relaxed);
        assert!(
            (slices..=slices + 1).contains(&calls),
            "{calls} of {slices}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_slice_that_comes_after_the_settlement_goes_back() {
    let scene = Scene::new();
    let stream = scene.grown(10).await;
    let growth = stream.growth().clone();
    growth.take(7).await.expect("reserved");
    let waiting = tokio::spawn(async move { growth.take(8).await });
    yield_now().await;
    drop(stream);
    // Who waits for it learns of the end at once.
    let ended = Instant::now();
    let outcome = waiting.await.expect("no panic");
    assert_eq!(ended.elapsed(), Duration::ZERO);
    assert!(matches!(outcome, Err(GrowthError::Settled)), "{outcome:?}");
    assert_eq!(scene.store.reserved.load(Ordering::Relaxed), 2);
    assert_eq!(scene.spent().await, 7);
}

#[tokio::test(start_paused = true)]
async fn a_slice_whose_answer_was_lost_is_charged_once_or_goes_back() {
    let causes = [
        ErrorKind::ConnectionLost,
        ErrorKind::Protocol,
        ErrorKind::Timeout,
        ErrorKind::Unavailable,
    ];
    let cases = causes.map(|cause| [(cause, true), (cause, false)]);
    for (cause, is_asked_again) in cases.into_iter().flatten() {
        let scene = Scene::losing_by(cause);
        let stream = scene.grown(10).await;
        scene.store.loses.store(true, Ordering::Relaxed);
        stream.growth().take(9).await.expect("reserved");
        let lost = stream.growth().take(5).await;
        assert!(matches!(lost, Err(GrowthError::Failed(_))), "{lost:?}");
        scene.store.loses.store(false, Ordering::Relaxed);
        assert_eq!(scene.spent().await, 20, "the store has charged it");
        if is_asked_again {
            stream.growth().take(5).await.expect("the same slice");
            assert_eq!(
                scene.spent().await,
                20 + 10 * u64::from(stream.growth().reserved() > 20)
            );
        }
        let counted = stream.growth().counted();
        drop(stream);
        assert_eq!(scene.spent().await, counted);
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_id_is_charged_for_no_slice_twice() {
    let scene = Scene::new();
    let id = ReservationId::try_new("request-7").expect("an id");
    for _ in 0..2 {
        let stream = scene.limiter.reserve("acme", Cost::new(3)).id(id.clone());
        let stream = stream.growing(10).await.expect("a decision");
        assert_eq!(stream.id(), &id);
        stream.growth().take(20).await.expect("reserved");
        // Its process dies, and another one repeats the request.
        std::mem::forget(stream);
        // The third slice was asked for in advance.
        assert_eq!(scene.spent().await, 33);
    }
    // An id of a slice is an id like any other.
    let second = id.slice(1);
    let settled = scene.limiter.commit("acme", &second, Cost::ZERO).await;
    assert_eq!(settled.expect("settled"), Settlement::Settled);
    assert_eq!(scene.spent().await, 23);
}

/// The clock of the store runs ahead here, so nothing went back in time.
#[tokio::test(start_paused = true)]
async fn a_slice_that_lapses_before_its_end_stays_charged_and_may_be_spent() {
    let scene = Scene::new();
    let stream = scene.limiter.reserve("acme", Cost::ZERO);
    let stream = stream.time_to_live(Duration::from_secs(5)).growing(10);
    let stream = stream.await.expect("a decision");
    scene.clock.advance(Duration::from_secs(6));
    stream.growth().take(4).await.expect("reserved");
    assert_eq!(stream.commit().await.expect("a no-op"), Settlement::Lapsed);
    assert_eq!(scene.spent().await, 10);
}

/// At the edge of a limit, each slice is asked for once: the denial in advance is the answer when the
/// slice is needed.
#[tokio::test(start_paused = true)]
async fn a_slice_that_was_denied_in_advance_is_not_asked_for_once_more() {
    for (between, slice) in [(10, 50), (40, 20), (1, 200)] {
        let scene = Scene::new();
        let stream = scene.grown(slice).await;
        let tokens = async || {
            let mut tokens = 0;
            while stream.growth().take(1).await.is_ok() {
                tokens += 1;
                sleep(Duration::from_millis(between)).await;
            }
            tokens
        };
        assert_eq!(tokens().await, AMOUNT, "all are used");
        // The slices that were granted, and one that was denied.
        let calls = || scene.store.reserved.load(Ordering::Relaxed);
        assert_eq!(calls(), AMOUNT / slice + 1);
        // However often it is asked within a second.
        for _ in 0..100 {
            assert!(!stream.growth().try_take(1));
            let denied = stream.growth().take(1).await;
            assert!(matches!(denied, Err(GrowthError::Denied(_))), "{denied:?}");
        }
        assert_eq!(calls(), AMOUNT / slice + 1);
        // `grow` asks now, and so does who needs a slice when the denial is old.
        let denied = stream.growth().grow().await;
        assert!(matches!(denied, Err(GrowthError::Denied(_))), "{denied:?}");
        assert_eq!(calls(), AMOUNT / slice + 2);
        scene
            .limiter
            .reset("acme")
            .await
            .expect("the store answers");
        assert!(!stream.growth().try_take(1), "the denial stands");
        sleep(Duration::from_secs(1)).await;
        stream.growth().take(1).await.expect("units have come back");
        assert_eq!(calls(), AMOUNT / slice + 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_reservation_gives_the_estimate_back() {
    let scene = Scene::new();
    for (counted, spent) in [(0, 0), (4, 4), (15, 19)] {
        let stream = scene.limiter.reserve("acme", Cost::new(30)).growing(10);
        let stream = stream.await.expect("a decision");
        stream.growth().take(counted).await.expect("reserved");
        assert_eq!(stream.cancel().await.expect("settled"), Settlement::Settled);
        assert_eq!(scene.spent().await, spent);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_goes_back_shortly_before_the_time_to_live_ends_and_what_is_used_is_kept() {
    for (time_to_live, end) in [(80, 75), (8, 7)] {
        let scene = Scene::new();
        let began = Instant::now();
        let at = |seconds, milliseconds| {
            let end = Duration::from_secs(seconds) + Duration::from_millis(milliseconds);
            sleep_until(began + end)
        };
        let reserve = || {
            let stream = scene.limiter.reserve("acme", Cost::new(30));
            stream
                .time_to_live(Duration::from_secs(time_to_live))
                .growing(10)
        };
        let (partly, whole) = tokio::join!(reserve(), reserve());
        let (partly, whole) = (partly.expect("a decision"), whole.expect("a decision"));
        partly.growth().take(4).await.expect("reserved");
        assert!(whole.growth().try_take(8) && whole.growth().try_take(2));
        at(end - 1, 990).await;
        assert_eq!(
            (partly.growth().left(), partly.growth().reserved()),
            (6, 10)
        );
        // The time runs since the slice was asked for, and not since the answer.
        at(end, 10).await;
        assert_eq!((partly.growth().left(), partly.growth().reserved()), (0, 4));
        // Of the other one nothing has gone back, so the estimate still can.
        let cancelled = whole.cancel().await.expect("settled");
        assert_eq!(cancelled, Settlement::Settled);
        let cancelled = partly.cancel().await.expect("settled");
        assert_eq!(cancelled, Settlement::AlreadySettled);
        assert_eq!(scene.spent().await, 10 + 34);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_slice_that_is_asked_for_again_as_its_time_ends_is_not_given_back_meanwhile() {
    let scene = Scene::new();
    let stream = scene.limiter.reserve("acme", Cost::ZERO);
    let stream = stream.time_to_live(Duration::from_secs(80)).growing(10);
    let stream = stream.await.expect("a decision");
    scene.store.loses.store(true, Ordering::Relaxed);
    // The second slice is asked for at once, and its answer is lost.
    stream.growth().take(10).await.expect("reserved");
    let asked = Instant::now();
    assert_eq!(scene.store.reserved.load(Ordering::Relaxed), 2);
    sleep(Duration::from_secs(1)).await;
    scene.store.loses.store(false, Ordering::Relaxed);
    sleep_until(asked + Duration::from_secs(75) - TRIP / 2).await;
    stream
        .growth()
        .take(1)
        .await
        .expect("it is held since then");
    let counted = stream.growth().counted();
    assert!(scene.spent().await >= counted);
    drop(stream);
    assert_eq!(scene.spent().await, counted);
}

#[tokio::test(start_paused = true)]
async fn a_denied_reservation_has_no_units_and_asks_for_none() {
    let scene = Scene::new();
    let _all = scene.grown(AMOUNT).await;
    let stream = scene.grown(1).await;
    assert!(stream.is_denied());
    assert_eq!(stream.growth().reserved(), 0);
    let taken = stream.growth().take(1).await;
    assert!(matches!(taken, Err(GrowthError::Settled)), "{taken:?}");
    assert_eq!(scene.store.reserved.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn a_settled_reservation_has_reserved_what_was_counted_and_leaves_no_task() {
    let scene = Scene::new();
    let stream = scene.grown(10).await;
    let growth = stream.growth().clone();
    assert!(growth.try_take(7));
    drop(stream);
    assert_eq!((growth.reserved(), growth.counted()), (7, 7));
    // Its timer would run for ten minutes.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_first_slice_whose_answer_was_lost_goes_back_where_the_share_of_the_process_gave_it() {
    let scene = Scene::new();
    let local = Limiter::builder(scene.store.clone())
        .policies(Policy::fixed_window("tokens", Quota::per_day(AMOUNT)))
        .deadline(10 * TRIP)
        .on_outage(Outage::local(1))
        .build();
    scene.store.loses.store(true, Ordering::Relaxed);
    let stream = local.reserve("acme", Cost::ZERO).growing(10).await;
    let stream = stream.expect("the share has units");
    assert!(stream.decision().is_degraded());
    scene.store.loses.store(false, Ordering::Relaxed);
    assert_eq!(scene.spent().await, 10, "the store has charged it");
    stream.growth().take(3).await.expect("reserved");
    drop(stream);
    assert_eq!(scene.spent().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_denial_does_not_stand_while_the_slice_is_asked_for_again() {
    let scene = Scene::new();
    let stream = scene.grown(AMOUNT).await;
    let growth = stream.growth().clone();
    growth.take(AMOUNT).await.expect("reserved");
    let denied = growth.take(1).await;
    assert!(matches!(denied, Err(GrowthError::Denied(_))), "{denied:?}");
    scene.limiter.reset("acme").await.expect("an answer");
    let again = growth.clone();
    let asking = tokio::spawn(async move { again.grow().await });
    yield_now().await;
    growth
        .take(1)
        .await
        .expect("the call that is on its way brings it");
    asking.await.expect("no panic").expect("granted");
}

/// A client that hangs up drops the handler while it settles.
#[tokio::test(start_paused = true)]
async fn what_was_not_counted_comes_back_although_nobody_waits_for_the_settlement() {
    for (is_cancelled, spent) in [(false, 34), (true, 4)] {
        let scene = Scene::new();
        let stream = scene.limiter.reserve("acme", Cost::new(30)).growing(10);
        let stream = stream.await.expect("a decision");
        stream.growth().take(4).await.expect("reserved");
        let settled = match is_cancelled {
            true => timeout(TRIP / 2, stream.cancel()).await,
            false => timeout(TRIP / 2, stream.commit()).await,
        };
        settled.expect_err("half a trip");
        assert_eq!(scene.spent().await, spent, "is cancelled: {is_cancelled}");
    }
}
