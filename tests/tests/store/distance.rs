//! A server whose answers come after the deadline: its distance is measured, and checks do not wait
//! for it.

use std::time::{Duration, Instant};

use tollgate::{Decision, ErrorKind, Limiter, Outage, Policy, Quota, RedisStore};
use tollgate_test_support::{PATIENCE, decided, patient_limiter};
use tollgate_tests::{Mode, Proxy, RedisServer, wait};

/// So large and slow that no check is denied while a test runs.
const LARGE: Policy = Policy::window_from_first_hit("large", Quota::per_day(1_000_000));

/// A deadline that a slow machine keeps with a near server.
const DEADLINE: Duration = Duration::from_millis(150);

/// A round trip that exceeds [`DEADLINE`], and takes less than connecting may.
const FAR: Duration = Duration::from_millis(400);

struct Setup {
    server: RedisServer,
    proxy: Proxy,
    store: RedisStore,
    limiter: Limiter,
}

async fn setup() -> Setup {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let store = RedisStore::builder(proxy.url())
        .connect_timeout(PATIENCE)
        .build()
        .expect("a store");
    let limiter = Limiter::builder(store.clone())
        .policies(LARGE)
        .deadline(DEADLINE)
        .build();
    assert!(
        !patient_limiter(store.clone(), LARGE)
            .check("acme")
            .await
            .expect("a decision")
            .is_degraded()
    );
    Setup {
        server,
        proxy,
        store,
        limiter,
    }
}

async fn check(limiter: &Limiter) -> Decision {
    decided(limiter, "acme").await
}

async fn is_left(limiter: &Limiter) {
    wait::until_async(
        "checks to be decided without the far server",
        PATIENCE,
        async || check(limiter).await.degraded() == Some(ErrorKind::Distant),
    )
    .await;
}

async fn decides(limiter: &Limiter) {
    wait::until_async("checks to be sent again", PATIENCE, async || {
        !check(limiter).await.is_degraded()
    })
    .await;
}

#[tokio::test]
async fn checks_are_decided_at_once_while_the_round_trip_exceeds_the_deadline() {
    let Setup {
        server,
        proxy,
        limiter,
        ..
    } = &setup().await;
    proxy.set(Mode::Delay(FAR));
    is_left(limiter).await;
    let sent = server.calls("evalsha");
    for _ in 0..1_000 {
        let decision = limiter
            .check("acme")
            .into_future()
            .into_ready()
            .expect("at once")
            .expect("the local share decides");
        assert_eq!(decision.degraded(), Some(ErrorKind::Distant));
    }
    assert_eq!(
        server.calls("evalsha"),
        sent,
        "nothing is sent, and nothing is charged"
    );
    proxy.set(Mode::Pass);
    decides(limiter).await;
}

#[tokio::test]
async fn callers_at_the_same_time_do_not_keep_the_distance_from_being_measured() {
    let Setup { proxy, limiter, .. } = &setup().await;
    proxy.set(Mode::Delay(FAR));
    let callers: Vec<_> = (0..32)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let began = Instant::now();
                while check(&limiter).await.degraded() != Some(ErrorKind::Distant) {
                    assert!(
                        began.elapsed() < PATIENCE,
                        "checks still wait for the far server"
                    );
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("a task");
    }
    proxy.set(Mode::Pass);
    decides(limiter).await;
}

#[tokio::test]
async fn a_closed_limiter_tells_the_round_trip_and_the_deadline_that_it_needs() {
    let Setup { proxy, store, .. } = &setup().await;
    let closed = Limiter::builder(store.clone())
        .policies(LARGE)
        .deadline(DEADLINE)
        .on_outage(Outage::Closed)
        .build();
    proxy.set(Mode::Delay(FAR));
    let mut told = String::new();
    wait::until_async("the distance to be told", PATIENCE, async || {
        closed.check("acme").await.is_err_and(|error| {
            told = error.to_string();
            error.kind() == ErrorKind::Distant
        })
    })
    .await;
    let number = |after: &str| -> f64 {
        let rest = told.split_once(after).expect("the words").1;
        rest.split_once("ms")
            .expect("milliseconds")
            .0
            .parse()
            .expect("a number")
    };
    let (trip, needed) = (number("takes "), number("a deadline of "));
    assert!(trip >= 400.0, "{told}");
    assert!((needed - trip * 1.25).abs() < 1.0, "{told}");
}

#[tokio::test]
async fn a_limiter_with_a_longer_deadline_is_served_all_the_time() {
    let Setup {
        proxy,
        store,
        limiter,
        ..
    } = &setup().await;
    let patient = patient_limiter(store.clone(), LARGE);
    proxy.set(Mode::Delay(FAR));
    is_left(limiter).await;
    wait::until_async("the breaker to be closed", PATIENCE, async || {
        store.is_available()
    })
    .await;
    for _ in 0..3 {
        let (far, served) = tokio::join!(limiter.check("acme"), patient.check("acme"));
        assert_eq!(
            far.expect("the local share decides").degraded(),
            Some(ErrorKind::Distant)
        );
        assert!(!served.expect("the store decides").is_degraded());
    }
    proxy.set(Mode::Pass);
    decides(limiter).await;
}

#[tokio::test]
async fn a_far_server_that_dies_is_an_outage_like_any_other() {
    let Setup {
        proxy,
        store,
        limiter,
        ..
    } = &setup().await;
    proxy.set(Mode::Delay(FAR));
    is_left(limiter).await;
    proxy.set(Mode::Refuse);
    wait::until_async("the breaker to open", PATIENCE, async || {
        !store.is_available()
    })
    .await;
    assert_eq!(
        check(limiter)
            .await
            .degraded()
            .map(ErrorKind::is_unavailable),
        Some(true)
    );
    proxy.set(Mode::Pass);
    decides(limiter).await;
}

#[test]
fn checks_are_sent_again_when_the_runtime_that_measured_has_ended() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
    };
    let first = runtime();
    let Setup {
        server,
        proxy,
        limiter,
        ..
    } = first.block_on(setup());
    proxy.set(Mode::Delay(FAR));
    first.block_on(is_left(&limiter));
    drop(first);
    proxy.set(Mode::Pass);
    let check = limiter.check("acme").into_future();
    assert!(
        check.as_ready().is_none(),
        "no task measures any more, so the check is sent"
    );
    runtime().block_on(decides(&limiter));
    drop((server, check));
}
