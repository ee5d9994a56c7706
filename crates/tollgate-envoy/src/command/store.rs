//! Opens the store, and watches whether it answers.
//! Addresses in the form of Envoy's service are understood in `redis_url.rs`.

use std::{fs, sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};
use tollgate::{
    Error, MemoryStore, Outage, RedisStore, Store,
    credentials::Provider,
    redis::{RedisSource, RedisStoreBuilder},
};
use tollgate_envoy::{Component, Health};
use tollgate_regions::RegionalStore;

use super::{
    arguments::{Backend, OnOutage, StoreArguments},
    failure::Failure,
    redis_url::{Source, source},
};

/// An open store.
pub(crate) struct OpenStore {
    pub(crate) store: Arc<dyn Store>,
    server: StoreServer,
    needs_connection: bool,
}

/// Where the counts are.
#[derive(Clone)]
enum StoreServer {
    Memory,
    Redis(RedisStore),
    /// The server of a region, and the home of limits that regions share.
    Regions(RegionalStore),
    #[cfg(feature = "postgres")]
    Postgres(tollgate_postgres::PostgresStore),
}

/// Returns the units of leased limits to Redis when the program ends.
pub(crate) struct Leases(StoreServer);

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
    let provider = match settings.credentials_file.as_os_str().is_empty() {
        true => None,
        false => Some(Provider::file(&settings.credentials_file).map_err(unusable)?),
    };
    if let Some(home) = settings.home_store.as_deref().filter(|url| !url.is_empty()) {
        return regional(home, provider, settings);
    }
    let in_memory = |store| match provider {
        Some(_) => Err(Failure::new(
            "--credentials-file needs a store at a server, got the memory of this process",
        )),
        None => Ok(OpenStore {
            store,
            server: StoreServer::Memory,
            needs_connection: false,
        }),
    };
    let chosen = match (&settings.store, &settings.redis_url) {
        (Some(url), _) if url.starts_with("memory:") => {
            return in_memory(tollgate::open(url).map_err(unusable)?);
        }
        #[cfg(feature = "postgres")]
        (Some(url), _) if url.starts_with("postgres") => {
            let mut builder = tollgate_postgres::PostgresStore::builder(url);
            if let Some(provider) = provider {
                builder = builder.credentials(provider);
            }
            let store = builder.build().map_err(unusable)?;
            return Ok(OpenStore {
                store: Arc::new(store.clone()),
                server: StoreServer::Postgres(store),
                needs_connection: settings.redis_health_check_active_connection,
            });
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
    if let Some(provider) = provider {
        builder = builder.credentials(provider);
    }
    if !settings.cache_key_prefix.is_empty() {
        builder = builder.prefix(settings.cache_key_prefix.clone());
    }
    if let Some(pem) = authorities(settings)? {
        builder = builder.root_certificates(pem);
    }
    let redis = builder.build().map_err(unusable)?;
    let needs_connection = settings.redis_health_check_active_connection;
    Ok(OpenStore {
        store: Arc::new(redis.clone()),
        server: StoreServer::Redis(redis),
        needs_connection,
    })
}

/// Opens the store of a region whose leased limits live at this home.
fn regional(
    home: &str,
    provider: Option<Provider>,
    settings: &StoreArguments,
) -> Result<OpenStore, Failure> {
    let unusable = |error: Error| Failure::new(format_args!("the regions cannot be used: {error}"));
    let is_redis = |url: &&str| url.starts_with("redis") || url.starts_with("unix:");
    let Some(local) = settings.store.as_deref().filter(is_redis) else {
        return Err(Failure::new(
            "--home-store needs --store with the URL of the region's Redis",
        ));
    };
    let mut builder = RegionalStore::builder_from_urls(local, home)
        .map_err(unusable)?
        .unleased_in_region();
    if let Some(provider) = provider {
        builder = builder.local_options(|local| local.credentials(provider));
    }
    if !settings.cache_key_prefix.is_empty() {
        builder = builder.prefix(settings.cache_key_prefix.clone());
    }
    if let Some(pem) = authorities(settings)? {
        let trusting = |server: RedisStoreBuilder| server.root_certificates(pem.clone());
        builder = builder.local_options(trusting).home_options(trusting);
    }
    let store = builder.build().map_err(unusable)?;
    Ok(OpenStore {
        store: Arc::new(store.clone()),
        server: StoreServer::Regions(store),
        needs_connection: settings.redis_health_check_active_connection,
    })
}

/// Returns the certificates that verify Redis.
fn authorities(settings: &StoreArguments) -> Result<Option<Vec<u8>>, Failure> {
    let path = &settings.redis_tls_cacert;
    if path.as_os_str().is_empty() {
        return Ok(None);
    }
    let pem = fs::read(path)
        .map_err(|error| Failure::new(format_args!("cannot read {}: {error}", path.display())))?;
    Ok(Some(pem))
}

impl OpenStore {
    /// Describes the store, without its address.
    pub(crate) fn description(&self) -> &'static str {
        match self.server {
            StoreServer::Memory => "the memory of this process",
            StoreServer::Redis(_) => "Redis",
            StoreServer::Regions(_) => "Redis of this region, with a home",
            #[cfg(feature = "postgres")]
            StoreServer::Postgres(_) => "PostgreSQL",
        }
    }

    /// Returns the leases of this process.
    pub(crate) fn leases(&self) -> Leases {
        Leases(self.server.clone())
    }

    /// Sets the health of the store when it answers, and with the setting also when it does not any
    /// more.
    pub(crate) async fn watch(self, health: Health) {
        let mut was_healthy = false;
        loop {
            let answer = match &self.server {
                StoreServer::Memory => return health.set(Component::Store, true).await,
                StoreServer::Redis(redis) => redis.ping().await,
                StoreServer::Regions(regions) => regions.ping().await,
                #[cfg(feature = "postgres")]
                StoreServer::Postgres(postgres) => postgres.ping().await,
            };
            let is_healthy = match answer {
                Ok(()) => true,
                Err(error) => {
                    tracing::debug!(%error, "the store does not answer");
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
        let released = async {
            match &self.0 {
                StoreServer::Redis(redis) => redis.release_leases().await,
                StoreServer::Regions(regions) => regions.release_leases().await,
                _ => Ok(()),
            }
        };
        match timeout(RELEASE, released).await {
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
