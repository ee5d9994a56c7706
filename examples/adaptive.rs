//! Sheds requests while the service is slow, the least important ones first.
//!
//! Run it with `cargo run -p tollgate-examples --example adaptive`. It serves no port: it sends
//! requests to its own router for nine seconds, and prints a line each second. The service takes
//! ten times as long from second 3 to second 6. The limit falls, `/search` is answered with 503,
//! and `/login` still passes.
//!
//! Features: none.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::State,
    http::{Request, StatusCode},
    routing::get,
};
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, interval, sleep},
};
use tollgate_overload::{AdaptiveLayer, AdaptiveLimiter, Class, Gradient};
use tower::ServiceExt;

/// Stands for a database with ten connections.
struct Database {
    connections: Semaphore,
    query_ms: AtomicU64,
}

async fn query(State(database): State<Arc<Database>>) {
    let _connection = database.connections.acquire().await;
    sleep(Duration::from_millis(
        database.query_ms.load(Ordering::Relaxed),
    ))
    .await;
}

#[tokio::main]
async fn main() {
    let database = Arc::new(Database {
        connections: Semaphore::new(10),
        query_ms: AtomicU64::new(10),
    });
    let limiter = AdaptiveLimiter::builder(Gradient::new())
        .limits(10..=200)
        .build();
    let layer = AdaptiveLayer::builder(limiter.clone())
        .class(|parts| {
            if parts.uri.path() == "/login" {
                Class::CRITICAL
            } else {
                Class::LOW
            }
        })
        .build();
    let router = Router::new()
        .route("/login", get(query))
        .route("/search", get(query))
        .layer(layer)
        .with_state(Arc::clone(&database));

    let start = Instant::now();
    for second in 0..9 {
        database.query_ms.store(
            if (3..6).contains(&second) { 100 } else { 10 },
            Ordering::Relaxed,
        );
        let mut requests = JoinSet::new();
        let (mut ticks, mut sent) = (interval(Duration::from_millis(5)), 0);
        while start.elapsed() < Duration::from_secs(second + 1) {
            ticks.tick().await;
            // 400 searches and 40 log-ins in a second.
            requests.spawn(send(router.clone(), "/search"));
            requests.spawn(send(router.clone(), "/search"));
            sent += 1;
            if sent % 5 == 0 {
                requests.spawn(send(router.clone(), "/login"));
            }
        }
        let responses = requests.join_all().await;
        let answered = |path| {
            let of_path = responses.iter().filter(|(of, _)| *of == path);
            let answered = of_path
                .clone()
                .filter(|(_, status)| status.is_success())
                .count();
            format!("{answered} of {}", of_path.count())
        };
        println!(
            "second {second}: limit {:>3}, /login {:>9}, /search {:>10}",
            limiter.limit(),
            answered("/login"),
            answered("/search")
        );
    }
}

async fn send(router: Router, path: &'static str) -> (&'static str, StatusCode) {
    let request = Request::get(path)
        .body(Body::empty())
        .expect("the request is valid");
    let Ok(response) = router.oneshot(request).await;
    let status = response.status();
    // The request is in flight until its body ends.
    let _ = to_bytes(response.into_body(), usize::MAX).await;
    (path, status)
}
