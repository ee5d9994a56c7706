//! The options of a store of several regions.
//! The store is in `store.rs`.

use std::time::Duration;

use tollgate_core::Error;
use tollgate_redis::{RedisSource, RedisStore, RedisStoreBuilder, raw};

use crate::{durability::Durability, store::RegionalStore};

impl RegionalStore {
    /// Returns a builder for a store whose region has the server `local`, and whose limits live at
    /// `home`. Both are single servers, or masters that Sentinels name.
    pub fn builder(
        local: impl Into<RedisSource>,
        home: impl Into<RedisSource>,
    ) -> RegionalStoreBuilder {
        RegionalStoreBuilder::new(local.into(), home.into())
    }
}

/// Builds a [`RegionalStore`]: the options of [`RegionalStore::builder`].
#[derive(Debug)]
#[must_use = "a builder does nothing until it builds the store"]
pub struct RegionalStoreBuilder {
    local: RedisStoreBuilder,
    home: RedisStoreBuilder,
    region: String,
    durability: Option<Durability>,
    round_trip: Duration,
    takes_unleased: bool,
}

/// The longest round trip: with a longer one, shares have to last for minutes.
const LONGEST_TRIP: Duration = Duration::from_secs(10);

impl RegionalStoreBuilder {
    fn new(local: RedisSource, home: RedisSource) -> Self {
        Self {
            local: RedisStore::builder(local),
            home: RedisStore::builder(home),
            region: String::new(),
            durability: None,
            round_trip: Duration::from_millis(100),
            takes_unleased: false,
        }
    }

    /// Sets the name of the region: the same in all of its processes, and another one in each other
    /// region. Required.
    pub fn region(mut self, name: impl Into<String>) -> Self {
        self.region = name.into();
        self
    }

    /// Sets what guards against a home that loses grants. Required: there is no value that is right
    /// for a home with replicas and for one without.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Sets the time of a round trip from the region to the home, in bad hours. 100 ms by default,
    /// and 10 s at most.
    ///
    /// A region holds units for some of them, so a policy whose share lasts for less than four is
    /// refused. The store takes a longer one when it measures it.
    pub fn round_trip(mut self, round_trip: Duration) -> Self {
        self.round_trip = round_trip;
        self
    }

    /// Lets the server of the region decide all policies that are not leased, for the region alone.
    /// Without it they are refused.
    ///
    /// Take it for a service with many limits, of which the large ones count in all regions together,
    /// and those of single users in the region of the user.
    ///
    /// ```
    /// use tollgate_core::{Limiter, Policy, Quota};
    /// use tollgate_regions::RegionalStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate_core::Error> {
    /// let (local, home) = ("redis://eu.example/?region=eu", "redis://us.example/?replicas=1");
    /// let per_user = Policy::token_bucket("user", Quota::per_minute(10));
    /// let store = RegionalStore::builder_from_urls(local, home)?.build()?;
    /// assert!(Limiter::builder(store).policies(per_user.clone()).try_build().is_err());
    ///
    /// let store = RegionalStore::builder_from_urls(local, home)?.unleased_in_region().build()?;
    /// assert!(Limiter::builder(store).policies(per_user).try_build().is_ok());
    /// # Ok(()) }
    /// ```
    pub fn unleased_in_region(mut self) -> Self {
        self.takes_unleased = true;
        self
    }

    /// Sets the first part of every key, in the region and at the home. `tollgate` by default.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        self.local = self.local.prefix(prefix.clone());
        self.home = self.home.prefix(prefix);
        self
    }

    /// Changes the store of the region: its certificates, its credentials, its time for connecting.
    pub fn local_options(
        mut self,
        change: impl FnOnce(RedisStoreBuilder) -> RedisStoreBuilder,
    ) -> Self {
        self.local = change(self.local);
        self
    }

    /// Changes the store of the home, as [`local_options`](Self::local_options) does that of the
    /// region.
    pub fn home_options(
        mut self,
        change: impl FnOnce(RedisStoreBuilder) -> RedisStoreBuilder,
    ) -> Self {
        self.home = change(self.home);
        self
    }

    /// Builds the store, without waiting for a server.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](tollgate_core::ErrorKind::Config) when the region has no name, the
    /// durability is not set or names no replica, the round trip is zero or longer than 10 s, a
    /// server is a cluster, or a URL is not valid.
    pub fn build(self) -> Result<RegionalStore, Error> {
        if self.region.is_empty() {
            return Err(Error::config("the region has no name"));
        }
        let durability = match self.durability {
            Some(Durability::Replicas(0)) => {
                return Err(Error::config(
                    "durability names no replica: Durability::Trust is for a home without one",
                ));
            }
            Some(durability) => durability,
            None => return Err(Error::config("durability is not set")),
        };
        if self.round_trip.is_zero() || self.round_trip > LONGEST_TRIP {
            return Err(Error::config(format!(
                "round_trip must be above 0 and at most {LONGEST_TRIP:?}, got {:?}",
                self.round_trip
            )));
        }
        let (local, home) = (self.local.build()?, self.home.build()?);
        for (name, store) in [("the region", &local), ("the home", &home)] {
            if raw::is_cluster(store) {
                return Err(Error::config(format!(
                    "the server of {name} is a cluster, and must be a single server or found through sentinels"
                )));
            }
        }
        Ok(RegionalStore::new(
            (local, home),
            &self.region,
            durability,
            self.round_trip,
            self.takes_unleased,
        ))
    }

    /// Builds the store, and waits until both servers have shown that they run its scripts.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build), and when a server does not answer, or refuses `INFO` in a script.
    pub async fn connect(self) -> Result<RegionalStore, Error> {
        let store = self.build()?;
        store.prove().await?;
        Ok(store)
    }
}
