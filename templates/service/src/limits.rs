//! The limits of each plan.

use std::sync::Arc;

use axum::{extract::Request, middleware::Next, response::Response};
use tollgate::{Key, Limiter, Policy, PolicySet, Quota, Store, limiter::DeniedKeys};
use tollgate_tower::{
    KeyExtractor, RateLimitLayer, TieredLimiters,
    key::{FromExtension, PeerIp},
};

// All plans have their policies under the same names: an account that changes its plan keeps what
// it has spent.
const FREE: Policy = Policy::token_bucket("requests", Quota::per_minute(5));
const PRO: [Policy; 2] =
    [Policy::token_bucket("requests", Quota::per_second(10)), Policy::fixed_window("daily", Quota::per_day(50_000))];
const ANONYMOUS: Policy = Policy::token_bucket("anonymous", Quota::per_minute(2));

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

/// Returns the layer that limits each account by its plan, and requests without an account by their
/// address.
///
/// Behind a proxy, replace `PeerIp` by `ForwardedIp`. Otherwise all clients share the limit of the
/// proxy.
pub(crate) fn layer(store: &Arc<dyn Store>, denied_keys: &DeniedKeys) -> RateLimitLayer<impl KeyExtractor + use<>> {
    // The command `tollgate` finds published limits in Redis. The names of the limiters are those
    // of the plans.
    let limiter = |plan: &'static str, policies: PolicySet| {
        let builder = Limiter::builder(store.clone()).denied_keys(denied_keys.clone());
        builder.policies(policies).name(plan).published().build()
    };
    let tiers = TieredLimiters::new(limiter("anonymous", ANONYMOUS.into()))
        .tier(Plan::Free, limiter("free", FREE.into()))
        .tier(Plan::Pro, limiter("pro", PRO.into()))
        .exempt(Plan::Staff);
    RateLimitLayer::new(tiers, FromExtension::<Account>::optional().or(PeerIp))
}

/// Stores the account and its plan in the request.
///
/// Replace it by your authentication. An API key that is not known must not become a key of the
/// limiter: inventing API keys would then give fresh limits.
pub(crate) async fn authenticate(mut request: Request, next: Next) -> Response {
    let api_key = request.headers().get("x-api-key").and_then(|value| value.to_str().ok()).unwrap_or_default();
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
