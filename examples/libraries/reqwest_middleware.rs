//! Keeps the calls of a client with `reqwest-middleware` below the limit of another service, for
//! all instances together.
//!
//! ```text
//! cargo run --example reqwest_middleware
//! ```
//!
//! The program contains a service that allows five calls in any second, and a client that makes
//! twenty calls at once. Each waits for its turn, so that none is refused, and the program tells
//! how long they took. `PAUSE=1` makes the service ask for a pause with its third answer, which all
//! calls then obey.
//!
//! [`OutgoingLayer`] goes around the rest of the chain of middleware. So it works with those before
//! and behind it, such as retries and traces, and with the types of reqwest.
//!
//! Features: `reqwest` of `tollgate-outgoing`, beside the defaults.

use std::{
    env,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use axum::{
    Router,
    http::{Extensions, StatusCode},
    response::IntoResponse,
    routing::get,
};
use futures_util::future::try_join_all;
use reqwest_middleware::{ClientBuilder, Middleware, Next, Result};
use tollgate::{Limiter, Policy, Quota};
use tollgate_examples::{Failure, listen, store};
use tollgate_outgoing::{OutgoingLayer, ReqwestClient};
use tollgate_tower::key::Global;
use tower::{Layer, ServiceExt, service_fn};

const CALLS: usize = 20;

/// A call each 200 ms. As many may wait as there are.
const CLIENT: Policy = Policy::leaky_bucket("client", Quota::per_second(5).with_burst(1_000));

/// Lets each call wait for its turn.
struct InTurn(OutgoingLayer<Global, fn(&reqwest::Body) -> Option<reqwest::Body>>);

impl InTurn {
    fn new(limiter: Limiter) -> Self {
        let copy: fn(&_) -> _ = ReqwestClient::copy_body;
        let layer = OutgoingLayer::builder(limiter, Global)
            .wait(Duration::from_secs(60))
            .retries(2, copy);
        Self(layer.build())
    }
}

#[async_trait]
impl Middleware for InTurn {
    async fn handle(
        &self,
        request: reqwest::Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<reqwest::Response> {
        let (next, extensions) = (&next, &*extensions);
        let rest = service_fn(|request: http::Request<reqwest::Body>| async move {
            // A repeated call goes through the rest of the chain again.
            let mut extensions = extensions.clone();
            let answer = next.clone().run(request.try_into()?, &mut extensions);
            Result::Ok(http::Response::from(answer.await?))
        });
        let request = http::Request::try_from(request)?;
        Ok(self.0.layer(rest).oneshot(request).await?.into())
    }
}

/// Answers, and asks for a pause once if it is told to.
async fn answer() -> impl IntoResponse {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let number = ASKED.fetch_add(1, Ordering::Relaxed) + 1;
    match number == 3 && env::var_os("PAUSE").is_some() {
        true => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "2")]).into_response(),
        false => "hello\n".into_response(),
    }
}

#[tokio::main]
async fn main() -> std::result::Result<(), Failure> {
    let listener = listen().await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let service = Router::new().route("/", get(answer));
    tokio::spawn(axum::serve(listener, service).into_future());

    let client = ClientBuilder::new(reqwest::Client::new())
        .with(InTurn::new(Limiter::new(store()?, CLIENT)))
        .build();
    let began = Instant::now();
    let answers = try_join_all((0..CALLS).map(|_| client.get(&url).send())).await?;
    let fine = answers.iter().filter(|answer| answer.status().is_success());
    println!(
        "{} of {CALLS} calls answered in {} ms",
        fine.count(),
        began.elapsed().as_millis()
    );
    Ok(())
}
