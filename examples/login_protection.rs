//! Locks out failed log-ins, by address in a layer and by user name in the handler. Successful
//! log-ins are not counted.
//!
//! ```text
//! cargo run --example login_protection
//! for i in 1 2 3 4; do
//!   curl -i http://127.0.0.1:3000/login --json '{"user": "anna", "password": "guess"}'
//! done
//! curl -i http://127.0.0.1:3000/login --json '{"user": "berta", "password": "secret"}'
//! ```
//!
//! Three wrong passwords for `anna` get 401, the fourth attempt gets 429 with `Retry-After`, and
//! nothing else. The lockout takes five minutes, the next one ten, and so on up to a day. A right
//! password before forgives the wrong ones. `ANNA` is the same user, and `nobody`, who does not
//! exist, gets the same answers. Ten wrong passwords from one address, for any users, also lock it
//! out, and so do thirty for one user from all addresses within an hour. A right password costs
//! nothing, so `berta` can log in as often as she likes, and thirty log-ins of one office at once
//! all pass.
//!
//! A right password forgives the user and not the address (`clear_on` is an option of the handler's
//! layer alone). Otherwise who has one account could log in to it now and then, and guess the
//! passwords of all others. The limit of a user from all addresses is a window and not a lockout,
//! so that an attacker locks out nobody for a day.
//!
//! A layer sees the head of a request, so it limits by address, before the body is read. The user
//! name is in the body, so the handler limits by it, with a [`HandlerLimiter`] that has the options
//! of a layer. Both answer alike. The password is in the body too, because query strings end up in
//! access logs. Redis holds a keyed digest of the name and not the name itself. Set `KEY_SECRET` to
//! 32 random bytes, the same in all instances.
//!
//! An attempt is charged after its response (`charge_after`). Attempts that are under way at the
//! same time do not see each other, so `n` of them at once can exceed a limit by `n - 1`.
//! `charge_on` keeps the limit exactly: it charges every attempt at once and refunds the right
//! ones, and so denies right log-ins while too many others are under way.
//!
//! The answers name no policy and count nothing down (`HeaderFormat::None`, `Empty`): an attacker
//! would read from the fields which limit to go around, and how many guesses are left before the
//! next user. A person needs `Retry-After` alone.
//!
//! While Redis is away, log-ins get 503 (`Outage::Closed`), because unlimited guesses would be
//! worse than no log-ins. A log-in waits one second for a decision and not 50 ms, so that a machine
//! which is busy for a moment turns nobody away. While Redis is well, no log-in waits; when it is
//! silent, the first three do.
//!
//! Features: the defaults of `tollgate` and `tollgate-tower`.

use std::{env, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Body,
    extract::{DefaultBodyLimit, State},
    http::{StatusCode, request::Parts},
    response::{IntoResponse, Response},
    routing::post,
};
use tollgate::{Key, KeySecret, Limiter, Outage, Policy, PolicySet, Quota, Store};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{
    HandlerLimiter, HeaderFormat, RateLimitLayer, Rejected,
    key::{KeyExtractor, PeerIp},
    rejection::Empty,
};

/// The times of the first lockout and of the longest.
const LOCK: [Duration; 2] = [Duration::from_secs(300), Duration::from_secs(86_400)];

/// Locks out guesses for one user from one address. With the address in the key, a client cannot
/// lock out users elsewhere with a few guesses.
const GUESSES: Policy = Policy::lockout(
    "guesses",
    Quota::new(3, Duration::from_secs(300)),
    LOCK[0],
    LOCK[1],
)
.at_level(2);

/// Limits the guesses for one user from all addresses.
const USER: Policy = Policy::window_from_first_hit("guesses-user", Quota::per_hour(30)).at_level(1);

/// Locks out guesses for all users from one address.
const ADDRESS: Policy = Policy::lockout(
    "guesses-address",
    Quota::new(10, Duration::from_secs(300)),
    LOCK[0],
    LOCK[1],
);

/// Limits failed log-ins: by address before the body is read, and by user in the handler.
fn failed_log_ins(store: &Arc<dyn Store>) -> (RateLimitLayer<PeerIp, Empty>, HandlerLimiter<Body>) {
    let closed = |policies: PolicySet| {
        let limiter = Limiter::builder(store.clone()).policies(policies);
        limiter
            .on_outage(Outage::Closed)
            .deadline(Duration::from_secs(1))
            .build()
    };
    let failures = |limiter| {
        let layer = RateLimitLayer::builder(limiter, PeerIp).header_format(HeaderFormat::None);
        layer
            .charge_after(|status| status == StatusCode::UNAUTHORIZED)
            .respond_with(Empty)
    };
    let users = closed([GUESSES, USER].into());
    let by_user = failures(users.clone())
        .clear_on(|status| status.is_success())
        .build();
    (
        failures(closed(ADDRESS.into())).build(),
        by_user.handler_limiter(users),
    )
}

#[derive(serde::Deserialize)]
struct LogIn {
    user: String,
    password: String,
}

#[derive(Clone)]
struct App {
    guesses: HandlerLimiter<Body>,
    secret: KeySecret,
}

async fn log_in(
    State(app): State<App>,
    mut request: Parts,
    Json(LogIn { user, password }): Json<LogIn>,
) -> Result<Response, Rejected<Body>> {
    // Spellings of one name are one key, in the way in which the look-up below compares names.
    let user = user.trim().to_lowercase();
    let Ok(Some(address)) = PeerIp.extract(&request) else {
        return Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response());
    };
    let key = Key::secret(&user, &app.secret).child(address);
    let attempt = app.guesses.check(&mut request, key).await?;
    let response = match is_right(&user, &password) {
        true => format!("welcome, {user}\n").into_response(),
        false => (StatusCode::UNAUTHORIZED, "wrong user or password\n").into_response(),
    };
    // Adds the rate limit headers, and charges the attempt if the password was wrong.
    Ok(attempt.complete(response))
}

/// Returns whether a user has this password. An unknown user takes the same way as a known one, so
/// that the time of the answer does not show which users exist. A real service compares slow hashes
/// of passwords, such as those of Argon2.
fn is_right(user: &str, password: &str) -> bool {
    const USERS: [(&str, &str); 2] = [("anna", "secret"), ("berta", "secret")];
    let known = USERS.iter().find(|(name, _)| *name == user);
    let (_, expected) = known.unwrap_or(&("", "no password"));
    let is_equal = password.len() == expected.len()
        && password
            .bytes()
            .zip(expected.bytes())
            .fold(0, |differing, (a, b)| differing | (a ^ b))
            == 0;
    is_equal & known.is_some()
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let (by_address, guesses) = failed_log_ins(&store()?);
    let secret =
        KeySecret::new(env::var("KEY_SECRET").unwrap_or_else(|_| "not for production".to_owned()));
    let router = Router::new()
        .route("/login", post(log_in))
        .layer(DefaultBodyLimit::max(4096))
        .route_layer(by_address)
        .with_state(App { guesses, secret });

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!(
        "Listening on {url}; failed log-ins are limited to 3 per 5 minutes for each user and address,"
    );
    println!("to 10 per 5 minutes for each address, and to 30 per hour for each user.");
    println!("The users are anna and berta, and the password is `secret`.");
    println!("Try:");
    println!(
        "  for i in 1 2 3 4; do curl -i {url}/login --json '{{\"user\": \"anna\", \"password\": \"guess\"}}'; done"
    );
    serve(listener, router).await
}
