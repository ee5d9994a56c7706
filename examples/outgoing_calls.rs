//! Calls an API that allows 200 calls in any 4 seconds, from as many instances as you like.
//!
//! ```text
//! cargo run --example outgoing_calls
//! ```
//!
//! The program contains both sides. The server listens on `LISTEN` and refuses what is beyond its
//! limit. The client makes `CALLS` calls at once, 100 by default, and its stack lets each of them
//! wait for its turn: the server refuses none. `/report` says what the server saw.
//!
//! With the same `REDIS_URL` several instances share the client's limit. `API_URL` makes the others
//! call the server of the first:
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1 CALLS=400 cargo run --example outgoing_calls
//! REDIS_URL=redis://127.0.0.1 CALLS=400 API_URL=http://127.0.0.1:3000/ cargo run --example outgoing_calls
//! curl http://127.0.0.1:3000/report
//! ```
//!
//! Two variables make the server difficult. `REFUSE_AT=150` refuses the 150th call, and asks for a
//! pause of 3 seconds: all instances stop calling, and the call is repeated afterwards.
//! `REFUSE_ALL=1` refuses everything, and does not even ask for a pause: the budget of the retries
//! keeps the clients from a storm.
//!
//! Features: `reqwest` of `tollgate-outgoing`, beside the defaults.

use std::{
    env,
    str::FromStr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    extract::{Request, State},
    http::StatusCode,
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::get,
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tollgate::{Limiter, MemoryStore, Policy, Quota};
use tollgate_examples::{Failure, listen, serve, stopped, store};
use tollgate_outgoing::{OutgoingLayer, ReqwestClient};
use tollgate_tower::{RateLimitLayer, key::Global};
use tower::Layer;

const ALLOWED: Quota = Quota::new(200, Duration::from_secs(4));

const SERVER: Policy = Policy::sliding_log("server", ALLOWED);

/// The same in any period at the server, although a call may be 120 ms late. Up to 2000 calls wait:
/// 41 s.
const CLIENT: Policy = Policy::leaky_bucket(
    "client",
    ALLOWED
        .with_margin(Duration::from_millis(120))
        .with_burst(2_000),
);

const SECOND: Duration = Duration::from_secs(1);

/// The pause for which the server asks.
const PAUSE: Duration = Duration::from_secs(3);

/// Holds what the server saw.
#[derive(Default)]
struct Seen {
    accepted: Vec<Instant>,
    refused: u32,
    /// When the server asked for a pause.
    asked: Option<Instant>,
    /// The calls in the pause, a second after it was asked for and later.
    in_pause: u32,
}

/// Makes the server difficult, and counts what it answers.
struct Server {
    refuses_all: bool,
    refuse_at: usize,
    seen: Mutex<Seen>,
}

impl Server {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns how long the client of a call is to wait, if the server refuses it without a look at
    /// the limit.
    fn refuse(&self) -> Option<Duration> {
        let (mut seen, now) = (self.seen(), Instant::now());
        let since = seen.asked.map(|asked| now - asked);
        seen.in_pause += u32::from(since.is_some_and(|since| (SECOND..PAUSE).contains(&since)));
        if self.refuses_all {
            return Some(Duration::ZERO);
        }
        if seen.asked.is_none() && seen.accepted.len() + 1 == self.refuse_at {
            seen.asked = Some(now);
            return Some(PAUSE);
        }
        None
    }

    fn count(&self, status: StatusCode) {
        let mut seen = self.seen();
        match status {
            StatusCode::OK => seen.accepted.push(Instant::now()),
            _ => seen.refused += 1,
        }
    }

    fn report(&self) -> Value {
        let seen = self.seen();
        // Of each call, those that came within a second up to it.
        let second = |at: usize| {
            seen.accepted[..=at]
                .iter()
                .filter(|time| seen.accepted[at] - **time < SECOND)
                .count()
        };
        let took = seen
            .accepted
            .first()
            .zip(seen.accepted.last())
            .map(|(first, last)| *last - *first);
        json!({
            "accepted": seen.accepted.len(),
            "refused": seen.refused,
            "took_ms": took.unwrap_or_default().as_millis() as u64,
            "busiest_second": (0..seen.accepted.len()).map(second).max(),
            "in_pause": seen.in_pause,
        })
    }
}

/// Counts a call that the limiter admits or rejects, unless it is refused before.
async fn watch(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let response = match server.refuse() {
        Some(wait) => (
            StatusCode::TOO_MANY_REQUESTS,
            [("retry-after", wait.as_secs().to_string())],
        )
            .into_response(),
        None => next.run(request).await,
    };
    server.count(response.status());
    response
}

fn router(server: Arc<Server>) -> Router {
    let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new(), SERVER), Global);
    Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route_layer(limit)
        .route_layer(from_fn_with_state(Arc::clone(&server), watch))
        .route("/report", get(|| async move { Json(server.report()) }))
}

/// Makes all calls at once.
async fn call(url: String, calls: usize, limiter: Limiter) -> Result<(), Failure> {
    let client = reqwest::Client::new();
    let api = OutgoingLayer::builder(limiter, Global)
        .wait(Duration::from_secs(60))
        .retries(2, ReqwestClient::copy_body)
        .build()
        .layer(ReqwestClient::new(client.clone()));

    let start = Instant::now();
    let one = async || Ok::<_, Failure>(api.execute(client.get(&url).build()?).await?.status());
    let answers = join_all((0..calls).map(|_| one())).await;
    let (mut fine, mut refused) = (0, 0);
    for answer in answers {
        match answer? {
            StatusCode::OK => fine += 1,
            StatusCode::TOO_MANY_REQUESTS => refused += 1,
            status => return Err(format!("{url} answers {status}").into()),
        }
    }
    println!(
        "{calls} calls in {} ms: {fine} answered, {refused} refused",
        start.elapsed().as_millis()
    );
    Ok(())
}

/// Reads a number from the environment.
fn number<T: FromStr>(name: &str, default: T) -> Result<T, Failure> {
    match env::var(name) {
        Ok(text) => text
            .parse()
            .map_err(|_| format!("{name} must be a number, got {text:?}").into()),
        Err(_) => Ok(default),
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let limiter = Limiter::new(store()?, CLIENT);
    let calls = number("CALLS", 100)?;
    if let Ok(url) = env::var("API_URL") {
        tokio::select! {
            done = call(url, calls, limiter) => return done,
            () = stopped() => return Ok(()),
        }
    }
    let refuses_all = number("REFUSE_ALL", 0)? != 0;
    let server = Arc::new(Server {
        refuses_all,
        refuse_at: number("REFUSE_AT", 0)?,
        seen: Mutex::default(),
    });
    let listener = listen().await?;
    let url = format!("http://{}/", listener.local_addr()?);
    println!(
        "The server listens on {url}, limited to 200 calls in any 4 s. {url}report says what it saw."
    );
    let calling = tokio::spawn(async move {
        if let Err(error) = call(url, calls, limiter).await {
            eprintln!("{error}");
        }
        println!("Press Ctrl-C to stop the server.");
    });
    serve(listener, router(server)).await?;
    calling.abort();
    Ok(())
}
