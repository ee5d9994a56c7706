//! A source that fails, hangs or panics.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{
    task::JoinSet,
    time::{Instant, advance},
};
use tollgate::{
    ErrorKind,
    limiter::Limited,
    tenants::{SourceOutage, TenantLimiters},
};
use tollgate_tests::Log;

use crate::source::{API, LATENCY, MINUTE, Mood, SECOND, Source, amount, amount_at_once};

const BEGIN: &str = "the limits of tenants cannot be fetched";
const END: &str = "the limits of tenants are fetched again";

/// Returns the lines of the log with this text.
fn lines(log: &Log, text: &str) -> usize {
    log.text().matches(text).count()
}

#[tokio::test(start_paused = true)]
async fn a_source_that_does_not_answer_gets_the_stated_answer_in_bounded_time() {
    for (mood, waited) in [
        (Mood::Fails, LATENCY),
        (Mood::Panics, LATENCY),
        (Mood::Hangs, SECOND),
    ] {
        for outage in [
            SourceOutage::Default,
            SourceOutage::Open,
            SourceOutage::Closed,
        ] {
            let source = Source::new();
            source.set_mood(mood);
            source.set_amount(7, 500);
            let tenants = source.builder().on_outage(outage).build();
            let start = Instant::now();
            let mut requests = JoinSet::new();
            for _ in 0..100 {
                let tenants = tenants.clone();
                requests.spawn(async move { tenants.limiter_for(&7).await });
            }
            for answer in requests.join_all().await {
                match (outage, answer) {
                    (SourceOutage::Default, Ok(Limited::By(limiter))) => {
                        assert_eq!(limiter.policies(), &API.into());
                    }
                    (SourceOutage::Open, Ok(Limited::Exempt)) => {}
                    (SourceOutage::Closed, Err(error)) => {
                        assert_eq!(error.kind(), ErrorKind::SourceUnavailable);
                    }
                    (_, answer) => panic!("{outage:?}: {answer:?}"),
                }
            }
            assert!(
                start.elapsed() <= waited + Duration::from_millis(2),
                "{:?}",
                start.elapsed()
            );
            assert_eq!(source.fetches(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_function_that_panics_before_its_first_await_is_a_failure() {
    let default = Source::new().tenants().default_limiter().clone();
    let tenants = TenantLimiters::new(default, |_: u64| {
        if std::hint::black_box(true) {
            panic!("the source panics for a test");
        }
        std::future::ready(Ok::<_, String>(None::<tollgate::Policy>))
    });
    assert_eq!(amount(&tenants, 7).await, Some(10));
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_fails_keeps_the_old_limits_and_is_logged_once() {
    let (log, _guard) = Log::of_this_thread();
    let source = Source::new();
    source.set_amount(7, 500);
    let tenants = source.tenants();
    assert_eq!(amount(&tenants, 7).await, Some(500));
    for mood in [Mood::Fails, Mood::Hangs, Mood::Panics] {
        source.set_mood(mood);
        advance(4 * MINUTE).await;
        let mut waited = 0;
        // For ten minutes: longer than the limits would be in force.
        for _ in 0..6_000 {
            match amount_at_once(&tenants, 7) {
                Some(amount) => assert_eq!(amount, 500),
                None => {
                    waited += 1;
                    assert_eq!(amount(&tenants, 7).await, Some(500));
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(waited, 0, "a request has waited");
    }
    let attempts = source.fetches();
    assert!(
        (3 * 600 / 3..3 * 600).contains(&attempts),
        "{attempts} fetches in 30 minutes"
    );
    assert_eq!(
        (lines(&log, BEGIN), lines(&log, END)),
        (1, 0),
        "{}",
        log.text()
    );
    assert!(
        log.text().contains("limiter=\"calls\"") && log.text().contains("the database is away"),
        "{}",
        log.text()
    );

    source.set_mood(Mood::Answers);
    source.set_amount(7, 600);
    for _ in 0..30 {
        let _ = amount_at_once(&tenants, 7);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(amount_at_once(&tenants, 7), Some(600));
    // The outage is over when a fetch succeeds that began a second after the last failure.
    advance(4 * MINUTE).await;
    let _ = amount_at_once(&tenants, 7);
    tokio::time::sleep(LATENCY * 2).await;
    assert_eq!(
        (lines(&log, BEGIN), lines(&log, END)),
        (1, 1),
        "{}",
        log.text()
    );
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_kept_for_a_second_or_the_delay_that_was_set() {
    for delay in [SECOND, 5 * SECOND] {
        let source = Source::new();
        source.set_mood(Mood::Fails);
        source.set_amount(7, 500);
        let tenants = if delay == SECOND {
            source.tenants()
        } else {
            source.builder().retry_delay(delay).build()
        };
        assert_eq!(amount(&tenants, 7).await, Some(10));
        for _ in 0..9 {
            advance(delay / 10).await;
            assert_eq!(amount_at_once(&tenants, 7), Some(10));
        }
        assert_eq!(source.fetches(), 1);
        source.set_mood(Mood::Answers);
        advance(delay / 10).await;
        assert_eq!(
            (amount(&tenants, 7).await, source.fetches()),
            (Some(500), 2)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_away_is_asked_once_a_second_and_nobody_waits_for_it() {
    for mood in [Mood::Fails, Mood::Hangs] {
        let source = Source::new();
        source.set_mood(mood);
        let tenants = source.tenants();
        for tenant in 0..5 {
            assert_eq!(amount(&tenants, tenant).await, Some(10));
        }
        let (start, before) = (Instant::now(), source.fetches());
        let mut waited = 0;
        // A hostile stream of unknown tenants.
        while start.elapsed() < 10 * SECOND {
            for tenant in 0..100 {
                let tenant = 1_000 + tenant + 1_000 * start.elapsed().as_millis() as u64;
                if amount_at_once(&tenants, tenant).is_none() {
                    waited += 1;
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(
            (9..=11).contains(&(source.fetches() - before)),
            "{} fetches",
            source.fetches() - before
        );
        assert_eq!(
            waited,
            source.fetches() - before,
            "only the request that asks waits"
        );
        // The first fetch that succeeds ends the outage for all.
        source.set_mood(Mood::Answers);
        advance(2 * SECOND).await;
        source.set_amount(7, 500);
        source.set_amount(8, 600);
        assert_eq!(amount(&tenants, 7).await, Some(500));
        assert_eq!(amount(&tenants, 8).await, Some(600));
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenant_whose_data_are_damaged_does_not_stop_the_fetches_of_others() {
    let source = Source::new();
    let tenants = source.tenants();
    for tenant in 0..100 {
        source.set_mood(Mood::Fails);
        assert_eq!(amount(&tenants, 1_000_000).await, Some(10));
        if tenant % 10 == 9 {
            source.set_mood(Mood::Answers);
            source.set_amount(tenant, 500);
            assert_eq!(amount(&tenants, tenant).await, Some(500));
        }
        advance(SECOND).await;
    }
    assert_eq!(source.fetches(), 100 + 10);
}

#[tokio::test(start_paused = true)]
async fn few_fetches_run_at_a_time_and_a_crowd_at_the_start_is_no_outage() {
    let source = Source::new();
    // The last fetches begin too late to end in time.
    let tenants = source
        .builder()
        .max_fetches(2)
        .fetch_timeout(SECOND - LATENCY / 2)
        .build();
    let start = Instant::now();
    let mut requests = JoinSet::new();
    // 99 fit into the time for each of the two.
    for tenant in 0..1_000 {
        source.set_amount(tenant, 500);
        let tenants = tenants.clone();
        requests.spawn(async move { amount(&tenants, tenant).await });
    }
    let answers = requests.join_all().await;
    assert!(start.elapsed() <= SECOND, "{:?}", start.elapsed());
    let fetched = answers
        .iter()
        .filter(|amount| **amount == Some(500))
        .count();
    assert!((150..=200).contains(&fetched), "{fetched} fetched");
    assert_eq!(source.most_running(), 2);
    // A source that is away would be asked for one of them.
    source.set_amount(5_000, 500);
    source.set_amount(5_001, 500);
    let both = tokio::join!(amount(&tenants, 5_000), amount(&tenants, 5_001));
    assert_eq!(both, (Some(500), Some(500)));
}

#[tokio::test(start_paused = true)]
async fn the_requests_that_wait_are_bounded() {
    let source = Source::new();
    source.set_mood(Mood::Hangs);
    let tenants = source.builder().max_entries(100).build();
    let waiting = (0..1_000)
        .filter(|tenant| tenants.limiter_for(tenant).into_ready().is_err())
        .count();
    assert_eq!(waiting, 100);
    tokio::time::sleep(2 * SECOND).await;
    assert!(source.most_running() <= 32);
    // Their fetches have ended, and leave nothing behind.
    source.set_mood(Mood::Answers);
    source.set_amount(5_000, 500);
    assert_eq!(amount(&tenants, 5_000).await, Some(500));
}

#[test]
fn without_a_runtime_cached_limits_are_known_and_a_fetch_is_an_error() {
    let source = Source::new();
    source.set_amount(7, 500);
    let tenants = source.tenants();
    let answer = pin!(tenants.limiter_for(&7)).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(answer, Poll::Ready(Err(error)) if error.kind() == ErrorKind::NoRuntime));
    // The call may stand outside of the runtime in which the future is polled.
    let answer = tenants.limiter_for(&8);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    assert!(
        runtime
            .block_on(answer)
            .expect("limits")
            .into_limiter()
            .is_some()
    );
    assert_eq!(runtime.block_on(amount(&tenants, 7)), Some(500));
    assert_eq!(amount_at_once(&tenants, 7), Some(500));
    assert_eq!(source.fetches(), 2);
    // Nor can a request wait for a fetch of another one.
    let _begun = {
        let _inside = runtime.enter();
        tenants.limiter_for(&9)
    };
    let answer = pin!(tenants.limiter_for(&9)).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(answer, Poll::Ready(Err(error)) if error.kind() == ErrorKind::NoRuntime));
}

#[test]
fn a_fetch_whose_runtime_ends_is_a_failure_for_the_requests_on_others() {
    let source = Source::new();
    source.set_mood(Mood::Hangs);
    let tenants = source.builder().fetch_timeout(MINUTE).build();
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime")
    };
    let (first, second) = (runtime(), runtime());
    let waiting = {
        let _inside = first.enter();
        tenants.limiter_for(&7)
    };
    drop(first);
    assert_eq!(second.block_on(amount(&tenants, 7)), Some(10));
    assert!(
        second
            .block_on(waiting)
            .expect("limits")
            .into_limiter()
            .is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn limits_whose_age_is_bounded_end_in_a_long_outage_and_return_after_it() {
    let source = Source::new();
    source.set_amount(7, 500);
    let tenants = source
        .builder()
        .time_to_live(MINUTE)
        .stale_if_error(MINUTE)
        .build();
    assert_eq!(amount(&tenants, 7).await, Some(500));
    source.set_mood(Mood::Fails);
    advance(MINUTE + SECOND).await;
    assert_eq!(
        amount(&tenants, 7).await,
        Some(500),
        "in force while the source fails"
    );
    advance(MINUTE - 2 * SECOND).await;
    assert_eq!(amount(&tenants, 7).await, Some(500));
    advance(2 * SECOND).await;
    assert_eq!(
        amount(&tenants, 7).await,
        Some(10),
        "too old: the default limiter"
    );
    source.set_mood(Mood::Answers);
    advance(2 * SECOND).await;
    assert_eq!(amount(&tenants, 7).await, Some(500));
}
