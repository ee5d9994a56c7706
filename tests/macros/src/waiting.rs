//! The option `wait`. The time of tokio is paused: a wait takes no time.

use std::time::Duration;

use tokio::time::Instant;
use tollgate::{Denied, Error, Limiter, MemoryStore, Policy, Quota, store::Clock};

#[derive(Debug)]
#[expect(dead_code, reason = "the tests look at the variants")]
enum Failure {
    Denied(Denied),
    NoDecision(Error),
}

impl From<Denied> for Failure {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::NoDecision(error)
    }
}

/// Returns a limiter of one unit a second, on the time of tokio.
fn limiter() -> Limiter {
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    Limiter::new(store, Policy::token_bucket("one", Quota::per_second(1)))
}

#[tollgate::limited(limiter = limiter, key = "hot", wait = "2s")]
async fn by_text(limiter: &Limiter) -> Result<(), Failure> {
    Ok(())
}

#[tollgate::limited(limiter = limiter, key = "hot", wait = longest)]
async fn by_expression(limiter: &Limiter, longest: Duration) -> Result<(), Failure> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn calls_wait_for_their_turn() {
    let limiter = limiter();
    let start = Instant::now();
    for calls in 0..3 {
        by_text(&limiter).await.expect("a turn");
        assert_eq!(start.elapsed().as_secs(), calls);
    }
    by_expression(&limiter, Duration::from_secs(1))
        .await
        .expect("a turn");
    assert_eq!(start.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_wait_would_be_too_long_is_denied_at_once() {
    let limiter = limiter();
    let start = Instant::now();
    by_text(&limiter).await.expect("a turn");
    let denied = by_expression(&limiter, Duration::from_millis(500))
        .await
        .expect_err("a denial");
    assert!(matches!(denied, Failure::Denied(_)), "{denied:?}");
    assert_eq!(start.elapsed(), Duration::ZERO);
}
