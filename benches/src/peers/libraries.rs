//! Calls the libraries that run the generic cell rate algorithm in a script, each through its
//! smallest public way.
//!
//! All of them call the script once for each decision. A unit returns in a millisecond, because two
//! of them know no shorter interval. With 10 000 keys no limit is used up.

use std::time::Duration;

use fred::{clients::Client as Fred, interfaces::ClientLike, types::Builder};
use futures_util::future::{Ready, ready};
use http::{Request, Response};
use throttle_kit::{RateLimiter, RedisBackend};
use tower_layer::Layer;
use tower_rate_limit_redis::{KeyResolver, RateLimitLayer};
use tower_rate_limiter::{GcraQuota, RateLimitPolicy, RedisGcra};
use tower_service::Service;

use super::connect;
use crate::{
    keys,
    load::{Answer, Decide},
    server::Server,
};

const INTERVAL: Duration = Duration::from_millis(1);

/// Sets a burst that no run uses up.
const BURST: u32 = 100_000_000;

/// Sets the largest burst of tower-rate-limit-redis and tower-rate-limit-fred.
const CAPACITY: u16 = u16::MAX;

/// Decides with the policy of tower-rate-limiter that the layer of this crate calls.
pub(crate) struct TowerRateLimiter {
    policy: RedisGcra,
    keys: Vec<String>,
}

impl TowerRateLimiter {
    pub(crate) async fn new(server: &Server, keys: usize) -> Self {
        let policy = gcra(server).await;
        Self {
            policy,
            keys: keys::first(keys).collect(),
        }
    }
}

/// Returns the policy of tower-rate-limiter, over a connection of its own.
pub(crate) async fn gcra(server: &Server) -> RedisGcra {
    let quota = GcraQuota::new(1_000, Duration::from_secs(1), BURST).expect("a quota above zero");
    RedisGcra::new(connect(&server.url()).await, quota)
}

impl Decide for TowerRateLimiter {
    async fn decide(&self, key: usize) -> Answer {
        let decision = self
            .policy
            .check(self.keys[key].clone())
            .await
            .expect("the server decides");
        Answer::by_store(!decision.is_rate_limited())
    }
}

/// Decides with the limiter of throttle-kit.
pub(crate) struct ThrottleKit {
    limiter: RateLimiter<RedisBackend>,
    keys: Vec<String>,
}

impl ThrottleKit {
    pub(crate) async fn new(server: &Server, keys: usize) -> Self {
        let backend = RedisBackend::connect(&server.url())
            .await
            .expect("the server is up");
        let quota = throttle_kit::Quota::from_parts(INTERVAL, BURST);
        Self {
            limiter: RateLimiter::new(quota, backend),
            keys: keys::first(keys).collect(),
        }
    }
}

impl Decide for ThrottleKit {
    async fn decide(&self, key: usize) -> Answer {
        let result = self.limiter.check(&self.keys[key]).await;
        // It admits when the server does not answer, and only the number that remains is 0 then.
        assert!(
            !result.allowed || result.remaining > 0,
            "the server decides"
        );
        Answer::by_store(result.allowed)
    }
}

/// Decides with the function of tower-rate-limit-fred, which its layer calls.
pub(crate) struct TowerRateLimitFred {
    client: Fred,
    keys: Vec<String>,
}

impl TowerRateLimitFred {
    pub(crate) async fn new(server: &Server, keys: usize) -> Self {
        let config =
            fred::types::config::Config::from_url(&server.url()).expect("the server's own URL");
        let client = Builder::from_config(config)
            .build()
            .expect("a client is built");
        client.init().await.expect("the server is up");
        Self {
            client,
            keys: keys::first(keys).collect(),
        }
    }
}

impl Decide for TowerRateLimitFred {
    async fn decide(&self, key: usize) -> Answer {
        let key = self.keys[key].as_str();
        let denied = tower_rate_limit_fred::rate_limit(&self.client, key, CAPACITY, INTERVAL).await;
        Answer::by_store(denied.expect("the server decides").is_none())
    }
}

/// Decides with the layer of tower-rate-limit-redis around a service that does nothing. The crate
/// has no smaller way.
pub(crate) struct TowerRateLimitRedis {
    layer: RateLimitLayer<Extension>,
    keys: Vec<String>,
}

impl TowerRateLimitRedis {
    pub(crate) async fn new(server: &Server, keys: usize) -> Self {
        let client = redis_0_32::Client::open(server.url()).expect("the URL is valid");
        let connection = client
            .get_multiplexed_async_connection()
            .await
            .expect("the server is up");
        let layer = RateLimitLayer::builder()
            .conn(connection)
            .key_resolver(Extension)
            .capacity(CAPACITY)
            .emission_interval(INTERVAL)
            .build();
        Self {
            layer,
            keys: keys::first(keys).collect(),
        }
    }
}

impl Decide for TowerRateLimitRedis {
    async fn decide(&self, key: usize) -> Answer {
        let mut request = Request::new(());
        request.extensions_mut().insert(self.keys[key].clone());
        let response = self
            .layer
            .layer(Nothing)
            .call(request)
            .await
            .unwrap_or_else(|never| match never {});
        // It answers 500 when the server does not decide.
        assert!(!response.status().is_server_error(), "the server decides");
        Answer::by_store(response.status().is_success())
    }
}

/// Reads the key from the request.
#[derive(Clone)]
struct Extension;

impl KeyResolver for Extension {
    type Key = String;
    type ErrorBody = ();

    fn key<T>(&self, request: &Request<T>) -> Result<String, Response<()>> {
        request
            .extensions()
            .get::<String>()
            .cloned()
            .ok_or_else(|| Response::new(()))
    }
}

#[derive(Clone)]
struct Nothing;

impl Service<Request<()>> for Nothing {
    type Response = Response<()>;
    type Error = std::convert::Infallible;
    type Future = Ready<Result<Response<()>, Self::Error>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(())))
    }
}
