//! Limiters that are looked up for each request.

mod live;
mod options;
mod tenants;
mod tiers;

use std::time::Duration;

use tollgate::{Limiter, LimiterHandle, Policy, PolicySet, Store, tenants::TenantLimiters};
use tollgate_tower::LimiterSource;

use crate::support::*;

/// Stands in the default limiter of sources that have to find another one.
const WRONG: Policy = ONE;

/// Returns every way to limit a request by these policies on a store, with its name. The first one
/// is fixed.
fn sources(
    store: &(impl Store + Clone),
    policies: impl Into<PolicySet>,
) -> [(&'static str, LimiterSource); 6] {
    let policies = policies.into();
    let limiter = Limiter::new(store.clone(), policies.clone());
    let default = || Limiter::new(store.clone(), WRONG);
    let fetch = |latency| {
        let policies = policies.clone();
        move |_: u64| {
            let policies = policies.clone();
            async move {
                tokio::time::sleep(latency).await;
                Ok::<_, String>(policies)
            }
        }
    };
    let tenants = |latency| {
        LimiterSource::by_tenant(TenantLimiters::new(default(), fetch(latency)), |_| Some(7))
    };
    let of_function = policies.clone();
    [
        ("fixed", limiter.clone().into()),
        ("handle", LimiterHandle::new(limiter.clone()).into()),
        (
            "policies of a function",
            LimiterSource::from_fn(default(), move |_| of_function.clone()),
        ),
        (
            "limiter of a function",
            LimiterSource::from_fn(default(), move |_| limiter.clone()),
        ),
        ("tenant", tenants(Duration::ZERO)),
        (
            "tenant that is fetched for a while",
            tenants(Duration::from_millis(10)),
        ),
    ]
}
