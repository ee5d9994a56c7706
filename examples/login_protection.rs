//! Limits failed log-ins. Successful log-ins are not counted.
//!
//! ```text
//! cargo run --example login_protection
//! for i in $(seq 4); do curl -i -X POST 'http://127.0.0.1:3000/login?user=anna&password=guess'; done
//! curl -i -X POST 'http://127.0.0.1:3000/login?user=berta&password=secret'
//! ```
//!
//! Three wrong passwords for `anna` get 401, the fourth attempt gets 429. Ten wrong passwords from one address, for any users,
//! also lead to 429. A right password costs nothing, so `berta` can log in as often as she likes, and thirty log-ins of one
//! office at once all pass.
//!
//! An attempt is charged after its response (`charge_after`). Attempts that are under way at the same time do not see each
//! other, so `n` of them at once can exceed a limit by `n - 1`. `charge_on` keeps the limit exactly: it charges every attempt at
//! once and refunds the right ones, and so denies right log-ins while too many others are under way.
//!
//! While Redis is away, log-ins get 503 (`Outage::Closed`), because unlimited guesses would be worse than no log-ins.

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
        _ => (StatusCode::UNAUTHORIZED, "wrong password\n".to_owned()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let store = store()?;
    // Without a decision nobody can log in, so a log-in waits longer for one than other requests do.
    let closed = |policy| {
        Limiter::builder(store.clone())
            .policies(policy)
            .on_outage(Outage::Closed)
            .deadline(Duration::from_secs(1))
            .build()
    };
    let is_wrong_password = |status| status == StatusCode::UNAUTHORIZED;

    // The key contains the address, so that a client cannot lock out users at other addresses. The name is decoded in the
    // same way as in the handler, so that `user=%61nna` counts for `anna`.
    let user = key_fn(|parts| match Query::<LogIn>::try_from_uri(&parts.uri) {
        Ok(Query(LogIn { user, .. })) => Ok(Key::new(user.to_lowercase())),
        Err(_) => Err(KeyError::missing("user and password are missing")),
    });
    let guesses =
        RateLimitLayer::builder(closed(GUESSES), (PeerIp::new(), user)).charge_after(is_wrong_password).build();
    let address = RateLimitLayer::builder(closed(ADDRESS), PeerIp::new()).charge_after(is_wrong_password).build();
    let router = Router::new().route("/login", post(log_in)).route_layer(guesses).route_layer(address);

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("Listening on {url}; failed log-ins are limited to 3 per 5 minutes for each user and address,");
    println!("and to 10 per 5 minutes for each address. The password is `secret`.");
    println!("Try:");
    println!("  for i in $(seq 4); do curl -i -X POST '{url}/login?user=anna&password=guess'; done");
    serve(listener, router).await
}
