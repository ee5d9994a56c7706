//! Opens the store, and watches whether it answers.

use std::{fs, sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};
use tollgate::{Error, MemoryStore, Outage, RedisStore, Store, redis::RedisSource};
use tollgate_envoy::{Component, Health};

use super::{
    arguments::{Backend, OnOutage, StoreArguments},
    failure::Failure,
    redis_url::{Source, source},
};

/// An open store.
pub(crate) struct OpenStore {
    pub(crate) store: Arc<dyn Store>,
    redis: Option<RedisStore>,
    needs_connection: bool,
}

/// Returns the units of leased limits to Redis when the program ends.
pub(crate) struct Leases(Option<RedisStore>);

/// The time between two questions to Redis.
const LOOK: Duration = Duration::from_secs(1);

/// The longest time for which the end of the program waits for Redis.
const RELEASE: Duration = Duration::from_secs(1);

/// Opens the store of the settings. Redis is not waited for.
pub(crate) fn open(settings: &StoreArguments) -> Result<OpenStore, Failure> {
    if settings.backend_type == Backend::Memcache {
        return Err(Failure::new(
            "--backend-type memcache is not supported, use redis",
        ));
    }
    let unusable = |error: Error| Failure::new(format_args!("the store cannot be used: {error}"));
    let in_memory = |store| {
        Ok(OpenStore {
            store,
            redis: None,
            needs_connection: false,
        })
    };
    let chosen = match (&settings.store, &settings.redis_url) {
        (Some(url), _) if url.starts_with("memory:") => {
            return in_memory(tollgate::open(url).map_err(unusable)?);
        }
        (Some(url), _) => Source {
            source: RedisSource::from(url.as_str()),
            server_url: None,
        },
        (None, Some(address)) if !address.is_empty() => source(address, settings)?,
        (None, _) => return in_memory(Arc::new(MemoryStore::new())),
    };
    let mut builder = RedisStore::builder(chosen.source);
    if let Some(url) = chosen.server_url {
        builder = builder.server_url(url);
    }
    if !settings.cache_key_prefix.is_empty() {
        builder = builder.prefix(settings.cache_key_prefix.clone());
    }
    if !settings.redis_tls_cacert.as_os_str().is_empty() {
        let path = &settings.redis_tls_cacert;
        let pem = fs::read(path).map_err(|error| {
            Failure::new(format_args!("cannot read {}: {error}", path.display()))
        })?;
        builder = builder.root_certificates(pem);
    }
    let redis = builder.build().map_err(unusable)?;
    let needs_connection = settings.redis_health_check_active_connection;
    Ok(OpenStore {
        store: Arc::new(redis.clone()),
        redis: Some(redis),
        needs_connection,
    })
}

impl OpenStore {
    /// Describes the store, without its address.
    pub(crate) fn description(&self) -> &'static str {
        if self.redis.is_some() {
            "Redis"
        } else {
            "the memory of this process"
        }
    }

    /// Returns the leases of this process.
    pub(crate) fn leases(&self) -> Leases {
        Leases(self.redis.clone())
    }

    /// Sets the health of the store when it answers, and with the setting also when it does not any
    /// more.
    pub(crate) async fn watch(self, health: Health) {
        let Some(redis) = self.redis else {
            return health.set(Component::Store, true).await;
        };
        let mut was_healthy = false;
        loop {
            let is_healthy = match redis.ping().await {
                Ok(()) => true,
                Err(error) => {
                    tracing::debug!(%error, "Redis does not answer");
                    false
                }
            };
            if is_healthy != was_healthy {
                health.set(Component::Store, is_healthy).await;
                was_healthy = is_healthy;
            }
            if is_healthy && !self.needs_connection {
                return;
            }
            sleep(LOOK).await;
        }
    }
}

impl Leases {
    /// Returns the units. Those that cannot be returned count as used until they lapse.
    pub(crate) async fn release(self) {
        let Some(redis) = self.0 else { return };
        match timeout(RELEASE, redis.release_leases()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "leased units were not returned"),
            Err(_) => tracing::warn!("leased units were not returned within {RELEASE:?}"),
        }
    }
}

/// Returns the answer while Redis is away.
pub(crate) fn outage(answer: OnOutage) -> Outage {
    match answer {
        OnOutage::Allow => Outage::Open,
        OnOutage::Fail => Outage::Closed,
        OnOutage::Local => Outage::default(),
    }
}
