//! Reads the rate limits of a Spring Cloud Gateway from its `application.yml`.
//!
//! [`Gateway`] reads the filters `RequestRateLimiter` of the routes and of `default-filters`, as they stand in the file
//! of the gateway, and makes rules from them. Use it to move a gateway's limits into a service. For new limits, write
//! [rules](crate#files), which can express more.
//!
//! ```
//! use tollgate::MemoryStore;
//! use tollgate_rules::{RuleLimiter, Rules, spring::Gateway};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let gateway = Gateway::parse(
//!     "
//! spring:
//!   cloud:
//!     gateway:
//!       routes:
//!       - id: users
//!         uri: https://users.example.com
//!         filters:
//!         - AddResponseHeader=X-Served-By, gateway
//!         - name: RequestRateLimiter
//!           args:
//!             key-resolver: \"#{@userKeyResolver}\"
//!             redis-rate-limiter.replenishRate: 1
//!             redis-rate-limiter.burstCapacity: 2
//!     ",
//! )?;
//! let limiter = RuleLimiter::new(Rules::new(gateway.rules().clone()), MemoryStore::new());
//!
//! let alice = [gateway.descriptor("users", "alice").unwrap()];
//! assert!(limiter.check(Gateway::DOMAIN, &alice, 1).await?.is_allowed());
//! assert!(limiter.check(Gateway::DOMAIN, &alice, 1).await?.is_allowed());
//! assert!(limiter.check(Gateway::DOMAIN, &alice, 1).await?.is_denied());
//! # Ok(()) }
//! ```
//!
//! # Settings
//!
//! All settings stand under `spring.cloud.gateway` or `spring.cloud.gateway.server.webflux`. Names are read in kebab
//! case and in camel case, nested or joined by dots, as Spring Boot binds them.
//!
//! | setting | of | meaning |
//! |---|---|---|
//! | `redis-rate-limiter.replenish-rate` | filter | units that the bucket gains in a second |
//! | `redis-rate-limiter.burst-capacity` | filter | units that the bucket holds; 0 denies every request, and the default is 1 |
//! | `redis-rate-limiter.requested-tokens` | filter | units that a request spends, at most the burst; the default is 1 |
//! | `deny-empty-key`, `empty-key-status` | filter | the answer to a request without a key: see [`EmptyKey`] |
//! | `status-code` | filter | the status of a denial; the default is 429 |
//! | `key-resolver` | filter | the bean that makes the key, as text |
//! | `redis-rate-limiter.config.ROUTE.…` | gateway | the three numbers of a route whose filter has none |
//! | `filter.request-rate-limiter.deny-empty-key`, `….empty-key-status-code` | gateway | defaults for all filters |
//!
//! Settings that do not concern limits are skipped. These are refused, with their place: a misspelt argument of the
//! filter, a limiter that is a bean or Bucket4j, and arguments after the name of the filter (`RequestRateLimiter=10,
//! 20`), which the gateway ignores. A [placeholder](GatewayBuilder::placeholders) `${…}` is refused unless it is
//! resolved. A document for a [profile](GatewayBuilder::profile) is skipped unless the profile is active.
//!
//! Limits that are set in Java are not in the file.
//!
//! # Differences
//!
//! Spring's limiter is a token bucket that counts in whole seconds. Tollgate's is exact to the microsecond.
//!
//! | point | Spring Cloud Gateway | here |
//! |---|---|---|
//! | time | whole seconds: all units of a second arrive as it begins, so 2 × burst pass around its edge when `replenish-rate` equals `burst-capacity` | each unit arrives at its own time |
//! | no `burst-capacity`, which is 1 then, at a `replenish-rate` of 2 | one unit in a second passes | the same |
//! | the same at a `replenish-rate` of 3 or more | the state expires after 0 seconds, so nothing is denied | refused: write `burst-capacity` |
//! | `requested-tokens` above `burst-capacity` | every request is denied | refused: `burst-capacity: 0` says that |
//! | several filters `RequestRateLimiter` on one route, default filters included | one bucket with the numbers of the last filter; each filter takes its units, and one that denies keeps those before it | one bucket with the same numbers; a request takes the units of all filters at once, and a denied request takes none |
//! | several filters with different key resolvers | one bucket for each key, with the numbers of the last filter | refused: write rules |
//! | Redis is away | every request passes, and the header says -1 | the limiter's [`Outage`](tollgate::Outage) rule; `Open` is Spring's |
//!
//! `HeaderFormat::Spring` of `tollgate-tower` writes the four header fields of the gateway. The facts about the gateway
//! are from [`request_rate_limiter.lua`] and `RedisRateLimiter` of Spring Cloud Gateway 5.0.
//!
//! [`request_rate_limiter.lua`]: https://github.com/spring-cloud/spring-cloud-gateway/blob/v5.0.1/spring-cloud-gateway-server-webflux/src/main/resources/META-INF/scripts/request_rate_limiter.lua

mod assemble;
mod builder;
mod filter;
mod gateway;
mod property;
mod reader;
mod route_limit;
mod rule_tree;
mod settings;
mod status;
mod values;

pub use builder::GatewayBuilder;
pub use gateway::Gateway;
pub use route_limit::{EmptyKey, RouteLimit};
