//! Limits each account, which a session of tower-sessions names.
//!
//! ```text
//! cargo run --example sessions
//! curl -i -c jar -X POST 'http://127.0.0.1:3000/login?account=ann'
//! for i in $(seq 6); do curl -i -b jar http://127.0.0.1:3000/; done
//! ```
//!
//! The sixth request gets 429. A second log-in as `ann` gets the same answer, because the key is
//! the account and not the session: whoever throws a cookie away gains nothing. Requests without an
//! account are limited by their address, and so are log-ins.
//!
//! A layer between the sessions and the limit reads the account once, and stores it in the
//! request's extensions. The sessions are in the process here; a service keeps them in a store that
//! all instances share.
//!
//! Features: the defaults of `tollgate` and `tollgate-tower`.

use axum::{
    Router,
    extract::{Query, Request},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::StatusCode;
use serde::Deserialize;
use tollgate::{Key, Limiter, Policy, Quota};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{
    KeyExtractor, RateLimitLayer,
    key::{FromExtension, PeerIp},
};
use tower_sessions::{MemoryStore, Session, SessionManagerLayer};

/// The name under which a session has its account.
const ACCOUNT: &str = "account";

const REQUESTS: Policy = Policy::token_bucket("requests", Quota::per_minute(5));
const LOGINS: Policy = Policy::token_bucket("logins", Quota::per_minute(20));

#[derive(Clone, Deserialize)]
struct Account {
    account: String,
}

impl From<Account> for Key {
    fn from(Account { account }: Account) -> Self {
        Self::new(account)
    }
}

/// Begins a session. A real service verifies a password first.
async fn login(session: Session, Query(Account { account }): Query<Account>) -> Response {
    match session.insert(ACCOUNT, account).await {
        Ok(()) => "hello\n".into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Stores the account of the session in the request. A session that cannot be read names nobody.
async fn account(session: Session, mut request: Request, next: Next) -> Response {
    if let Ok(Some(account)) = session.get(ACCOUNT).await {
        request.extensions_mut().insert(Account { account });
    }
    next.run(request).await
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let store = store()?;
    let limit = |policy, key| RateLimitLayer::new(Limiter::new(store.clone(), policy), key);
    let router = Router::new()
        .route("/", get(|| async { "welcome\n" }))
        .route_layer(limit(
            REQUESTS,
            FromExtension::<Account>::optional().or(PeerIp).boxed(),
        ))
        // The last layer is the outermost one.
        .route_layer(from_fn(account))
        .route("/login", post(login).layer(limit(LOGINS, PeerIp.boxed())))
        .layer(SessionManagerLayer::new(MemoryStore::default()).with_secure(false));
    let listener = listen().await?;
    let address = listener.local_addr()?;
    println!("Try: curl -i -c jar -X POST 'http://{address}/login?account=ann'");
    serve(listener, router).await
}
