//! Chooses the store by a URL, so that one variable does.
//! Options of Redis in a URL are read in `tollgate-redis/src/url_options.rs`; stores of other crates are found
//! in `tollgate-remote/src/scheme.rs`.

use std::sync::Arc;

#[cfg(feature = "redis")]
use crate::RedisStore;
use tollgate_remote::scheme;

use crate::{Error, MemoryStore, Store};

/// Connects to the store that a URL names, and waits until the server has shown that it can decide.
///
/// Use it to choose the store by one variable: Redis in production, memory on a developer's
/// machine. Use [`open`] if the service has to start while Redis is away. The returned store is
/// cheap to clone, and every limiter accepts it.
///
/// | URL | store |
/// |---|---|
/// | `memory:` | a new [`MemoryStore`] |
/// | `postgres://` | a `tollgate_postgres::PostgresStore`, after `tollgate_postgres::register()` |
/// | `redis://`, `rediss://`, `redis+unix://`, `redis+sentinel://`, `redis+cluster://` … | a [`RedisStore`](crate::RedisStore): see [`RedisSource`](crate::redis::RedisSource) for each form |
///
/// Options of a Redis store may stand in the URL, as in `redis://127.0.0.1/?prefix=shop`: see
/// [`RedisSource`](crate::redis::RedisSource). Give each application a prefix of its own. Other
/// options have a builder.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// use tollgate::{Limiter, Policy, Quota};
///
/// let url = std::env::var("RATE_LIMIT_URL").unwrap_or_else(|_| "memory:".to_owned());
/// let store = tollgate::connect(&url).await?;
/// let search = Limiter::new(store.clone(), Policy::token_bucket("search", Quota::per_second(10)));
/// let upload = Limiter::new(store, Policy::token_bucket("upload", Quota::per_minute(5)));
/// assert!(search.check("acme").await?.is_allowed());
/// assert!(upload.check("acme").await?.is_allowed());
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// [`ErrorKind::Config`](crate::ErrorKind::Config) when the URL is not valid, or its scheme needs a
/// feature that is not enabled; the message names the feature. Any other kind when the server does
/// not answer, refuses the user, or cannot decide.
pub async fn connect(url: impl AsRef<str>) -> Result<Arc<dyn Store>, Error> {
    if let Some(scheme) = scheme::find(name(url.as_ref())) {
        return (scheme.connect)(url.as_ref()).await;
    }
    match memory(url.as_ref())? {
        Some(store) => Ok(Arc::new(store)),
        None => Ok(Arc::new(RedisStore::connect(url.as_ref()).await?)),
    }
}

/// Creates the store that a URL names, without waiting for the server. It takes the URLs that
/// [`connect`] takes.
///
/// A Redis store connects when a limiter is built or with the first check: see
/// [`RedisStore::open`](crate::RedisStore::open). So a service starts also while Redis is away:
/// until the server answers, the [`Outage`](crate::Outage) of each limiter decides.
///
/// # Errors
///
/// [`ErrorKind::Config`](crate::ErrorKind::Config) when the URL is not valid, or its scheme needs a
/// feature that is not enabled; the message names the feature.
pub fn open(url: impl AsRef<str>) -> Result<Arc<dyn Store>, Error> {
    if let Some(scheme) = scheme::find(name(url.as_ref())) {
        return (scheme.open)(url.as_ref());
    }
    match memory(url.as_ref())? {
        Some(store) => Ok(Arc::new(store)),
        None => Ok(Arc::new(RedisStore::open(url.as_ref())?)),
    }
}

/// Returns what stands before the first colon.
fn name(url: &str) -> &str {
    url.split_once(':').map_or("", |(name, _)| name)
}

/// Returns a new store for a `memory:` URL, and `None` for any other scheme.
fn memory(url: &str) -> Result<Option<MemoryStore>, Error> {
    let scheme = name(url);
    if matches!(scheme, "postgres" | "postgresql") {
        return Err(Error::config(
            "a postgres URL needs the crate tollgate-postgres, and a call of tollgate_postgres::register before",
        ));
    }
    if scheme != "memory" && scheme != "unix" && !scheme.starts_with("redis") {
        // Shows nothing of the URL: it may contain a password.
        return Err(Error::config(
            "the store URL is not valid: expected memory: or a redis URL, as tollgate::connect lists them",
        ));
    }
    match url.strip_prefix("memory:") {
        Some("" | "//") => Ok(Some(MemoryStore::new())),
        Some(rest) => Err(Error::config(format!(
            "the store URL is not valid: expected `memory:`, got `memory:{rest}`"
        ))),
        None => Ok(None),
    }
}

/// Stands in without the feature.
#[cfg(not(feature = "redis"))]
struct RedisStore;

#[cfg(not(feature = "redis"))]
impl RedisStore {
    async fn connect(url: &str) -> Result<MemoryStore, Error> {
        Self::open(url)
    }

    fn open(url: &str) -> Result<MemoryStore, Error> {
        Err(match url.split_once("://") {
            Some((scheme @ ("redis" | "rediss" | "redis+unix" | "unix"), _)) => Error::config(
                format!("the URL scheme {scheme} needs the feature `redis` of the crate tollgate"),
            ),
            Some((scheme, _)) if scheme.ends_with("+sentinel") || scheme.ends_with("+cluster") => {
                Error::config(
                    "a URL of a Redis Sentinel or a Redis Cluster needs the feature `redis` of the crate tollgate",
                )
            }
            _ => Error::config(
                "a redis URL needs `://` after its scheme, and the feature `redis` of the crate tollgate",
            ),
        })
    }
}

#[cfg(all(test, not(feature = "redis")))]
mod tests {
    use super::*;

    #[test]
    fn a_redis_url_names_the_missing_feature() {
        for url in ["redis://h", "rediss://h", "redis+cluster://h"] {
            assert!(
                open(url)
                    .err()
                    .expect("an error")
                    .to_string()
                    .contains("feature `redis`"),
                "{url}"
            );
        }
    }
}
