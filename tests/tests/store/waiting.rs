//! `RedisStore` while more callers wait than may.

use std::time::Duration;

use tollgate::{Policy, Quota, RedisStore};
use tollgate_test_support::{PATIENCE, patient_limiter};
use tollgate_tests::RedisServer;

/// The guide's callers, forty times as fast: a turn each 2.5 ms, a burst of 1000, and 400 callers
/// that wait for 750 ms.
#[tokio::test]
async fn callers_of_the_guide_all_get_their_turns_and_leave_no_place_behind() {
    const TURN: Duration = Duration::from_micros(2_500);
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url())
        .connect_timeout(PATIENCE)
        .connect()
        .await
        .expect("a store");
    let limiter = patient_limiter(
        store,
        Policy::leaky_bucket("geocoder", Quota::per_second(400).with_burst(1_000)),
    );
    let callers: Vec<_> = (0..400)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let mut refusals = 0_u32;
                loop {
                    let decision = limiter
                        .check("geocoder")
                        .wait(300 * TURN)
                        .await
                        .expect("a decision");
                    match decision.retry_after() {
                        Some(retry) => tokio::time::sleep(retry).await,
                        None => return refusals,
                    }
                    refusals += 1;
                }
            })
        })
        .collect();
    let mut refusals = 0;
    for caller in callers {
        refusals += tokio::time::timeout(PATIENCE, caller)
            .await
            .expect("a turn in time")
            .expect("a caller");
    }
    // Every place in the queue was that of a caller who took it: behind the last turn there is
    // none.
    let state = limiter.peek("geocoder").await.expect("a state");
    let left = state.state("geocoder").expect("the policy").reset_after();
    assert!(
        left <= TURN,
        "places for {left:?} that nobody uses, after {refusals} refusals"
    );
}
