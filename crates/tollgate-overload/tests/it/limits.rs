//! Bounds of the limit and of the requests in flight.

use std::{
    sync::{
        Arc, Barrier, Mutex, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use proptest::prelude::*;
use tollgate::store::Clock;
use tollgate_overload::{
    AdaptiveLimiter, Aimd, Class, Gradient, LimitAlgorithm, Overload, SampleWindow, Signal, Vegas,
};

/// Returns a limit that a test chose.
#[derive(Debug)]
struct Fixed(f64);

impl LimitAlgorithm for Fixed {
    fn next_limit(&mut self, _: &SampleWindow) -> f64 {
        self.0
    }
}

/// Ends `count` requests after `latency` each.
fn end(limiter: &AdaptiveLimiter, clock: &Clock, count: usize, latency: Duration, signal: Signal) {
    for _ in 0..count {
        let slot = limiter.try_acquire(Class::CRITICAL).unwrap();
        clock.advance(latency);
        slot.finish(signal);
    }
}

/// Ends `count` requests with success, after so many milliseconds each.
fn succeed(limiter: &AdaptiveLimiter, clock: &Clock, count: usize, millis: u64) {
    let latency = Duration::from_millis(millis);
    end(limiter, clock, count, latency, Signal::Success);
}

fn latencies() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        1..100_000_u64,
        Just(3_600_000_000),
        Just(u64::MAX / 4),
        Just(u64::MAX)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_latency_moves_the_limit_out_of_its_bounds(
        algorithm in 0..3_usize,
        lowest in 1..50_u32,
        size in 0..100_u32,
        requests in proptest::collection::vec((latencies(), 0..3_u8, any::<bool>()), 1..400),
    ) {
        let algorithm: Box<dyn LimitAlgorithm> = match algorithm {
            0 => Box::new(Gradient::new().probe_every(3)),
            1 => Box::new(Vegas::new().probe_every(3)),
            _ => Box::new(Aimd::new(Duration::from_millis(5)).increase(7.0)),
        };
        let clock = Clock::manual(1_000_000);
        let limits = lowest..=lowest + size;
        let limiter = AdaptiveLimiter::builder(algorithm).limits(limits.clone()).min_samples(3).clock(clock.clone()).build();
        let mut slots = Vec::new();
        for (latency, signal, keeps) in requests {
            let before = limiter.in_flight();
            match limiter.try_acquire(Class::CRITICAL) {
                Ok(slot) => slots.push(slot),
                Err(overload) => prop_assert!(overload.in_flight() >= overload.limit()),
            }
            prop_assert!(limiter.in_flight() <= limiter.limit().max(before));
            // The clock may also go back.
            clock.set(clock.now_us().wrapping_add(latency));
            if !keeps && !slots.is_empty() {
                let signal = [Signal::Success, Signal::Overload, Signal::Ignore][usize::from(signal)];
                slots.swap_remove(0).finish(signal);
            }
            prop_assert!(limits.contains(&limiter.limit()), "{}", limiter.limit());
            prop_assert_eq!(limiter.in_flight() as usize, slots.len());
        }
        drop(slots);
        prop_assert_eq!(limiter.in_flight(), 0);
    }
}

#[test]
fn a_limit_that_is_no_number_is_dropped_and_others_are_cut_to_the_bounds() {
    for (next, expected) in [
        (f64::NAN, 20),
        (f64::INFINITY, 50),
        (f64::NEG_INFINITY, 10),
        (-1.0, 10),
        (0.0, 10),
        (1e300, 50),
        (33.9, 33),
    ] {
        let clock = Clock::manual(0);
        let limiter = AdaptiveLimiter::builder(Fixed(next))
            .limits(10..=50)
            .clock(clock.clone())
            .build();
        succeed(&limiter, &clock, 12, 10);
        assert_eq!(limiter.limit(), expected, "{next}");
    }
}

#[test]
fn a_window_closes_after_its_length_with_enough_samples() {
    let clock = Clock::manual(0);
    let limiter = AdaptiveLimiter::builder(Fixed(33.0))
        .clock(clock.clone())
        .build();
    // Enough samples, too early. Ignored requests are no samples.
    succeed(&limiter, &clock, 12, 1);
    end(&limiter, &clock, 1, Duration::from_secs(1), Signal::Ignore);
    assert_eq!((limiter.limit(), limiter.latency()), (20, None));
    succeed(&limiter, &clock, 1, 1);
    assert_eq!(
        (limiter.limit(), limiter.latency()),
        (33, Some(Duration::from_millis(1)))
    );

    // Late enough, too few samples.
    let limiter = AdaptiveLimiter::builder(Fixed(33.0))
        .clock(clock.clone())
        .build();
    end(&limiter, &clock, 9, Duration::from_secs(1), Signal::Success);
    assert_eq!(limiter.limit(), 20);
    end(&limiter, &clock, 1, Duration::ZERO, Signal::Success);
    assert_eq!(limiter.limit(), 33);
}

/// Ends two requests with an overload while the limiter computes its first limit, as other threads
/// do.
#[derive(Debug)]
struct Disturbed {
    limiter: Arc<OnceLock<AdaptiveLimiter>>,
    /// For each window, whether it was overloaded.
    windows: Arc<Mutex<Vec<bool>>>,
}

impl LimitAlgorithm for Disturbed {
    fn next_limit(&mut self, window: &SampleWindow) -> f64 {
        let mut windows = self.windows.lock().unwrap();
        if windows.is_empty() {
            let limiter = self.limiter.get().unwrap();
            (0..2).for_each(|_| {
                limiter
                    .try_acquire(Class::CRITICAL)
                    .unwrap()
                    .finish(Signal::Overload);
            });
        }
        windows.push(window.is_overloaded());
        window.limit()
    }
}

#[test]
fn an_overload_that_meets_another_thread_counts_in_the_next_window() {
    let (clock, windows) = (Clock::manual(0), Arc::default());
    let this = Arc::new(OnceLock::new());
    let algorithm = Disturbed {
        limiter: Arc::clone(&this),
        windows: Arc::clone(&windows),
    };
    let limiter = AdaptiveLimiter::builder(algorithm)
        .clock(clock.clone())
        .build();
    this.set(limiter.clone()).unwrap();
    succeed(&limiter, &clock, 36, 10);
    assert_eq!(*windows.lock().unwrap(), [false, true, false]);
}

#[test]
fn overloads_lower_the_limit_and_a_rare_one_does_not() {
    let algorithms: [fn() -> Box<dyn LimitAlgorithm>; 3] = [
        || Box::new(Gradient::new()),
        || Box::new(Vegas::new()),
        || Box::new(Aimd::new(Duration::from_secs(1))),
    ];
    for algorithm in algorithms {
        for (overloads, expected) in [(100, 18), (6, 18), (5, 20)] {
            let clock = Clock::manual(0);
            let limiter = AdaptiveLimiter::builder(algorithm())
                .min_samples(100)
                .clock(clock.clone())
                .build();
            end(
                &limiter,
                &clock,
                overloads,
                Duration::from_millis(2),
                Signal::Overload,
            );
            end(
                &limiter,
                &clock,
                100 - overloads,
                Duration::from_millis(2),
                Signal::Success,
            );
            assert_eq!(
                limiter.limit(),
                expected,
                "{overloads} overloads, {limiter:?}"
            );
        }
    }
}

#[test]
fn each_algorithm_lowers_an_overloaded_limit_by_its_factor() {
    let algorithms: [Box<dyn LimitAlgorithm>; 3] = [
        Box::new(Gradient::new().backoff(0.5)),
        Box::new(Vegas::new().backoff(0.5)),
        Box::new(Aimd::new(Duration::from_secs(1)).backoff(0.5)),
    ];
    for algorithm in algorithms {
        let clock = Clock::manual(0);
        let limiter = AdaptiveLimiter::builder(algorithm)
            .clock(clock.clone())
            .build();
        end(
            &limiter,
            &clock,
            10,
            Duration::from_millis(20),
            Signal::Overload,
        );
        assert_eq!(limiter.limit(), 10, "{limiter:?}");
    }
}

#[test]
fn vegas_steps_by_the_logarithm_of_the_limit() {
    // The limit is 112 after a first window without a queue. Its logarithm is 2.05.
    for (waiting, expected) in [
        (0.0, 124),
        (1.9, 124),
        (2.2, 114),
        (6.0, 114),
        (6.3, 112),
        (12.2, 112),
        (12.5, 109),
    ] {
        let clock = Clock::manual(0);
        let limiter = AdaptiveLimiter::builder(Vegas::new())
            .limits(1..=1_000)
            .initial_limit(100);
        let limiter = limiter.clock(clock.clone()).build();
        let _slots: Vec<_> = (0..60)
            .map(|_| limiter.try_acquire(Class::CRITICAL).unwrap())
            .collect();
        let without_queue = Duration::from_millis(200);
        end(&limiter, &clock, 10, without_queue, Signal::Success);
        assert_eq!(limiter.limit(), 112);
        end(
            &limiter,
            &clock,
            10,
            without_queue.div_f64(1.0 - waiting / 112.0),
            Signal::Success,
        );
        assert_eq!(limiter.limit(), expected, "{waiting}");
    }
}

#[test]
fn a_baseline_of_few_windows_follows_a_service_that_has_become_slow() {
    let algorithms: [fn(u32) -> Box<dyn LimitAlgorithm>; 2] = [
        |windows| Box::new(Gradient::new().baseline_windows(windows)),
        |windows| Box::new(Vegas::new().baseline_windows(windows)),
    ];
    for algorithm in algorithms {
        let limit_with = |windows| {
            let clock = Clock::manual(0);
            let limiter = AdaptiveLimiter::builder(algorithm(windows))
                .clock(clock.clone())
                .build();
            succeed(&limiter, &clock, 12, 20);
            succeed(&limiter, &clock, 12, 100);
            // Only a window that uses half of the limit moves it.
            let slots: Vec<_> = (0..10)
                .map(|_| limiter.try_acquire(Class::CRITICAL).unwrap())
                .collect();
            succeed(&limiter, &clock, 12, 100);
            drop(slots);
            limiter.limit()
        };
        assert!(
            limit_with(1) > limit_with(600),
            "{} {}",
            limit_with(1),
            limit_with(600)
        );
    }
}

#[test]
fn a_class_that_may_not_use_half_of_the_limit_raises_it_when_its_requests_are_shed() {
    for (offered, expected) in [(8, 20), (9, 21)] {
        let clock = Clock::manual(0);
        let builder =
            AdaptiveLimiter::builder(Aimd::new(Duration::from_secs(1))).shares([1.0, 0.4]);
        let limiter = builder.clock(clock.clone()).build();
        succeed(&limiter, &clock, 9, 10);
        let slots: Vec<_> = (0..offered)
            .filter_map(|_| limiter.try_acquire(Class::new(1)).ok())
            .collect();
        assert_eq!(slots.len(), 8);
        clock.advance(Duration::from_millis(100));
        slots
            .into_iter()
            .for_each(|slot| slot.finish(Signal::Success));
        assert_eq!(limiter.limit(), expected, "{offered} requests");
    }
}

#[test]
fn a_cancelled_request_counts_if_it_was_slower_than_the_last_window() {
    let clock = Clock::manual(0);
    let builder =
        || AdaptiveLimiter::builder(Aimd::new(Duration::from_millis(50))).clock(clock.clone());
    let limiter = builder().build();
    let cancel = |latency| {
        let slot = limiter.try_acquire(Class::CRITICAL).unwrap();
        clock.advance(latency);
        drop(slot);
    };
    succeed(&limiter, &clock, 15, 10);
    let limit = limiter.limit();
    (0..50).for_each(|_| cancel(Duration::from_millis(9)));
    assert_eq!(
        (limiter.limit(), limiter.latency()),
        (limit, Some(Duration::from_millis(10)))
    );
    (0..20).for_each(|_| cancel(Duration::from_millis(100)));
    assert!(limiter.limit() < limit);
}

#[test]
fn each_class_has_its_share_of_the_limit_and_at_least_one_request() {
    let limiter = AdaptiveLimiter::builder(Fixed(10.0))
        .initial_limit(10)
        .shares([1.0, 0.75, 0.3])
        .build();
    let mut slots = Vec::new();
    let mut fill = |class| {
        let before = slots.len();
        loop {
            match limiter.try_acquire(Class::new(class)) {
                Ok(slot) => slots.push(slot),
                Err(overload) => return (slots.len() - before, overload),
            }
        }
    };
    let of = |(added, overload): (usize, Overload)| (added, overload.in_flight(), overload.limit());
    assert_eq!(of(fill(2)), (3, 3, 3));
    // A class that is not listed has the share of the last one.
    assert_eq!(of(fill(7)), (0, 3, 3));
    assert_eq!(of(fill(1)), (4, 7, 7));
    assert_eq!(of(fill(0)), (3, 10, 10));
    assert_eq!(of(fill(2)), (0, 10, 3));
    drop(slots);

    let limiter = AdaptiveLimiter::builder(Fixed(1.0)).limits(1..=1).build();
    let slot = limiter.try_acquire(Class::LOW).unwrap();
    assert!(limiter.try_acquire(Class::CRITICAL).is_err());
    drop(slot);
}

#[test]
fn an_overload_says_when_to_come_back() {
    let clock = Clock::manual(0);
    let limiter = AdaptiveLimiter::builder(Fixed(1.0))
        .limits(1..=20)
        .clock(clock.clone())
        .build();
    let overload = |limiter: &AdaptiveLimiter| {
        let slots: Vec<_> = (0..limiter.limit())
            .map(|_| limiter.try_acquire(Class::CRITICAL).unwrap())
            .collect();
        let overload = limiter.try_acquire(Class::CRITICAL).unwrap_err();
        slots
            .into_iter()
            .for_each(|slot| slot.finish(Signal::Ignore));
        overload
    };
    let before = overload(&limiter);
    assert_eq!(before.retry_after(), Duration::from_millis(100));
    assert_eq!(
        before.to_string(),
        "the service is overloaded: 20 requests in flight, limit 20"
    );
    end(
        &limiter,
        &clock,
        10,
        Duration::from_secs(3),
        Signal::Success,
    );
    assert_eq!(overload(&limiter).retry_after(), Duration::from_secs(3));
}

#[test]
fn threads_never_have_more_requests_in_flight_than_the_limit() {
    const LIMIT: u32 = 7;
    let limiter = AdaptiveLimiter::builder(Fixed(LIMIT.into()))
        .limits(1..=LIMIT)
        .initial_limit(LIMIT)
        .build();
    let (in_flight, admitted) = (AtomicU32::new(0), AtomicU32::new(0));
    let start = Arc::new(Barrier::new(8));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                for _ in 0..5_000 {
                    let slots: Vec<_> = (0..2)
                        .filter_map(|_| limiter.try_acquire(Class::CRITICAL).ok())
                        .collect();
                    let count = slots.len() as u32;
                    assert!(in_flight.fetch_add(count, Ordering::SeqCst) + count <= LIMIT);
                    admitted.fetch_add(count, Ordering::Relaxed);
                    std::thread::yield_now();
                    in_flight.fetch_sub(count, Ordering::SeqCst);
                    slots
                        .into_iter()
                        .for_each(|slot| slot.finish(Signal::Success));
                }
            });
        }
    });
    assert!(admitted.into_inner() > 0);
    assert_eq!((limiter.in_flight(), limiter.limit()), (0, LIMIT));
}

#[test]
fn settings_that_make_no_sense_panic_and_name_the_value() {
    let message = |build: fn()| {
        let panic = std::panic::catch_unwind(build).unwrap_err();
        panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
    };
    for (build, expected) in [
        (
            (|| drop(AdaptiveLimiter::builder(Vegas::new()).limits(0..=5))) as fn(),
            "must be at least 1, got 0",
        ),
        (
            || {
                drop(
                    AdaptiveLimiter::builder(Vegas::new())
                        .limits(std::ops::RangeInclusive::new(6, 5)),
                );
            },
            "limit 6 is above the highest one 5",
        ),
        (
            || drop(AdaptiveLimiter::builder(Vegas::new()).shares([])),
            "the list of shares is empty",
        ),
        (
            || drop(AdaptiveLimiter::builder(Vegas::new()).shares([1.0, 0.0])),
            "got 0",
        ),
        (
            || drop(AdaptiveLimiter::builder(Vegas::new()).shares([1.1])),
            "got 1.1",
        ),
        (
            || drop(AdaptiveLimiter::builder(Vegas::new()).shares([f64::NAN])),
            "got NaN",
        ),
        (
            || drop(AdaptiveLimiter::builder(Vegas::new()).shares([0.5, 0.6])),
            "[0.5, 0.6]",
        ),
        (
            || drop(Gradient::new().tolerance(0.9)),
            "the tolerance must be a number of at least 1",
        ),
        (
            || drop(Gradient::new().smoothing(1.0)),
            "the smoothing must be between 0 and 1",
        ),
        (
            || drop(Aimd::new(Duration::ZERO).backoff(0.0)),
            "the backoff factor must be between 0 and 1",
        ),
        (
            || drop(Aimd::new(Duration::ZERO).increase(f64::NAN)),
            "the increase must be a number above 0",
        ),
    ] {
        let message = message(build).unwrap();
        assert!(
            message.contains(expected),
            "{message:?} does not contain {expected:?}"
        );
    }
}
