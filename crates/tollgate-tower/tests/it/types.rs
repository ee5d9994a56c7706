//! Types of layers that an application writes down.

use http::{Request, Response, request::Parts};
use tollgate::{
    Cost, Key, Limiter, MemoryStore,
    permits::{Concurrency, ConcurrencyLimiter},
};
use tollgate_tower::{
    ConcurrencyLayer, KeyExtractor, RateLimit, RateLimitLayer, ReservationLayer,
    concurrency::ConcurrencyLimit,
    key::{BoxedKey, Global, Header, KeyFn},
    key_fn,
};
use tower::{Layer, ServiceExt};

use super::support::{ONE, hello, request_with};

/// A key that a function finds.
type ByFunction = KeyFn<fn(&Parts) -> Key>;

/// Every field has a type that names no closure.
struct Layers {
    boxed: RateLimitLayer,
    pointer: RateLimitLayer<ByFunction>,
    permits: ConcurrencyLayer,
    reserving: ReservationLayer,
}

fn by_user(parts: &Parts) -> Key {
    Key::new(parts.headers["x-user"].as_bytes())
}

fn layers(key: BoxedKey) -> Layers {
    let limiter = || Limiter::new(MemoryStore::new(), ONE);
    let permits = ConcurrencyLimiter::new(MemoryStore::new(), Concurrency::new("permits", 1));
    Layers {
        boxed: RateLimitLayer::new(limiter(), key.clone()),
        pointer: RateLimitLayer::new(limiter(), key_fn(by_user as fn(&Parts) -> Key)),
        permits: ConcurrencyLayer::new(permits, key.clone()),
        reserving: RateLimitLayer::builder(limiter(), key)
            .reserve(|_: &Parts| Cost::ONE)
            .build(),
    }
}

fn unnamed(limiter: Limiter) -> RateLimitLayer<impl KeyExtractor> {
    RateLimitLayer::new(
        limiter,
        key_fn(|parts| Key::new(parts.headers["x-user"].as_bytes())),
    )
}

#[tokio::test]
async fn layers_whose_types_are_written_down_limit_by_their_keys() {
    let by_name = by_user as fn(&Parts) -> Key;
    for key in [
        key_fn(by_name).boxed(),
        Header::new("x-user").or(Global).boxed(),
    ] {
        let Layers {
            boxed,
            pointer,
            permits,
            reserving,
        } = layers(key);
        let expected = [200, 429, 200];
        assert_eq!(statuses(&boxed).await, expected);
        assert_eq!(statuses(&pointer).await, expected);
        assert_eq!(
            statuses(&unnamed(Limiter::new(MemoryStore::new(), ONE))).await,
            expected
        );

        let permits: ConcurrencyLimit<_> = permits.layer(hello());
        let first = permits
            .clone()
            .oneshot(request_with("x-user", "ann"))
            .await
            .unwrap();
        assert_eq!(
            permits
                .clone()
                .oneshot(request_with("x-user", "ann"))
                .await
                .unwrap()
                .status(),
            429
        );
        assert_eq!(
            permits
                .oneshot(request_with("x-user", "bob"))
                .await
                .unwrap()
                .status(),
            200
        );
        drop(first);

        let reserving = reserving.layer(hello());
        assert_eq!(
            reserving
                .clone()
                .oneshot(request_with("x-user", "ann"))
                .await
                .unwrap()
                .status(),
            200
        );
        assert_eq!(
            reserving
                .oneshot(request_with("x-user", "bob"))
                .await
                .unwrap()
                .status(),
            200
        );
    }
}

/// Sends two requests of one user and one of another.
async fn statuses<K: KeyExtractor>(layer: &RateLimitLayer<K>) -> [u16; 3] {
    let service: RateLimit<_, K> = layer.layer(hello());
    let mut statuses = [0; 3];
    for (status, user) in statuses.iter_mut().zip(["ann", "ann", "bob"]) {
        let request: Request<()> = request_with("x-user", user);
        let response: Response<String> = service.clone().oneshot(request).await.unwrap();
        *status = response.status().as_u16();
    }
    statuses
}

/// Compiles for a future that a task of a runtime with several threads may await.
#[cfg(feature = "ws")]
fn send(_: impl Future + Send) {}

#[cfg(feature = "ws")]
fn futures_of_a_socket(
    socket: &mut tollgate_tower::ws::LimitedSocket,
    message: axum::extract::ws::Message,
) {
    send(socket.recv());
    send(socket.send(message));
}

#[cfg(feature = "ws")]
#[test]
fn futures_of_sockets_can_be_awaited_in_a_spawned_task() {
    // That these compile is the test.
    let _ = futures_of_a_socket;
}
