//! Reservations inside a handler: the estimate is in the body of the request.

use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tollgate::{Cost, Costs, Limiter, MemoryStore, reservation::Settlement, store::Clock};
use tollgate_tower::{HandlerLimiter, Meter, RateLimitLayer, body::guard_response, key::Global};

use super::{Answer, ESTIMATE, Ledger, TOKENS, charged, settled};
use crate::support::{HOURLY, ONE, header, still};

fn handler(ledger: &Ledger) -> HandlerLimiter<String> {
    let outer = tollgate::Limiter::new(still(), HOURLY);
    // The final cost of the layer is not that of a reservation.
    let layer = RateLimitLayer::builder(outer, Global)
        .cost(|_| Cost::new(3))
        .charge_on(|_| false)
        .build();
    layer.handler_limiter(ledger.limiter())
}

fn head() -> http::request::Parts {
    Request::new(()).into_parts().0
}

#[tokio::test(start_paused = true)]
async fn a_handler_settles_in_the_body_of_its_response() {
    for is_far in [false, true] {
        for (frames, tokens) in [(0, 100), (1, 10), (4, 30)] {
            let ledger = Ledger::new(is_far);
            let (limiter, mut request) = (handler(&ledger), head());
            let (admitted, reservation) = limiter
                .reserve(&mut request, "acme", ESTIMATE)
                .await
                .unwrap();
            assert_eq!(
                reservation
                    .decision()
                    .unwrap()
                    .state("tokens")
                    .unwrap()
                    .remaining(),
                900
            );
            // The meter in the extensions is the same one.
            let meter = request.extensions.get::<Meter>().unwrap();
            let response = admitted.complete(Response::new(Answer::new(Some(meter))));
            assert_eq!(
                header(&response, "ratelimit"),
                Some(r#""requests";r=9;t=85400, "tokens";r=900;t=85400"#)
            );
            let mut response = guard_response(response, reservation);
            for _ in 0..frames {
                assert!(response.frame().await.unwrap().is_ok());
            }
            drop(response);
            settled().await;
            assert_eq!(
                charged(limiter.limiter()).await,
                (1, tokens),
                "{frames} frames, far away: {is_far}"
            );
            assert_eq!(ledger.commits(), usize::from(frames > 0));
        }
    }
}

#[tokio::test]
async fn a_handler_settles_by_itself_and_the_meter_does_not_settle_again() {
    let ledger = Ledger::new(false);
    let (limiter, mut request) = (handler(&ledger), head());
    let (admitted, reservation) = limiter
        .reserve(&mut request, "acme", ESTIMATE)
        .await
        .unwrap();
    reservation.meter().add(9);
    assert_eq!(
        reservation
            .commit([("requests", 1), ("tokens", 55)])
            .await
            .unwrap(),
        Settlement::Settled
    );
    drop(admitted);
    assert_eq!(
        (charged(limiter.limiter()).await, ledger.commits()),
        ((1, 55), 1)
    );
}

#[tokio::test]
async fn the_meter_of_a_handler_counts_the_sum_of_costs_that_cascade() {
    let ledger = Ledger::new(false);
    let (limiter, mut request) = (handler(&ledger), head());
    let (_, reservation) = limiter
        .reserve(&mut request, "acme", Costs::cascading(100))
        .await
        .unwrap();
    assert_eq!(charged(limiter.limiter()).await, (10, 90));
    reservation.meter().add(30);
    drop(reservation);
    assert_eq!(charged(limiter.limiter()).await, (10, 20));
}

#[tokio::test]
async fn a_handler_rejects_as_the_layer_does_and_caps_on_request() {
    let ledger = Ledger::new(false);
    let (limiter, mut request) = (handler(&ledger), head());
    let large = [("requests", 1), ("tokens", 1_001)];
    assert_eq!(
        limiter
            .reserve(&mut request, "acme", large)
            .await
            .unwrap_err()
            .status(),
        StatusCode::PAYLOAD_TOO_LARGE
    );
    let wrong = [("bytes", 1)];
    assert_eq!(
        limiter
            .reserve(&mut request, "acme", wrong)
            .await
            .unwrap_err()
            .status(),
        500
    );

    let (_, whole) = limiter
        .reserve(&mut request, "acme", large)
        .capped()
        .await
        .unwrap();
    assert_eq!(charged(limiter.limiter()).await, (1, 1_000));
    let reserved = limiter
        .reserve(&mut request, "acme", ESTIMATE)
        .await
        .unwrap_err()
        .into_response();
    let checked = limiter
        .check_costs(&mut request, "acme", ESTIMATE)
        .await
        .unwrap_err()
        .into_response();
    assert_eq!(reserved.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        (reserved.headers(), reserved.body()),
        (checked.headers(), checked.body())
    );
    drop(whole);
    assert_eq!(
        (charged(limiter.limiter()).await, ledger.commits()),
        ((1, 1_000), 0)
    );
}

#[tokio::test]
async fn a_request_that_shadow_mode_admits_has_a_meter_and_no_reservation() {
    let outer = tollgate::Limiter::new(still(), ONE);
    let layer = RateLimitLayer::builder(outer.clone(), Global)
        .shadow(true)
        .build();
    let limiter: HandlerLimiter<String> = layer.handler_limiter(outer.clone());
    let mut request = head();
    let (_, first) = limiter
        .reserve(&mut request, "acme", Cost::ONE)
        .await
        .unwrap();
    let (_, second) = limiter
        .reserve(&mut request, "acme", Cost::ONE)
        .await
        .unwrap();
    assert!(first.decision().is_some() && second.decision().is_none());
    second.meter().counter("one").unwrap().add(5);
    assert_eq!(second.commit(Cost::ZERO).await.unwrap(), Settlement::Lapsed);
    // An estimate above the burst is not even denied.
    let (_, third) = limiter
        .reserve(&mut request, "acme", Cost::new(7))
        .await
        .unwrap();
    assert!(third.decision().is_none());
}

#[tokio::test]
async fn a_reservation_of_a_handler_lapses_after_its_time_to_live() {
    let clock = Clock::manual(1_000_000_000);
    let limiter = Limiter::new(MemoryStore::builder().clock(clock.clone()).build(), TOKENS);
    let limiter: HandlerLimiter<String> =
        RateLimitLayer::new(limiter.clone(), Global).handler_limiter(limiter);
    for (wait, settlement) in [(59, Settlement::Settled), (61, Settlement::Lapsed)] {
        let mut request = head();
        let reserve = limiter
            .reserve(&mut request, "acme", Cost::new(10))
            .time_to_live(Duration::from_secs(60));
        let (_, reservation) = reserve.await.unwrap();
        clock.advance(Duration::from_secs(wait));
        assert_eq!(reservation.commit(Cost::new(5)).await.unwrap(), settlement);
    }
}
