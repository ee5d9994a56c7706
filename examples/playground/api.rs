//! The requests of the page.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{Path, Request, State},
    http::StatusCode,
    response::{IntoResponse, Response, Sse, sse::KeepAlive},
    routing::{any, get, post, put},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::{
    playground::{Burst, Counts, Playground},
    problem::{Input, Refused},
    settings::PaneSettings,
};

type Shared = State<Arc<Playground>>;

/// Answers without a body.
type Done = Result<StatusCode, Refused>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyInput {
    key: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RedisInput {
    running: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitInput {
    limit: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkInput {
    seconds: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReserveInput {
    pane: String,
    estimate: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CommitInput {
    cost: u64,
}

/// Returns the routes of the page, and the limited services.
pub(crate) fn routes(playground: Arc<Playground>) -> Router {
    let limited = playground
        .panes
        .iter()
        .fold(Router::new(), |router, pane| router.merge(pane.service()));
    Router::new()
        .route("/api/events", get(events))
        .route("/api/state", get(state))
        .route("/api/panes/{pane}", put(set_pane))
        .route("/api/key", put(set_key))
        .route("/api/send", post(send))
        .route("/api/redis", put(set_redis))
        .route(
            "/api/work",
            put(set_work_limit).post(start_work).delete(end_work),
        )
        .route("/api/reservations", post(reserve))
        .route("/api/reservations/{id}", post(commit))
        .route("/work", any(work))
        .with_state(playground)
        .merge(limited)
}

/// Streams the state, and then its changes, as server-sent events.
async fn events(State(playground): Shared) -> Response {
    let all = Arc::clone(&playground);
    match playground.feed.subscribe(move || all.everything()) {
        Some(events) => Sse::new(events)
            .keep_alive(KeepAlive::new().interval(Duration::from_secs(15)))
            .into_response(),
        None => {
            let message = "too many pages are open: close one";
            Refused::new(StatusCode::SERVICE_UNAVAILABLE, "page", "one more", message)
                .into_response()
        }
    }
}

async fn state(State(playground): Shared) -> Json<Value> {
    Json(playground.everything())
}

async fn set_pane(
    State(playground): Shared,
    Path(pane): Path<String>,
    Input(settings): Input<PaneSettings>,
) -> Done {
    playground.pane(&pane)?.apply(settings)?;
    playground.announce();
    Ok(StatusCode::NO_CONTENT)
}

async fn set_key(State(playground): Shared, Input(KeyInput { key }): Input<KeyInput>) -> Done {
    playground.keys.set(&key)?;
    playground.announce();
    Ok(StatusCode::NO_CONTENT)
}

async fn send(State(playground): Shared, Input(burst): Input<Burst>) -> Done {
    playground.send(&burst)?;
    Ok(StatusCode::ACCEPTED)
}

/// Stops or starts the Redis server of the playground.
async fn set_redis(
    State(playground): Shared,
    Input(RedisInput { running }): Input<RedisInput>,
) -> Done {
    let shared = Arc::clone(&playground);
    let switch = tokio::task::spawn_blocking(move || match (&shared.counts, running) {
        (Counts::OwnRedis(server), true) => server.resume().map_err(|error| {
            Refused::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "running",
                running,
                format!("Redis does not start: {error}"),
            )
        }),
        (Counts::OwnRedis(server), false) => {
            server.stop();
            Ok(())
        }
        (Counts::Process | Counts::Redis, _) => {
            let message =
                "the playground has not started Redis, and cannot stop it: use --redis-server";
            Err(Refused::new(
                StatusCode::CONFLICT,
                "running",
                running,
                message,
            ))
        }
    });
    let outcome = switch.await.map_err(|error| {
        Refused::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "running",
            running,
            format!("the switch failed: {error}"),
        )
    })?;
    playground.announce();
    outcome.map(|()| StatusCode::NO_CONTENT)
}

async fn set_work_limit(
    State(playground): Shared,
    Input(LimitInput { limit }): Input<LimitInput>,
) -> Done {
    playground.work.set_limit(limit)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn start_work(
    State(playground): Shared,
    Input(WorkInput { seconds }): Input<WorkInput>,
) -> Done {
    playground.work.start(seconds)?;
    Ok(StatusCode::ACCEPTED)
}

async fn end_work(State(playground): Shared) -> StatusCode {
    playground.work.end_all();
    StatusCode::NO_CONTENT
}

/// Passes a request to the service whose requests hold a permit.
async fn work(State(playground): Shared, request: Request) -> Response {
    let Ok(response) = playground.work.service().oneshot(request).await;
    response
}

async fn reserve(
    State(playground): Shared,
    Input(ReserveInput { pane, estimate }): Input<ReserveInput>,
) -> Done {
    let (pane, key) = (playground.pane(&pane)?, playground.keys.current());
    playground
        .reservations
        .reserve(pane, &key, estimate)
        .await?;
    Ok(StatusCode::CREATED)
}

async fn commit(
    State(playground): Shared,
    Path(id): Path<String>,
    Input(CommitInput { cost }): Input<CommitInput>,
) -> Result<Json<Value>, Refused> {
    let settlement = playground.reservations.commit(&id, cost).await?;
    Ok(Json(json!({ "settlement": settlement.as_str() })))
}
