//! Converts the rate limits of a Spring Cloud Gateway into rules. The command
//! `tollgate import spring` prints them.
//!
//! [`convert`] reads the filters `RequestRateLimiter` of the routes and of `default-filters`, as
//! they stand in the `application.yml` of a gateway, and writes a file of [rules](crate#files). Use
//! it once, to move the limits of a gateway into a service. A request has the entries `route` and
//! `key`. What rules have no field for stands in a comment above each limit: the cost of a request,
//! the key resolver, and the statuses.
//!
//! ```
//! use tollgate::MemoryStore;
//! use tollgate_rules::{Descriptor, Format, RuleLimiter, RuleSet, Rules, spring};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = spring::convert(
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
//!     &[],
//!     &|_| None,
//! )?;
//! let limiter = RuleLimiter::new(Rules::new(RuleSet::parse(&file, Format::Yaml)?), MemoryStore::new());
//!
//! let alice = [Descriptor::from([("route", "users"), ("key", "alice")])];
//! assert!(limiter.check("spring", &alice, 1).await?.is_allowed());
//! assert!(limiter.check("spring", &alice, 1).await?.is_allowed());
//! assert!(limiter.check("spring", &alice, 1).await?.is_denied());
//! # Ok(()) }
//! ```
//!
//! # Settings
//!
//! All settings stand under `spring.cloud.gateway` or `spring.cloud.gateway.server.webflux`. Names
//! are read in kebab case and in camel case, nested or joined by dots, as Spring Boot binds them.
//!
//! | setting | of | meaning |
//! |---|---|---|
//! | `redis-rate-limiter.replenish-rate` | filter | units that the bucket gains in a second |
//! | `redis-rate-limiter.burst-capacity` | filter | units that the bucket holds; 0 denies every request, and the default is 1 |
//! | `redis-rate-limiter.requested-tokens` | filter | units that a request spends, at most the burst; the default is 1 |
//! | `deny-empty-key`, `empty-key-status` | filter | the answer to a request without a key, as a comment |
//! | `status-code` | filter | the status of a denial, as a comment |
//! | `key-resolver` | filter | the bean that makes the key, as a comment |
//! | `redis-rate-limiter.config.ROUTE.…` | gateway | the three numbers of a route whose filter has none |
//! | `filter.request-rate-limiter.deny-empty-key`, `….empty-key-status-code` | gateway | defaults for all filters |
//!
//! Settings that do not concern limits are skipped. These are refused, with their place: a misspelt
//! argument of the filter, a limiter that is a bean or Bucket4j, and arguments after the name of
//! the filter (`RequestRateLimiter=10, 20`), which the gateway ignores.
//!
//! Limits that are set in Java are not in the file.
//!
//! # Differences
//!
//! Spring's limiter is a token bucket that counts in whole seconds. Tollgate's is exact to the
//! microsecond.
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
//! `HeaderFormat::Spring` of `tollgate-tower` writes the four header fields of the gateway. The
//! facts about the gateway are from [`request_rate_limiter.lua`] and `RedisRateLimiter` of Spring
//! Cloud Gateway 5.0.
//!
//! [`request_rate_limiter.lua`]: https://github.com/spring-cloud/spring-cloud-gateway/blob/v5.0.1/spring-cloud-gateway-server-webflux/src/main/resources/META-INF/scripts/request_rate_limiter.lua

// Only the conversion is here, and rules as Tollgate writes them are all that it returns.

mod filter;
mod property;
mod reader;
mod settings;
mod values;
mod writer;

use std::{path::Path, sync::Arc};

use self::{reader::Reader, values::Values};
use crate::{
    Format, Limits, RuleError, RuleErrorKind, RuleErrors, compile::Errors, document::read_yaml,
    load,
};

/// Converts the text of an `application.yml` into the text of a file of rules.
///
/// A document with `spring.config.activate.on-profile` is read if one of `profiles` activates it.
/// Later documents replace the settings of earlier ones, and a list such as `routes` is replaced
/// whole. `resolve` returns the value of `NAME` in a placeholder `${NAME}` or `${NAME:DEFAULT}`.
///
/// # Errors
///
/// Fails with every mistake that was found.
pub fn convert(
    text: &str,
    profiles: &[String],
    resolve: &dyn Fn(&str) -> Option<String>,
) -> Result<String, RuleErrors> {
    read(text, profiles, resolve, None)
}

/// Converts an `application.yml` as [`convert`] does.
///
/// # Errors
///
/// Fails if the file cannot be read, and with every mistake that was found.
pub fn convert_file(
    path: impl AsRef<Path>,
    profiles: &[String],
    resolve: &dyn Fn(&str) -> Option<String>,
) -> Result<String, RuleErrors> {
    let path: Arc<Path> = path.as_ref().into();
    let text = match Format::of_path(&path) {
        Some(Format::Yaml) => load::text(&path, &Limits::default()),
        _ => Err(RuleError::new(
            RuleErrorKind::Io,
            "expected a name that ends in .yaml or .yml",
        )),
    };
    read(
        &text.map_err(|error| error.in_file(Some(&path)))?,
        profiles,
        resolve,
        Some(path),
    )
}

fn read(
    text: &str,
    profiles: &[String],
    resolve: &dyn Fn(&str) -> Option<String>,
    file: Option<Arc<Path>>,
) -> Result<String, RuleErrors> {
    let documents =
        read_yaml(text, &Limits::default()).map_err(|error| error.in_file(file.as_ref()))?;
    let mut reader = Reader {
        values: Values {
            resolve,
            errors: Errors::of_file(file),
        },
        profiles,
    };
    let settings = reader.settings(&documents);
    let rules = settings.rules(&mut reader.values);
    reader.values.errors.finish()?;
    Ok(rules)
}
