//! Contains what all examples share: the listener, the store and the shutdown.
//!
//! `LISTEN` is the address to listen on, 127.0.0.1:3000 by default. `REDIS_URL` moves the counts to
//! Redis, where all instances with the same URL share them. It accepts every URL of
//! `tollgate::open`, and `postgres://` URLs. Without it the counts stay in the process. The examples log events of level
//! `info` and above.

use std::{env, net::SocketAddr, sync::Arc};

use axum::{
    Router,
    serve::{ListenerExt, TapIo},
};
use tokio::{
    net::{TcpListener, TcpStream},
    signal,
};
use tollgate::Store;

/// Ends an example with a message.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Starts logging, and returns the store at `REDIS_URL`, or a store in the process if it is not
/// set.
///
/// Redis may be away when the example starts. Until it answers, each instance enforces the limit by
/// itself.
///
/// # Errors
///
/// Returns an error if `REDIS_URL` is not valid.
pub fn store() -> Result<Arc<dyn Store>, Failure> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let url = env::var("REDIS_URL").ok().filter(|url| !url.is_empty());
    match url {
        Some(_) => println!("The counts are in Redis (REDIS_URL)."),
        None => println!("The counts are in this process; set REDIS_URL to share them."),
    }
    tollgate_postgres::register();
    Ok(tollgate::open(url.as_deref().unwrap_or("memory:"))?)
}

/// Listens on the address in `LISTEN`, or on 127.0.0.1:3000.
///
/// # Errors
///
/// Returns an error if `LISTEN` is not an address, or if the address is in use.
pub async fn listen() -> Result<TcpListener, Failure> {
    listen_or("127.0.0.1:3000").await
}

/// Listens on the address in `LISTEN`, or on `address`.
///
/// # Errors
///
/// Returns the same errors as [`listen`].
pub async fn listen_or(address: &str) -> Result<TcpListener, Failure> {
    let address = env::var("LISTEN").unwrap_or_else(|_| address.to_owned());
    TcpListener::bind(&address)
        .await
        .map_err(|error| format!("LISTEN={address}: {error}").into())
}

/// Serves until Ctrl-C or SIGTERM, and then waits for the requests under way.
///
/// # Errors
///
/// Returns an error if the listener fails.
pub async fn serve(listener: TcpListener, router: Router) -> Result<(), Failure> {
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(without_delay(listener), service)
        .with_graceful_shutdown(stopped())
        .await?;
    println!("Stopped.");
    Ok(())
}

/// Sets `TCP_NODELAY` on each accepted connection.
///
/// Without the option, an HTTP/2 response that follows another write waits until the client has
/// acknowledged that write. The client may delay its acknowledgement by 40 ms.
fn without_delay(listener: TcpListener) -> TapIo<TcpListener, fn(&mut TcpStream)> {
    listener.tap_io(|connection| {
        if let Err(error) = connection.set_nodelay(true) {
            eprintln!("TCP_NODELAY cannot be set: {error}");
        }
    })
}

/// Waits for Ctrl-C or SIGTERM. It notices both from this call on, and not from the first poll on:
/// a task that polls it may run late.
pub fn stopped() -> impl Future<Output = ()> {
    #[cfg(unix)]
    let interrupt = received(signal::unix::SignalKind::interrupt());
    #[cfg(unix)]
    let terminate = received(signal::unix::SignalKind::terminate());
    #[cfg(not(unix))]
    let (interrupt, terminate) = (
        async { drop(signal::ctrl_c().await) },
        std::future::pending::<()>(),
    );
    async {
        tokio::select! {
            () = interrupt => {}
            () = terminate => {}
        }
    }
}

/// Waits for a signal that comes after this call. Without its handler the signal ends the process
/// as ever.
#[cfg(unix)]
fn received(kind: signal::unix::SignalKind) -> impl Future<Output = ()> {
    let handler = signal::unix::signal(kind);
    async {
        match handler {
            Ok(mut handler) => drop(handler.recv().await),
            Err(_) => std::future::pending().await,
        }
    }
}

/// Compiles the README's example with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles the code of the pages in `docs` with the tests. The pages that need gRPC are in
/// `grpc/greeter.rs`.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../docs/agents.md")]
    struct Agents;
    #[doc = include_str!("../docs/algorithms.md")]
    struct Algorithms;
    #[doc = include_str!("../docs/concurrency.md")]
    struct Concurrency;
    #[doc = include_str!("../docs/enforcement.md")]
    struct Enforcement;
    #[doc = include_str!("../docs/fair_shares.md")]
    struct FairShares;
    #[doc = include_str!("../docs/leases.md")]
    struct Leases;
    #[doc = include_str!("../docs/migrating.md")]
    struct Migrating;
    #[doc = include_str!("../docs/operations.md")]
    struct Operations;
    #[doc = include_str!("../docs/regions.md")]
    struct Regions;
    #[doc = include_str!("../docs/permits.md")]
    struct Permits;
    #[doc = include_str!("../docs/redis.md")]
    struct Redis;
}

#[cfg(test)]
mod tests {
    use axum::serve::Listener;

    use super::*;

    #[tokio::test]
    async fn accepted_connections_send_without_delay() -> std::io::Result<()> {
        let mut listener = without_delay(TcpListener::bind("127.0.0.1:0").await?);
        let _client = TcpStream::connect(listener.local_addr()?).await?;
        let (connection, _) = listener.accept().await;
        assert!(connection.nodelay()?);
        Ok(())
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_signal_before_the_first_poll_is_noticed() {
        use rustix::process::{Signal, getpid, kill_process};

        for signal in [Signal::INT, Signal::TERM] {
            let stopped = stopped();
            kill_process(getpid(), signal).expect("it is this process");
            stopped.await;
        }
    }
}
