//! The flags and variables for the store, those of Envoy's service for Redis among them.
//! They become a store in `command/store.rs`, and Redis' address is understood in
//! `command/redis_url.rs`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use crate::command::values::{boolean, duration, path};

/// The settings of the store.
#[derive(Args)]
pub(crate) struct StoreArguments {
    /// Sets the store by a URL: `memory:`, `redis://`, `redis+sentinel://`, `redis+cluster://` … It
    /// overrides --redis-url
    #[arg(long, env = "TOLLGATE_STORE", hide_env_values = true)]
    #[arg(value_name = "URL")]
    pub(crate) store: Option<String>,

    /// Shares limits with `lease` among regions: sets the home of these limits by a URL, as in
    /// `redis://us.example/?replicas=1&round_trip=80ms`. Then --store is the Redis of this region, as
    /// in `redis://eu.example/?region=eu`, and decides all other limits
    #[arg(long, env = "TOLLGATE_HOME_STORE", hide_env_values = true)]
    #[arg(value_name = "URL")]
    pub(crate) home_store: Option<String>,

    /// Sets the answer while Redis is away
    #[arg(long, env = "TOLLGATE_ON_OUTAGE", default_value = "local")]
    #[arg(value_name = "ANSWER")]
    pub(crate) on_outage: OnOutage,

    /// Sets the longest time that a decision may take. Envoy waits for 20 ms by default
    #[arg(long, env = "TOLLGATE_DEADLINE", value_parser = duration, default_value = "15ms")]
    pub(crate) deadline: Duration,

    /// Sets the kind of the store. Without --redis-url, it is the memory of this process
    #[arg(long, env, default_value = "redis", ignore_case = true)]
    #[arg(value_name = "TYPE")]
    pub(crate) backend_type: Backend,

    /// Sets the address of Redis: `HOST:PORT`, the path of a socket, `MASTER,SENTINEL,…`, or
    /// `NODE,NODE,…`
    #[arg(long, env, hide_env_values = true, value_name = "ADDRESS")]
    pub(crate) redis_url: Option<String>,

    /// Sets what --redis-url names
    #[arg(long, env, default_value = "SINGLE", ignore_case = true)]
    #[arg(value_name = "TYPE")]
    pub(crate) redis_type: RedisType,

    /// Sets how a single server is reached. With unix, an address that starts with / is the path of
    /// a socket
    #[arg(long, env, default_value = "unix", ignore_case = true)]
    #[arg(value_name = "TYPE")]
    pub(crate) redis_socket_type: SocketType,

    /// Sets the password of Redis, or `USER:PASSWORD`
    #[arg(long, env, default_value = "", hide_env_values = true)]
    #[arg(value_name = "PASSWORD")]
    pub(crate) redis_auth: String,

    /// Sets the password of the Sentinels, or `USER:PASSWORD`
    #[arg(long, env, default_value = "", hide_env_values = true)]
    #[arg(value_name = "PASSWORD")]
    pub(crate) redis_sentinel_auth: String,

    /// Reads the password of the store from a file, or the user and the password on two lines. It
    /// is read every second
    #[arg(long, env = "TOLLGATE_CREDENTIALS_FILE", default_value = "", value_parser = path)]
    #[arg(value_name = "FILE")]
    pub(crate) credentials_file: PathBuf,

    /// Connects to Redis with TLS
    #[arg(long, env, value_parser = boolean, default_value = "false")]
    pub(crate) redis_tls: bool,

    /// Sets the CA certificates that verify Redis, in PEM
    #[arg(long, env, default_value = "", value_parser = path, value_name = "FILE")]
    pub(crate) redis_tls_cacert: PathBuf,

    /// Reports healthy only while Redis answers
    #[arg(long, env, value_parser = boolean, default_value = "false")]
    pub(crate) redis_health_check_active_connection: bool,

    /// Sets the prefix of all names in Redis
    #[arg(long, env, default_value = "", value_name = "PREFIX")]
    pub(crate) cache_key_prefix: String,
}

/// Selects the answer while Redis is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOutage {
    /// Requests pass
    Allow,
    /// Calls fail, and `failure_mode_deny` of Envoy decides
    Fail,
    /// Each replica limits by its share
    Local,
}

/// Selects the kind of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// Redis
    Redis,
    /// Memcached, which is not supported
    #[value(hide = true)]
    Memcache,
}

/// Selects what the address of Redis names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RedisType {
    /// One server
    #[value(name = "SINGLE")]
    Single,
    /// Sentinels, which name a master
    #[value(name = "SENTINEL")]
    Sentinel,
    /// A cluster
    #[value(name = "CLUSTER")]
    Cluster,
}

/// Selects how a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SocketType {
    /// Over a Unix socket
    Unix,
    /// Over TCP
    Tcp,
}
