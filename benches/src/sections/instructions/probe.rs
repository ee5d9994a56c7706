//! The services that are counted, each in a process of its own. Which there are, and what is made of
//! the counts, is in `mod.rs`; who sends the requests is in `callers.rs`.

use std::{
    net::TcpListener,
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, routing::get};
use tokio_stream::wrappers::TcpListenerStream;
use tollgate::{
    Lease, Limiter, LimiterBuilder, MemoryStore, Policy, PolicySet, Quota, RedisStore, Store,
};
use tollgate_tower::{RateLimitLayer, key::Header};
use tonic::{service::Routes, transport::Server as GrpcServer};
use tower_layer::layer_fn;
use tower_service::Service;

use super::{BODY, COUNTED, FIRST, KEY};
use crate::sections::envoy;

const PLENTY: Policy = Policy::token_bucket(
    "plenty",
    Quota::per_second(900_000).with_burst(1_000_000_000),
);

/// Nobody gives up: a service under callgrind is fifty times as slow.
const DEADLINE: Duration = Duration::from_secs(60);

/// A service, by its protocol.
enum Served {
    Http(Router),
    Grpc(Routes),
}

/// Returns whether the service of this word speaks gRPC.
pub(super) fn is_grpc(word: &str) -> bool {
    word == "echo" || word.starts_with("envoy")
}

/// Serves until the last request that is counted, or without an end. `word` names the service.
///
/// # Panics
///
/// When there is no such service, or when the server at `url` is not up.
pub(in crate::sections) fn serve(word: &str, url: &str, counts: bool) -> ! {
    if !counts {
        SERVED.store(LAST + 1, Ordering::Relaxed);
    }
    #[cfg(feature = "metrics")]
    metrics_exporter_prometheus::PrometheusBuilder::new()
        .install_recorder()
        .expect("the first recorder");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let served = service(word, url).await;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        println!("{}", listener.local_addr().expect("it is bound"));
        listener.set_nonblocking(true).expect("a socket");
        let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
        match served {
            Served::Http(router) => axum::serve(listener, router)
                .await
                .expect("the service serves"),
            Served::Grpc(routes) => GrpcServer::builder()
                .layer(layer_fn(Counted))
                .add_routes(routes)
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
                .expect("the service serves"),
        }
    });
    unreachable!("a service does not end by itself")
}

async fn service(word: &str, url: &str) -> Served {
    let redis = async || RedisStore::connect(url).await.expect("the server is up");
    let memory = || limiter(MemoryStore::new());
    let limited = |limiter: Limiter| {
        let layer = RateLimitLayer::new(limiter, Header::new(KEY));
        Served::Http(hello().layer(layer))
    };
    match word {
        "none" => Served::Http(hello()),
        "memory" => limited(memory().build()),
        "fair" => {
            let limiter = memory().fair_shares().build();
            let layer = RateLimitLayer::builder(limiter, Header::new(KEY));
            Served::Http(hello().layer(layer.customer(Header::new(KEY)).build()))
        }
        "redis" => limited(limiter(redis().await).build()),
        "published" => limited(limiter(redis().await).published().build()),
        "leased" => {
            let leased = limiter(redis().await).policies(PLENTY.leased(Lease::new()));
            limited(leased.build())
        }
        "echo" => Served::Grpc(envoy::echo()),
        "envoy" => Served::Grpc(envoy::service(MemoryStore::new(), DEADLINE)),
        "envoy-redis" => Served::Grpc(envoy::service(redis().await, DEADLINE)),
        _ => panic!("there is no such service: {word}"),
    }
}

fn limiter(store: impl Store) -> LimiterBuilder<PolicySet> {
    Limiter::builder(store).policies(PLENTY).deadline(DEADLINE)
}

fn hello() -> Router {
    let hello = async || {
        count();
        BODY
    };
    Router::new().route("/", get(hello))
}

/// Counts the calls of a gRPC service, before they reach it.
#[derive(Clone)]
struct Counted<S>(S);

impl<R, S: Service<R>> Service<R> for Counted<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        count();
        self.0.call(request)
    }
}

const LAST: u64 = FIRST + COUNTED;

static SERVED: AtomicU64 = AtomicU64::new(0);

/// Counts a request, and begins and ends the part that callgrind counts.
fn count() {
    match SERVED.fetch_add(1, Ordering::Relaxed) {
        FIRST => counting_begins(),
        LAST => {
            counting_ends();
            std::process::exit(0);
        }
        _ => {}
    }
}

/// Begins the part of the run that callgrind counts. It knows the function by its name.
#[inline(never)]
fn counting_begins() {
    std::hint::black_box(());
}

/// Ends that part.
#[inline(never)]
fn counting_ends() {
    std::hint::black_box(true);
}
