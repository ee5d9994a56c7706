//! A log-in where only failures count.
//!
//! ```text
//! cargo run --example login_protection
//! curl -i -X POST 'http://127.0.0.1:3000/login?user=anna&password=guess'
//! curl -i -X POST 'http://127.0.0.1:3000/login?user=anna&password=secret'
//! ```
//!
//! Three wrong passwords for one user from one address, or ten from one address for whatever users, and the log-in
//! answers 429; the right password costs nothing, however often it is used. While Redis is away the log-in answers 503
//! (`Outage::Closed`): better no log-in than unlimited guesses.

use std::time::Duration;

use axum::{Router, extract::Query, http::StatusCode, routing::post};
use tollgate::{Key, Limiter, Outage, Policy, Quota};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{
    RateLimitLayer,
    key::{KeyError, PeerIp},
    key_fn,
};

const GUESSES: Policy = Policy::window_from_first_hit("guesses", Quota::new(3, Duration::from_secs(300)));
const ADDRESS: Policy = Policy::window_from_first_hit("guesses-address", Quota::new(10, Duration::from_secs(300)));

#[derive(serde::Deserialize)]
struct LogIn {
    user: String,
    password: String,
}

async fn log_in(Query(LogIn { user, password }): Query<LogIn>) -> (StatusCode, String) {
    match password.as_str() {
        "secret" => (StatusCode::OK, format!("welcome, {user}\n")),
        _ => (StatusCode::UNAUTHORIZED, "no\n".to_owned()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let store = store()?;
    let closed = |policy| Limiter::builder(store.clone()).policies(policy).on_outage(Outage::Closed).build();
    let is_guess = |status| status == StatusCode::UNAUTHORIZED;

    // A key per user and address: nobody locks somebody else out. The name is read as the handler reads it, so that
    // `user=%61nna` is no way around.
    let user = key_fn(|parts| match Query::<LogIn>::try_from_uri(&parts.uri) {
        Ok(Query(LogIn { user, .. })) => Ok(Key::new(user.to_lowercase())),
        Err(_) => Err(KeyError::missing("user and password are missing")),
    });
    let guesses = RateLimitLayer::builder(closed(GUESSES), (PeerIp::new(), user)).charge_on(is_guess).build();
    let address = RateLimitLayer::builder(closed(ADDRESS), PeerIp::new()).charge_on(is_guess).build();
    let router = Router::new().route("/login", post(log_in)).route_layer(guesses).route_layer(address);

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("Listening on {url}; failed log-ins are limited to 3 per 5 minutes, user and address,");
    println!("and to 10 per 5 minutes and address. The password is `secret`.");
    println!("Try:");
    println!("  for i in $(seq 4); do curl -i -X POST '{url}/login?user=anna&password=guess'; done");
    serve(listener, router).await
}
