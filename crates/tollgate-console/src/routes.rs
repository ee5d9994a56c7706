//! The endpoints: each reads its input, asks the source, and notes what was done.
//! See `guard.rs` for whether a request comes here at all.

use std::sync::Arc;

use axum::{
    Extension, Json,
    body::Body,
    extract::{RawQuery, State},
    response::{Html, IntoResponse},
};
use http::{Method, StatusCode, Uri};
use serde_json::{Value, json};

use crate::{
    Visitor,
    input::{self, Grant, Keys, Peek, Reset, Share, Withdrawal},
    problem::Problem,
    state::{ConsoleState, Subject},
};

/// The most denied keys that are listed.
const MOST_DENIED: usize = 20;

type Answer = Result<Json<Value>, Problem>;

/// `GET /`: the page.
pub(crate) async fn page(State(console): State<Arc<ConsoleState>>) -> impl IntoResponse {
    Html(console.page.html())
}

/// `GET /api/status`: limiters, replicas, the keys that are denied most, and the actions.
pub(crate) async fn status(
    State(console): State<Arc<ConsoleState>>,
    Extension(visitor): Extension<Visitor>,
) -> Answer {
    let inner = &console;
    let limiters = inner.source.limiters().await?;
    let replicas = inner.source.replicas().await?;
    let exceptions = inner.source.exceptions().await?;
    let denied = inner.denied_keys.as_ref().map(|denied| {
        let row = |key: tollgate::limiter::DeniedKey| {
            json!({"name": key.name(), "denials": key.denials(), "overcount": key.overcount()})
        };
        let keys: Vec<_> = denied.top(MOST_DENIED).into_iter().map(row).collect();
        json!({"total": denied.total(), "keys": keys})
    });
    Ok(Json(json!({
        "author": visitor.name(),
        "source": inner.source.describe(),
        "limiters": limiters,
        "replicas": replicas,
        "exceptions": exceptions["exceptions"],
        "denied": denied,
        "actions": inner.actions(),
    })))
}

/// `GET /api/keys`: the states with the most use.
pub(crate) async fn keys(
    State(console): State<Arc<ConsoleState>>,
    RawQuery(query): RawQuery,
) -> Answer {
    let keys = Keys::parse(query.as_deref().unwrap_or_default())?;
    Ok(Json(console.source.keys(keys).await?))
}

/// `POST /api/peek`: what a key has spent. It is no GET, so that no key stands in the log of a
/// proxy.
pub(crate) async fn peek(State(console): State<Arc<ConsoleState>>, body: Body) -> Answer {
    let Peek { key, cost } = input::read(body).await?;
    Ok(Json(console.source.peek(&key, cost).await?))
}

/// `POST /api/reset`: makes a key fresh.
pub(crate) async fn reset(
    State(console): State<Arc<ConsoleState>>,
    Extension(visitor): Extension<Visitor>,
    body: Body,
) -> Answer {
    let author = author(&visitor)?;
    let Reset { key } = input::read(body).await?;
    let inner = &console;
    let removed = inner.source.reset(&key).await?;
    let states = removed["states"].as_array().map_or(0, Vec::len);
    let outcome = format!("{states} states removed");
    inner.note(
        author,
        "reset",
        Subject::key(&inner.source, "", &inner.source.name_of(&key)),
        outcome,
    );
    Ok(Json(removed))
}

/// `POST /api/share`: sets the share of the keys for which a limiter is enforced.
pub(crate) async fn share(
    State(console): State<Arc<ConsoleState>>,
    Extension(visitor): Extension<Visitor>,
    body: Body,
) -> Answer {
    let author = author(&visitor)?;
    let Share { limiter, share } = input::read(body).await?;
    let inner = &console;
    inner.source.set_share(&limiter, share.as_deref()).await?;
    let outcome = match share {
        Some(share) => format!("enforced for {}%", share.trim_end_matches('%')),
        None => "share withdrawn".to_owned(),
    };
    inner.note(author, "share", Subject::limiter(limiter), outcome);
    Ok(Json(inner.source.limiters().await?))
}

/// `POST /api/exception`: grants an exception, or changes one.
pub(crate) async fn grant(
    State(console): State<Arc<ConsoleState>>,
    Extension(visitor): Extension<Visitor>,
    body: Body,
) -> Answer {
    let author = author(&visitor)?;
    let grant: Grant = input::read(body).await?;
    let inner = &console;
    let granted = inner.source.grant(&grant, author).await?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (row, done) = (&granted["exception"], text(&granted["done"]));
    let outcome = format!("{} {done}: {}", text(&row["change"]), grant.reason);
    inner.note(
        author,
        "exception",
        Subject::exception(&inner.source, row),
        outcome,
    );
    Ok(Json(granted))
}

/// `POST /api/withdraw`: withdraws an exception before its end.
pub(crate) async fn withdraw(
    State(console): State<Arc<ConsoleState>>,
    Extension(visitor): Extension<Visitor>,
    body: Body,
) -> Answer {
    let author = author(&visitor)?;
    let withdrawal: Withdrawal = input::read(body).await?;
    let inner = &console;
    let withdrawn = inner.source.withdraw(&withdrawal).await?;
    let subject = Subject::exception(&inner.source, &withdrawn["exception"]);
    inner.note(author, "exception", subject, "withdrawn".to_owned());
    Ok(Json(withdrawn))
}

fn author(visitor: &Visitor) -> Result<&str, Problem> {
    visitor.name().ok_or_else(|| {
        Problem::forbidden("an action needs an author, and the application names none")
    })
}

pub(crate) async fn nothing(uri: Uri) -> Problem {
    let detail = format!("there is nothing at {:?}", uri.path());
    Problem::new(StatusCode::NOT_FOUND, detail)
}

pub(crate) async fn wrong_method(method: Method, uri: Uri) -> Problem {
    let detail = format!("{:?} takes no {method}", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}
