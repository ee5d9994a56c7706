//! Limits a language model by requests, by tokens and by streams at the same time, for each API
//! key.
//!
//! ```text
//! cargo run --example llm_gateway
//! ask() { curl -iN -H 'X-Api-Key: acme' --json "{\"prompt\": \"$1\", \"max_tokens\": $2}" http://127.0.0.1:3000/chat; }
//! ask 'tell me' 200
//! curl -H 'X-Api-Key: acme' http://127.0.0.1:3000/usage
//! ask 'long story' 300 & ask 'long story' 300 & sleep 0.2; ask 'tell me' 200; wait
//! ask "long $(yes word | head -n 9900 | tr '\n' ' ')" 300
//! HEADERS=openai cargo run --example llm_gateway
//! HEADERS=anthropic cargo run --example llm_gateway
//! ```
//!
//! The simulated model writes a token each 25 ms: 40 at most, and as many as it may if the prompt
//! says `long`. A key has 60 requests and 10 000 tokens a minute, and two streams at the same time.
//! Its tokens come from a plan of 20 000 a day, and then from 5000 credits.
//!
//! Nobody knows how long an answer becomes, so its reservation grows: the first question is charged two
//! tokens for the prompt, and a slice of 64. One step takes them from the minute and from the plan, or
//! from neither. The headers say that 9934 are left. Each further slice is reserved before the one
//! before is spent. When the stream ends, what is left of the slice comes back, and `/usage` says 9958.
//! Press Ctrl-C in the middle of a stream: only the tokens that were sent by then are charged.
//!
//! Of the next three questions at once, the last one gets 429 with the problem document of the
//! limit `streams`: two streams are open. It is charged nothing. The prompt of 9901 words leaves one
//! slice of the minute. Its stream ends there, with an event that says why, and overspends nothing. With
//! `"wait": 60` in the question it goes on when the minute is over. A prompt of 10 000 words gets 413,
//! because it can never fit.
//!
//! `HEADERS` selects the header format: `ietf`, `openai` or `anthropic`. With `openai` and
//! `anthropic` the headers of the permits have the IETF format beside it.
//!
//! Features: the defaults of `tollgate` and `tollgate-tower`.

use std::{convert::Infallible, env, time::Duration};

use axum::{
    Json, Router,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode, request::Parts},
    response::{IntoResponse, Response, Sse, sse::Event},
    routing::{get, post},
};
use futures_util::{Stream, StreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::{Costs, Limiter, Policy, Quota, permits::Concurrency, reservation::GrowthError};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_metered::MeteredStream;
use tollgate_tower::{
    ConcurrencyLayer, HandlerLimiter, HeaderFormat, Meter, QuotaUnit, RateLimitLayer, Rejected,
    body::guard_response, key::Header,
};

const REQUESTS: Policy = Policy::window_from_first_hit("requests", Quota::per_minute(60));
const TOKENS: Policy = Policy::window_from_first_hit("tokens", Quota::per_minute(10_000));
/// What the tokens are taken from: the plan, and then the credits.
const PLAN: Policy = Policy::fixed_window("plan", Quota::per_day(20_000));
const CREDITS: Policy = Policy::fixed_window("credits", Quota::per_day(5_000));
const STREAMS: Concurrency = Concurrency::new("streams", 2).exact();

const API_KEY: &str = "x-api-key";

/// The header fields of OpenAI and Anthropic have no line for the plan.
const OF_PLAN: QuotaUnit = QuotaUnit::new("plan-tokens");

/// The words that the model repeats, and the number of tokens of a short answer.
const WORDS: [&str; 8] = ["the", "answer", "is", "a", "stream", "of", "many", "tokens"];
const SHORT: usize = 40;
const PAUSE: Duration = Duration::from_millis(25);

/// The tokens that are reserved at a time: those of two seconds.
const SLICE: u64 = 64;

#[derive(Deserialize)]
struct Question {
    prompt: String,
    max_tokens: u64,
    /// The seconds for which the stream waits at the limit, instead of ending.
    #[serde(default)]
    wait: u64,
}

/// Stands for a model: streams tokens, of which each is counted before it is sent. When no slice is
/// left, the last event says so.
fn answer(
    question: &Question,
    meter: &Meter,
) -> impl Stream<Item = Result<Event, Infallible>> + use<> {
    let most = usize::try_from(question.max_tokens).unwrap_or(usize::MAX);
    let most = if question.prompt.contains("long") {
        most
    } else {
        most.min(SHORT)
    };
    // Each event has its tokens beside it.
    let words = stream::iter(WORDS.into_iter().cycle().take(most)).then(|word| async move {
        tokio::time::sleep(PAUSE).await;
        (1, Event::default().data(word))
    });
    let done = stream::iter([(0, Event::default().data("[DONE]"))]);
    MeteredStream::new(words.chain(done), meter, |(tokens, _)| *tokens)
        .wait(Duration::from_secs(question.wait))
        .end_with(|error| Some((0, end(&error))))
        .map(|(_, event)| Ok(event))
}

/// Returns the last event of a stream that the limit has ended.
fn end(error: &GrowthError) -> Event {
    let retry_after = error.retry_after().map(|after| after.as_secs() + 1);
    let reason = json!({ "finish_reason": "rate_limit", "message": error.to_string(), "retry_after": retry_after });
    Event::default().event("end").data(reason.to_string())
}

/// Reserves the prompt and the first slice of the answer. The stream reserves the others.
async fn chat(
    State(limiter): State<HandlerLimiter<Body>>,
    mut request: Parts,
    Json(question): Json<Question>,
) -> Result<Response, Rejected<Body>> {
    // The policies that are named are charged in full. The plan and the credits share the tokens.
    let costs = |requests: u64, tokens: u64| {
        Costs::cascading(tokens)
            .with("tokens", tokens)
            .with("requests", requests)
    };
    let prompt = question.prompt.split_whitespace().count() as u64;
    let key = api_key(&request.headers);
    let (admitted, reservation) = limiter
        .reserve(&mut request, key, costs(1, prompt))
        .growing(costs(0, SLICE))
        .await?;
    let stream = Sse::new(answer(&question, reservation.meter()));
    let response = admitted.complete(stream.into_response());
    Ok(guard_response(response, reservation).into_response())
}

/// Returns what a key has left.
async fn usage(
    State(limiter): State<HandlerLimiter<Body>>,
    headers: HeaderMap,
) -> Result<Json<Value>, StatusCode> {
    let state = limiter
        .limiter()
        .peek(api_key(&headers))
        .await
        .map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    let left = |policy| state.state(policy).map(|state| state.remaining());
    Ok(Json(
        json!({ "requests": left("requests"), "tokens": left("tokens"), "plan": left("plan"), "credits": left("credits") }),
    ))
}

/// Returns the key of a request. The layer has rejected requests without one, and a real service
/// has verified it.
fn api_key(headers: &HeaderMap) -> String {
    headers
        .get(API_KEY)
        .and_then(|key| key.to_str().ok())
        .unwrap_or_default()
        .to_owned()
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let format = match env::var("HEADERS").as_deref() {
        Ok("openai") => HeaderFormat::OpenAi,
        Ok("anthropic") => HeaderFormat::Anthropic,
        Ok("ietf") | Err(env::VarError::NotPresent) => HeaderFormat::Ietf08,
        other => {
            return Err(format!("HEADERS must be ietf, openai or anthropic, got {other:?}").into());
        }
    };
    let limiter = Limiter::new(store()?, [REQUESTS, TOKENS, PLAN, CREDITS]);
    // The estimate is in the body, so the handler reserves it, with the options of this layer.
    let options = RateLimitLayer::builder(limiter.clone(), Header::new(API_KEY))
        .header_format(format)
        .quota_units([
            ("tokens", QuotaUnit::TOKENS),
            ("plan", OF_PLAN),
            ("credits", OF_PLAN),
        ])
        .build();
    // A request takes its permit before it is charged, and holds it until its stream ends.
    let streams = ConcurrencyLayer::new(limiter.concurrency(STREAMS), Header::new(API_KEY));
    let router = Router::new()
        .route("/chat", post(chat).layer(streams))
        .route("/usage", get(usage))
        .with_state(options.handler_limiter::<Body>(limiter));

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!(
        "Listening on {url}: 60 requests and 10000 tokens a minute, two streams at a time, for each X-Api-Key."
    );
    println!("Try:");
    println!(
        "  curl -iN -H 'X-Api-Key: acme' --json '{{\"prompt\": \"tell me\", \"max_tokens\": 200}}' {url}/chat"
    );
    println!("  curl -H 'X-Api-Key: acme' {url}/usage");
    serve(listener, router).await
}
