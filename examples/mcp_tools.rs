//! Limits the calls of agents: a server of the Model Context Protocol (MCP, streamable HTTP) whose
//! tools have a cost each.
//!
//! ```text
//! cargo run --example mcp_tools
//! ask() { curl -sN -H "Authorization: Bearer $1" --json "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"$2\", \"params\": $3}" http://127.0.0.1:3000/mcp; echo; }
//! ask ann tools/list '{}'
//! for i in 1 2 3 4 5 6; do ask ann tools/call '{"name": "search"}'; done
//! report='{"name": "report", "_meta": {"progressToken": 1}}'
//! ask bob tools/call "$report" & ask bob tools/call "$report" & sleep 0.2; ask bob tools/call "$report"; wait
//! ```
//!
//! A user has 20 calls of tools a minute, 5 of each tool, and 300 units a day, of which a search
//! costs 1 and a report 50. `initialize`, `tools/list` and all else pass. The sixth search is denied,
//! and its wait stands in the result. A report takes three seconds and holds a permit: a user has two
//! at a time, and the third is charged nothing. Hang up, and the permit is free at once.
//!
//! A denial is a *tool execution error*: a result with `isError: true`, whose text clients show to
//! the model, so that it waits or does something else. A JSON-RPC error is for requests that are
//! wrong, and of a status of 429 a client may not read the wait. The wait in seconds stands in
//! `_meta` too, for clients that are programs. A service whose clients send the headers `Mcp-Method`
//! and `Mcp-Name` (revision 2026-07-28) can limit in a layer, before the body.
//!
//! Features: the defaults of `tollgate` and `tollgate-tower`.

use std::{convert::Infallible, time::Duration};

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response, Sse, sse::Event},
    routing::post,
};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tollgate::{
    Cost, Costs, Key, Limiter, Policy, Quota,
    permits::{Concurrency, ConcurrencyLimiter, Permit},
};
use tollgate_examples::{Failure, listen, serve, store};

const CALLS: Policy = Policy::token_bucket("calls", Quota::per_minute(20)).at_level(1);
const TOOL: Policy = Policy::token_bucket("calls-of-tool", Quota::per_minute(5)).at_level(2);
const UNITS: Policy = Policy::fixed_window("units", Quota::per_day(300)).at_level(1);
const REPORTS: Concurrency = Concurrency::new("reports", 2).exact();

/// The tools: their names and their costs.
const TOOLS: [(&str, u64); 2] = [("search", 1), ("report", 50)];

/// The steps of a report, and the time that each takes.
const STEPS: u64 = 6;
const STEP: Duration = Duration::from_millis(500);

#[derive(Clone)]
struct Limits {
    calls: Limiter,
    reports: ConcurrencyLimiter,
}

/// Answers one message of JSON-RPC.
async fn message(State(limits): State<Limits>, headers: HeaderMap, body: Bytes) -> Response {
    // A page in a browser must not reach this server. A real one verifies the token, and takes the
    // user from it.
    if headers.contains_key(header::ORIGIN) {
        return StatusCode::FORBIDDEN.into_response();
    }
    let token = headers.get(header::AUTHORIZATION);
    let Some(user) = token.and_then(|token| token.to_str().ok()?.strip_prefix("Bearer ")) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    let Ok(message) = serde_json::from_slice::<Value>(&body) else {
        let wrong = error(&Value::Null, -32700, "the body is not JSON");
        return (StatusCode::BAD_REQUEST, wrong).into_response();
    };
    let (id, params) = (&message["id"], &message["params"]);
    if id.is_null() {
        return StatusCode::ACCEPTED.into_response(); // A notification.
    }
    match message["method"].as_str().unwrap_or_default() {
        "initialize" => result(id, described("protocolVersion", &json!("2025-11-25"))),
        "server/discover" => result(id, described("supportedVersions", &json!(["2026-07-28"]))),
        "ping" => result(id, json!({})),
        "tools/list" => {
            let tools = TOOLS.map(|(name, cost)| {
                json!({"name": name, "description": format!("costs {cost} units"), "inputSchema": {"type": "object"}})
            });
            result(
                id,
                json!({"tools": tools, "ttlMs": 60_000, "cacheScope": "public"}),
            )
        }
        "tools/call" => call(&limits, user, id, params).await,
        method => {
            let wrong = error(id, -32601, &format!("there is no method {method}"));
            (StatusCode::NOT_FOUND, wrong).into_response()
        }
    }
}

/// Takes a permit for a long call, charges the call, and runs it.
async fn call(limits: &Limits, user: &str, id: &Value, params: &Value) -> Response {
    let name = params["name"].as_str().unwrap_or_default();
    let Some((tool, cost)) = TOOLS.into_iter().find(|(tool, _)| *tool == name) else {
        return error(id, -32602, &format!("unknown tool: {name}")).into_response();
    };
    // The permit comes first, so that a call without one is charged nothing.
    let permit = match tool {
        "report" => match limits.reports.acquire(user).await {
            Ok(Ok(permit)) => Some(permit),
            Ok(Err(busy)) => {
                return denied(id, "two reports are running", Some(busy.retry_after()));
            }
            Err(failed) => return undecided(id, &failed),
        },
        _ => None,
    };
    let costs = Costs::new(Cost::ONE).with("units", cost);
    let decision = match limits
        .calls
        .check(Key::new(user).child(tool))
        .cost(costs)
        .await
    {
        Ok(decision) => decision,
        Err(failed) => return undecided(id, &failed),
    };
    if decision.is_denied() {
        let limit = decision
            .strictest()
            .map_or("", |state| state.policy().name());
        return denied(
            id,
            &format!("the limit {limit:?} is reached"),
            decision.retry_after(),
        );
    }
    match permit {
        Some(permit) => report(permit, id, &params["_meta"]["progressToken"]),
        None => result(id, text("three pages were found")),
    }
}

/// Writes a report, with a notification after each step. The stream holds the permit: it is given
/// back after the last message, or when the client hangs up.
fn report(permit: Permit, id: &Value, token: &Value) -> Response {
    let (id, token) = (id.clone(), token.clone());
    let steps = stream::iter(1..=STEPS).then(move |step| {
        let progress = json!({"progressToken": token, "progress": step, "total": STEPS});
        let progress = (!token.is_null()).then(
            || json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}),
        );
        async move {
            tokio::time::sleep(STEP).await;
            progress
        }
    });
    let last = response(&id, text("the report is written"));
    let messages = steps.chain(stream::iter([Some(last)]));
    let events = messages.filter_map(move |message| {
        let _held = &permit;
        let event =
            message.map(|message| Ok::<_, Infallible>(Event::default().data(message.to_string())));
        std::future::ready(event)
    });
    Sse::new(events).into_response()
}

/// Returns the result of a call that is denied: the model reads the text, and a program `_meta`.
fn denied(id: &Value, reason: &str, wait: Option<Duration>) -> Response {
    let Some(wait) = wait else {
        return result(
            id,
            json!({"isError": true, "content": text(reason)["content"]}),
        );
    };
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let reason = format!("Rate limit exceeded: {reason}. Try again in {seconds} s.");
    let denied = json!({"isError": true, "_meta": {"tollgate/retryAfterSeconds": seconds}, "content": text(&reason)["content"]});
    result(id, denied)
}

/// Returns the answer while nothing decides.
fn undecided(id: &Value, failed: &tollgate::Error) -> Response {
    eprintln!("no decision: {failed}");
    error(id, -32603, "the limits cannot be checked now").into_response()
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

fn described(versions: &str, value: &Value) -> Value {
    json!({versions: value, "capabilities": {"tools": {}}, "serverInfo": {"name": "mcp_tools", "version": "1.0.0"}})
}

fn response(id: &Value, mut result: Value) -> Value {
    result["resultType"] = json!("complete"); // Older clients ignore it.
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

fn result(id: &Value, result: Value) -> Response {
    Json(response(id, result)).into_response()
}

fn error(id: &Value, code: i32, message: &str) -> Json<Value> {
    Json(json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let calls = Limiter::new(store()?, [CALLS, TOOL, UNITS]);
    let reports = calls.concurrency(REPORTS);
    let router = Router::new()
        .route("/mcp", post(message))
        .with_state(Limits { calls, reports });

    let listener = listen().await?;
    let url = format!("http://{}/mcp", listener.local_addr()?);
    println!(
        "Listening on {url}: 5 calls of each tool a minute, 300 units a day, two reports at a time."
    );
    println!("Try:");
    println!(
        "  curl -H 'Authorization: Bearer ann' --json '{{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/call\", \"params\": {{\"name\": \"search\"}}}}' {url}"
    );
    serve(listener, router).await
}
