//! Answers in every header format, from every stack of layers: `GET /FORMAT/STACK`, for the key in
//! `x-key`.
//!
//! The clocks of the stores stand still, so that a wait is the same however slow the client is.

use std::time::{Duration, SystemTime};

use axum::{
    Router,
    http::{Response, StatusCode},
    routing::get,
};
use tollgate::{Limiter, MemoryStore, Policy, PolicySet, Quota, store::Clock};
use tollgate_tower::{
    HeaderFormat, QuotaUnit, RateLimitLayer,
    key::{Global, Header},
};

use super::formats;

/// One unit each eight seconds, and one each second: the waits of both differ in every format.
const SLOW: Policy = Policy::token_bucket("slow", Quota::one_every(Duration::from_secs(8)));
const FAST: Policy = Policy::token_bucket("fast", Quota::one_every(Duration::from_secs(1)));
const MIDDLE: Policy = Policy::sliding_log("middle", Quota::new(2, Duration::from_secs(5)));

const DAILY: Policy = Policy::fixed_window("daily", Quota::per_day(100));

/// The wait is a little above eight seconds. A time of day that is rounded twice is a second late.
const FRACTION: Policy =
    Policy::token_bucket("fraction", Quota::one_every(Duration::from_millis(8010)));

/// The burst is above the amount.
const TALL: Policy = Policy::token_bucket("tall", Quota::per_minute(2).with_burst(5));

/// A policy of each unit that a header format knows. The second request is denied by the first
/// policy.
const UNITS: [Policy; 4] = [
    SLOW,
    Policy::token_bucket("tokens", Quota::per_minute(1000)),
    Policy::token_bucket("input", Quota::per_minute(800)),
    Policy::token_bucket("output", Quota::per_minute(200)),
];

/// Returns the name of each stack, and its router. The last layer is the outermost one.
fn stacks(format: HeaderFormat) -> Vec<(&'static str, Router)> {
    let two_of = |policy: &Policy| {
        let quota = policy
            .quota()
            .try_with_burst(2)
            .expect("a burst of two is valid");
        Policy::try_new(policy.name(), policy.algorithm(), quota).expect("the policy is valid")
    };
    vec![
        ("one", plain().layer(layer(format, SLOW))),
        ("burst-above-amount", plain().layer(layer(format, TALL))),
        ("fraction", plain().layer(layer(format, FRACTION))),
        ("set", plain().layer(layer(format, [SLOW, DAILY]))),
        ("units", plain().layer(with_units(format))),
        (
            "strict-outside",
            plain()
                .layer(layer(format, FAST))
                .layer(layer(format, two_of(&SLOW))),
        ),
        (
            "strict-inside",
            plain()
                .layer(layer(format, SLOW))
                .layer(layer(format, two_of(&FAST))),
        ),
        (
            "three",
            plain()
                .layer(layer(format, FAST))
                .layer(layer(format, MIDDLE))
                .layer(layer(format, two_of(&SLOW))),
        ),
        (
            "one-name-twice",
            plain()
                .layer(layer(format, SLOW))
                .layer(everybody(format, two_of(&SLOW))),
        ),
        (
            "service-with-seconds",
            of_service(|| vec![("retry-after", "3".to_owned())])
                .layer(layer(format, two_of(&SLOW))),
        ),
        (
            "service-with-a-near-date",
            of_service(|| dated(3)).layer(layer(format, two_of(&SLOW))),
        ),
        (
            "service-with-a-far-date",
            of_service(|| dated(3600)).layer(layer(format, two_of(&SLOW))),
        ),
        (
            "service-with-fields",
            of_service(foreign_fields).layer(layer(format, two_of(&SLOW))),
        ),
        ("cost-never-fits", plain().layer(costly(format))),
    ]
}

type Fields = Vec<(&'static str, String)>;

/// Returns the fields of a service that limits by itself, in the formats of revision 07 and of many
/// services.
fn foreign_fields() -> Fields {
    let fields = [
        ("ratelimit", "limit=1, remaining=0, reset=3"),
        ("ratelimit-policy", "1;w=3"),
        ("ratelimit-limit", "1"),
        ("ratelimit-remaining", "0"),
        ("ratelimit-reset", "3"),
        ("x-ratelimit-limit", "1"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "3"),
    ];
    fields.map(|(name, value)| (name, value.to_owned())).into()
}

/// Returns a `Retry-After` with the date of this many seconds from now.
fn dated(seconds: u64) -> Fields {
    let date = SystemTime::now() + Duration::from_secs(seconds);
    vec![("retry-after", httpdate::fmt_http_date(date))]
}

/// Returns a router with all answers.
pub(crate) fn router() -> Router {
    let all = formats().into_iter().flat_map(|(name, format)| {
        stacks(format)
            .into_iter()
            .map(move |(stack, router)| (format!("/{name}/{stack}"), router))
    });
    all.fold(Router::new(), |router, (path, stack)| {
        router.nest(&path, stack)
    })
}

/// Returns the names of the stacks.
pub(crate) fn stack_names() -> Vec<&'static str> {
    stacks(HeaderFormat::None)
        .into_iter()
        .map(|(name, _)| name)
        .collect()
}

fn plain() -> Router {
    Router::new().route("/", get(|| async { "hello\n" }))
}

/// Returns a service that refuses every request itself, with these fields.
fn of_service(fields: fn() -> Fields) -> Router {
    let refuse = move || async move {
        let mut response = Response::new("the service refuses\n".to_owned());
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        for (name, value) in fields() {
            response
                .headers_mut()
                .append(name, value.parse().expect("the value is valid"));
        }
        response
    };
    Router::new().route("/", get(refuse))
}

fn limiter(policies: impl Into<PolicySet>) -> Limiter {
    Limiter::new(
        MemoryStore::builder()
            .clock(Clock::manual(1_800_000_000_000_000))
            .build(),
        policies,
    )
}

fn layer(format: HeaderFormat, policies: impl Into<PolicySet>) -> RateLimitLayer<Header> {
    RateLimitLayer::builder(limiter(policies), Header::new("x-key"))
        .header_format(format)
        .build()
}

/// Tells the unit of each policy.
fn with_units(format: HeaderFormat) -> RateLimitLayer<Header> {
    let units = [
        ("tokens", QuotaUnit::TOKENS),
        ("input", QuotaUnit::INPUT_TOKENS),
        ("output", QuotaUnit::OUTPUT_TOKENS),
    ];
    let builder = RateLimitLayer::builder(limiter(UNITS), Header::new("x-key"));
    builder.header_format(format).quota_units(units).build()
}

/// Limits all requests together: the same policy under another key.
fn everybody(format: HeaderFormat, policies: impl Into<PolicySet>) -> RateLimitLayer<Global> {
    RateLimitLayer::builder(limiter(policies), Global)
        .header_format(format)
        .build()
}

fn costly(format: HeaderFormat) -> RateLimitLayer<Header> {
    let cost = tollgate::Cost::new(7);
    RateLimitLayer::builder(limiter(SLOW), Header::new("x-key"))
        .header_format(format)
        .cost(move |_| cost)
        .build()
}
