//! A service that is limited by the plan of the caller.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `LISTEN` | address of the service | `0.0.0.0:{{port}}` |
//! | `METRICS_LISTEN` | address of `/metrics` and `/denied` | `0.0.0.0:{{metrics_port}}` |
//! | `REDIS_URL` | store of the counts: `redis://`, `rediss://`, `redis+sentinel://`, `redis+cluster://` | this process |
//! | `DENIED_KEYS_SECRET` | secret of the digests on `/denied`, equal in all replicas | random |

mod limits;
mod metrics;

use std::{env, net::SocketAddr};

use axum::{Router, middleware, routing::get};
use tokio::{net::TcpListener, signal};
use tollgate::{KeySecret, limiter::DeniedKeys};

/// Allocates. The allocator of musl, of which the image is made, takes several times as long.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    // Limiters register their metrics with the recorder when they are first used.
    let recorder = metrics::install()?;
    let denied_keys = match variable("DENIED_KEYS_SECRET") {
        Some(secret) => DeniedKeys::with_secret(1_000, KeySecret::new(secret)),
        None => DeniedKeys::new(1_000),
    };
    // Redis may be away when the service starts. Until it answers, each replica enforces its share
    // of the limits.
    let store = tollgate::open(variable("REDIS_URL").as_deref().unwrap_or("memory:"))?;

    let service = Router::new()
        .route("/", get(async || "hello\n"))
        .layer(limits::layer(&store, &denied_keys))
        // The layer that is added last is the outermost: it runs before the limit reads the
        // account.
        .layer(middleware::from_fn(limits::authenticate))
        .route("/healthz", get(async || "healthy\n"));
    let listener = bind("LISTEN", "0.0.0.0:{{port}}").await?;
    let metrics_listener = bind("METRICS_LISTEN", "0.0.0.0:{{metrics_port}}").await?;
    println!("Metrics on http://{}/metrics", metrics_listener.local_addr()?);
    println!("Listening on http://{}", listener.local_addr()?);

    tokio::spawn(axum::serve(metrics_listener, metrics::router(recorder, denied_keys)).into_future());
    let service = service.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).with_graceful_shutdown(stopped()).await?;
    Ok(())
}

async fn bind(name: &str, address: &str) -> Result<TcpListener, Failure> {
    let address = variable(name).unwrap_or_else(|| address.to_owned());
    TcpListener::bind(&address).await.map_err(|error| format!("{name}={address}: {error}").into())
}

/// Waits for Ctrl-C or SIGTERM. Requests under way are then answered.
async fn stopped() {
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
