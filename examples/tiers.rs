//! Selects the policies of a request by the plan of its account: free, pro or staff.
//!
//! ```text
//! cargo run --example tiers
//! for i in $(seq 6); do curl -i -H 'X-Api-Key: free-1' http://127.0.0.1:3000/; done
//! curl -i -H 'X-Api-Key: pro-1' http://127.0.0.1:3000/
//! curl -i -H 'X-Api-Key: staff-1' http://127.0.0.1:3000/
//! for i in $(seq 3); do curl -i http://127.0.0.1:3000/; done
//! ```
//!
//! The sixth request of `free-1` gets 429, and so does the third request without a key. `pro-1` has
//! two policies. `staff-1` is not limited.
//!
//! An outer layer authenticates the request and stores the account and its plan in the request's
//! extensions. The plan selects the policies, and the account is the key. An unknown API key never
//! becomes a key of the limiter, so inventing API keys gains nothing. Requests without an account
//! are limited by their address.
//!
//! Features: the defaults of `tollgate` and `tollgate-tower`.

use axum::{
    Router, extract::Request, middleware, middleware::Next, response::Response, routing::get,
};
use tollgate::{Key, Limiter, Policy, Quota};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{
    Decisions, KeyExtractor, RateLimitLayer, TieredLimiters,
    key::{FromExtension, PeerIp},
};

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Plan {
    Free,
    Pro,
    Staff,
}

#[derive(Clone)]
struct Account(String);

impl From<Account> for Key {
    fn from(Account(id): Account) -> Self {
        Self::new(id)
    }
}

const ANONYMOUS: Policy = Policy::token_bucket("anonymous", Quota::per_minute(2));
const FREE: Policy = Policy::token_bucket("free", Quota::per_minute(5));
const PRO: [Policy; 2] = [
    Policy::token_bucket("pro", Quota::per_second(10)),
    Policy::fixed_window("pro-daily", Quota::per_day(50_000)),
];

/// Stores the account and its plan in the request. A real service reads them from its database.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let api_key = request
        .headers()
        .get("x-api-key")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let plan = match api_key.split('-').next() {
        Some("free") => Some(Plan::Free),
        Some("pro") => Some(Plan::Pro),
        Some("staff") => Some(Plan::Staff),
        _ => None,
    };
    if let Some(plan) = plan {
        let account = Account(api_key.to_owned());
        request.extensions_mut().insert(plan);
        request.extensions_mut().insert(account);
    }
    next.run(request).await
}

async fn home(decisions: Option<Decisions>) -> String {
    match decisions
        .as_ref()
        .and_then(|decisions| decisions.iter().next()?.strictest())
    {
        Some(state) => format!(
            "policy {}: {} left\n",
            state.policy().name(),
            state.remaining()
        ),
        None => "no limit\n".to_owned(),
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let store = store()?;
    let tiers = TieredLimiters::new(Limiter::new(store.clone(), ANONYMOUS))
        .tier(Plan::Free, Limiter::new(store.clone(), FREE))
        .tier(Plan::Pro, Limiter::new(store, PRO))
        .exempt(Plan::Staff);
    let key = FromExtension::<Account>::optional().or(PeerIp);
    let limit = RateLimitLayer::builder(tiers, key)
        .expose_decisions(true)
        .build();
    // The layer that is added last is the outermost: it runs before the limit reads the account.
    let router = Router::new()
        .route("/", get(home))
        .layer(limit)
        .layer(middleware::from_fn(authenticate));

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!(
        "Listening on {url}, limited for each account by its plan: free 5 per minute, pro 10 per second and 50000 per day,"
    );
    println!("staff without a limit; requests without an account 2 per minute for each address.");
    println!("Try:");
    println!(
        "  for key in free-1 pro-1 staff-1 nobody; do curl -i -H \"X-Api-Key: $key\" {url}/; done"
    );
    serve(listener, router).await
}
