//! What all examples do alike: where they listen, where they count, and how they stop.
//!
//! `LISTEN` is the address to listen on, 127.0.0.1:3000 unless set. `REDIS_URL` moves the counts to Redis, where all
//! instances with the same URL share them; without it they stay in the process. `RUST_LOG` is not read: the examples
//! log what is at least `info`.

use std::{env, net::SocketAddr};

use axum::Router;
use tokio::{net::TcpListener, signal};
use tollgate::{Check, CheckFuture, Decision, Key, MemoryStore, PolicySet, RedisStore, Store, StoreFuture};

/// What ends an example.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The store that `REDIS_URL` names, or one inside the process.
#[derive(Clone, Debug)]
pub enum AnyStore {
    /// Inside the process.
    Memory(MemoryStore),
    /// In Redis.
    Redis(RedisStore),
}

/// The store that `REDIS_URL` names, or one inside the process; and begins to log.
///
/// Redis need not be there yet: until it is, each instance limits by itself.
///
/// # Errors
///
/// `REDIS_URL` does not parse.
pub fn store() -> Result<AnyStore, Failure> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match env::var("REDIS_URL") {
        Ok(url) if !url.is_empty() => {
            println!("Counts are in Redis (REDIS_URL).");
            Ok(AnyStore::Redis(RedisStore::open(url)?))
        }
        _ => {
            println!("Counts are in this process; set REDIS_URL to share them.");
            Ok(AnyStore::Memory(MemoryStore::new()))
        }
    }
}

/// Listens where `LISTEN` says.
///
/// # Errors
///
/// `LISTEN` is no address, or is taken.
pub async fn listen() -> Result<TcpListener, Failure> {
    listen_or("127.0.0.1:3000").await
}

/// Listens where `LISTEN` says, on `address` unless it is set.
///
/// # Errors
///
/// As [`listen`].
pub async fn listen_or(address: &str) -> Result<TcpListener, Failure> {
    let address = env::var("LISTEN").unwrap_or_else(|_| address.to_owned());
    TcpListener::bind(&address).await.map_err(|error| format!("LISTEN={address}: {error}").into())
}

/// Serves until Ctrl-C or SIGTERM, and lets requests that are under way end.
///
/// # Errors
///
/// The listener fails.
pub async fn serve(listener: TcpListener, router: Router) -> Result<(), Failure> {
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).with_graceful_shutdown(stopped()).await?;
    println!("Stopped.");
    Ok(())
}

/// Waits for Ctrl-C or SIGTERM.
pub async fn stopped() {
    #[cfg(unix)]
    let terminate = async {
        match signal::unix::signal(signal::unix::SignalKind::terminate()) {
            Ok(mut terminate) => drop(terminate.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminate = std::future::pending();
    tokio::select! {
        _ = signal::ctrl_c() => {}
        () = terminate => {}
    }
}

impl Store for AnyStore {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        match self {
            Self::Memory(store) => store.check(check),
            Self::Redis(store) => store.check(check),
        }
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        match self {
            Self::Memory(store) => store.refund(check, decision),
            Self::Redis(store) => store.refund(check, decision),
        }
    }

    fn reset(&self, policies: &PolicySet, key: &Key) -> StoreFuture<()> {
        match self {
            Self::Memory(store) => store.reset(policies, key),
            Self::Redis(store) => store.reset(policies, key),
        }
    }

    fn is_in_process(&self) -> bool {
        matches!(self, Self::Memory(_))
    }
}

/// The README's example is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
