//! Calls the libraries that run the generic cell rate algorithm in a script, each through its
//! smallest public way.
//!
//! All of them call the script once for each decision. With most of them a unit returns in a
//! millisecond, because two know no shorter interval. With 10 000 keys no limit is used up.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use fred::{clients::Client as Fred, interfaces::ClientLike, types::Builder};
use http::{Request, Response};
use throttle_kit::{RateLimiter, RedisBackend};
use tower_layer::Layer;
use tower_rate_limit_redis::{KeyResolver, RateLimitLayer};
use tower_rate_limiter::{GcraQuota, RateLimitPolicy, RedisGcra};
use tower_rate_tier::{RateTier, RedisStorage};
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
pub(crate) struct TowerRateLimiter(RedisGcra);

impl TowerRateLimiter {
    pub(crate) async fn new(server: &Server) -> Self {
        Self(gcra(server).await)
    }
}

/// Returns the policy of tower-rate-limiter, over a connection of its own.
pub(crate) async fn gcra(server: &Server) -> RedisGcra {
    let quota = GcraQuota::new(1_000, Duration::from_secs(1), BURST).expect("a quota above zero");
    RedisGcra::new(connect(&server.url(), false).await, quota)
}

impl Decide for TowerRateLimiter {
    async fn decide(&self, key: usize) -> Answer {
        let decision = self.0.check(keys::all()[key].clone()).await;
        Answer::by_store(!decision.expect("the server decides").is_rate_limited())
    }
}

/// Decides with the limiter of throttle-kit.
pub(crate) struct ThrottleKit(RateLimiter<RedisBackend>);

impl ThrottleKit {
    pub(crate) async fn new(server: &Server) -> Self {
        let backend = RedisBackend::connect(&server.url()).await;
        let quota = throttle_kit::Quota::from_parts(INTERVAL, BURST);
        Self(RateLimiter::new(quota, backend.expect("the server is up")))
    }
}

impl Decide for ThrottleKit {
    async fn decide(&self, key: usize) -> Answer {
        let result = self.0.check(&keys::all()[key]).await;
        // It admits when the server does not answer, and only the number that remains is 0 then.
        assert!(
            !result.allowed || result.remaining > 0,
            "the server decides"
        );
        Answer::by_store(result.allowed)
    }
}

/// Decides with `RateTier::check` of tower-rate-tier, without the middleware of the crate.
pub(crate) struct Tiers(RateTier);

const TIER: &str = "pro";

impl Tiers {
    pub(crate) async fn new(server: &Server) -> Self {
        let storage = RedisStorage::new(connect(&server.url(), false).await);
        let storage = storage.timeout(Duration::from_secs(5));
        // The burst equals the count of the quota.
        let quota = tower_rate_tier::Quota::per_hour(BURST);
        let limiter = RateTier::builder().tier(TIER, quota);
        Self(limiter.storage(Arc::new(storage)).build())
    }
}

impl Decide for Tiers {
    async fn decide(&self, key: usize) -> Answer {
        let decision = self.0.check(&keys::all()[key], TIER, 1).await;
        Answer::by_store(decision.expect("the server decides").is_ok())
    }
}

/// Decides with the function of tower-rate-limit-fred, which its layer calls.
pub(crate) struct TowerRateLimitFred(Fred);

impl TowerRateLimitFred {
    pub(crate) async fn new(server: &Server) -> Self {
        let config = fred::types::config::Config::from_url(&server.url());
        let client = Builder::from_config(config.expect("the server's own URL")).build();
        let client = client.expect("a client is built");
        client.init().await.expect("the server is up");
        Self(client)
    }
}

impl Decide for TowerRateLimitFred {
    async fn decide(&self, key: usize) -> Answer {
        let key = keys::all()[key].as_str();
        let denied = tower_rate_limit_fred::rate_limit(&self.0, key, CAPACITY, INTERVAL).await;
        Answer::by_store(denied.expect("the server decides").is_none())
    }
}

/// Decides with the layer of tower-rate-limit-redis around a service that does nothing. The crate
/// has no smaller way.
pub(crate) struct TowerRateLimitRedis(RateLimitLayer<Extension>);

impl TowerRateLimitRedis {
    pub(crate) async fn new(server: &Server) -> Self {
        let client = redis_0_32::Client::open(server.url()).expect("the URL is valid");
        let connection = client.get_multiplexed_async_connection().await;
        let layer = RateLimitLayer::builder()
            .conn(connection.expect("the server is up"))
            .key_resolver(Extension)
            .capacity(CAPACITY)
            .emission_interval(INTERVAL);
        Self(layer.build())
    }
}

impl Decide for TowerRateLimitRedis {
    async fn decide(&self, key: usize) -> Answer {
        let mut request = Request::new(());
        request.extensions_mut().insert(keys::all()[key].clone());
        let Ok(response) = self.0.layer(Nothing).call(request).await;
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
        let key = request.extensions().get::<String>();
        key.cloned().ok_or_else(|| Response::new(()))
    }
}

#[derive(Clone)]
struct Nothing;

impl Service<Request<()>> for Nothing {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(())))
    }
}
