//! A round trip that swings around the deadline, on a clock that is paused.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate::{ErrorKind, Limiter, RedisStore};
use tollgate_test_support::decided;

use crate::paused_server::{HOURLY, PausedServer};

const DEADLINE: Duration = Duration::from_millis(50);

/// A result of a check: when it began, how long it took, and the reason where the store did not
/// decide.
struct Sample {
    began: Instant,
    took: Duration,
    reason: Option<ErrorKind>,
}

fn limiter(server: &PausedServer) -> Limiter {
    Limiter::builder(RedisStore::open(server.url()).expect("a store"))
        .policies(HOURLY)
        .deadline(DEADLINE)
        .build()
}

/// Checks for so long, with pauses of 5 ms.
async fn check_for(limiter: &Limiter, time: Duration) -> Vec<Sample> {
    let (end, mut samples) = (Instant::now() + time, Vec::new());
    while Instant::now() < end {
        let began = Instant::now();
        let reason = decided(limiter, "acme").await.degraded();
        samples.push(Sample {
            began,
            took: began.elapsed(),
            reason,
        });
        sleep(Duration::from_millis(5)).await;
    }
    samples
}

/// Counts how often checks went from being sent to being decided at once, or back.
fn changes(samples: &[Sample]) -> usize {
    let is_sent = |sample: &Sample| match sample.reason {
        None => Some(true),
        Some(ErrorKind::Distant | ErrorKind::CircuitOpen) => Some(false),
        Some(_) => None,
    };
    let states: Vec<bool> = samples.iter().filter_map(is_sent).collect();
    states.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

#[tokio::test(start_paused = true)]
async fn a_swinging_round_trip_changes_the_state_once_with_each_swing_and_leaves_no_check_behind() {
    let server = PausedServer::start();
    let limiter = limiter(&server);
    let mut samples = Vec::new();
    for swing in 0..12 {
        let round_trip = if swing % 2 == 0 { 20 } else { 60 };
        server.set_round_trip(Duration::from_millis(round_trip));
        let began = Instant::now();
        let swing_samples = check_for(&limiter, Duration::from_secs(5)).await;
        let late = began + Duration::from_secs(1);
        for sample in swing_samples.iter().filter(|sample| sample.began >= late) {
            match round_trip {
                20 => assert_eq!(sample.reason, None, "{round_trip} ms fit"),
                _ => {
                    assert_eq!(sample.reason, Some(ErrorKind::Distant));
                    assert_eq!(sample.took, Duration::ZERO, "decided at once");
                }
            }
        }
        samples.extend(swing_samples);
    }
    // Eleven swings follow the first.
    assert_eq!(changes(&samples), 11);
}

#[tokio::test(start_paused = true)]
async fn a_round_trip_that_swings_too_fast_to_follow_counts_as_long() {
    let server = PausedServer::start();
    let limiter = limiter(&server);
    let mut samples = Vec::new();
    for swing in 0..300 {
        server.set_round_trip(Duration::from_millis(if swing % 2 == 0 { 60 } else { 20 }));
        samples.extend(check_for(&limiter, Duration::from_millis(200)).await);
    }
    assert!(
        changes(&samples) <= 24,
        "{} changes in a minute",
        changes(&samples)
    );
}

#[tokio::test(start_paused = true)]
async fn checks_that_are_late_though_the_round_trip_is_short_are_sent_on() {
    let mut server = PausedServer::start();
    let limiter = limiter(&server);
    server.set_round_trip(Duration::from_millis(1));
    server.hold_checks(true);
    let samples = check_for(&limiter, Duration::from_secs(20)).await;
    assert!(
        samples
            .iter()
            .all(|sample| sample.reason != Some(ErrorKind::Distant))
    );
    assert!(
        samples
            .iter()
            .filter(|sample| sample.reason == Some(ErrorKind::Timeout))
            .count()
            > 20
    );
    assert!(
        server.pings().len() < 300,
        "the round trip is not measured all the time"
    );
}

#[tokio::test(start_paused = true)]
async fn a_round_trip_just_within_the_deadline_is_used() {
    let server = PausedServer::start();
    let limiter = limiter(&server);
    server.set_round_trip(Duration::from_millis(47));
    let samples = check_for(&limiter, Duration::from_secs(10)).await;
    // The first check also connects.
    assert!(
        samples.iter().skip(3).all(|sample| sample.reason.is_none()),
        "no check was late"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stood_still_is_not_taken_for_a_far_one() {
    let server = PausedServer::start();
    let limiter = limiter(&server);
    server.set_round_trip(Duration::from_millis(1));
    check_for(&limiter, Duration::from_secs(1)).await;
    for stall in [60, 150, 450, 900].map(Duration::from_millis) {
        server.stall(stall);
        let callers: Vec<_> = (0..16)
            .map(|_| tokio::spawn(limiter.check("acme").into_future()))
            .collect();
        for caller in callers {
            assert_eq!(
                caller
                    .await
                    .expect("a task")
                    .expect("a decision")
                    .degraded(),
                Some(ErrorKind::Timeout)
            );
        }
        let samples = check_for(&limiter, 2 * stall).await;
        assert!(
            samples
                .iter()
                .all(|sample| sample.reason != Some(ErrorKind::Distant)),
            "{stall:?}"
        );
        assert_eq!(samples.last().expect("a sample").reason, None, "{stall:?}");
        check_for(&limiter, Duration::from_secs(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_late_answer_of_ten_makes_only_its_own_check_late() {
    let server = PausedServer::start();
    let limiter = limiter(&server);
    let mut late = Vec::new();
    for at in 1..=50 {
        server.set_round_trip(if at % 10 == 0 {
            DEADLINE * 5 / 4
        } else {
            Duration::from_millis(1)
        });
        late.extend(
            decided(&limiter, "acme")
                .await
                .degraded()
                .map(|reason| (at, reason)),
        );
    }
    assert_eq!(
        late,
        [10, 20, 30, 40, 50].map(|at| (at, ErrorKind::Timeout))
    );
}
