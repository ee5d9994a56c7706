//! One of several processes that share their limits at one Redis.

use std::{future, time::Duration};

use axum::{Router, routing::get};
use tollgate::{Limiter, Outage, Policy, Quota};
use tollgate_tower::{RateLimitLayer, key::Global};

use super::Hosted;

/// The first argument of this program when it is a replica. The second one is the URL of Redis.
pub(crate) const PART: &str = "replica";

/// A check that Redis decides too late is an error here, so that no replica admits a request by
/// itself.
const DEADLINE: Duration = Duration::from_secs(5);

const POLICIES: [(&str, Policy); 2] = [
    (
        "/bucket",
        Policy::token_bucket("bucket", Quota::per_second(50).with_burst(20)),
    ),
    (
        "/window",
        Policy::fixed_window("window", Quota::per_second(50)),
    ),
];

/// Serves until the process is killed.
pub(crate) fn serve(url: &str) {
    let store = tollgate::open(url).expect("the caller passes a valid URL");
    let router = POLICIES
        .into_iter()
        .fold(Router::new(), |router, (path, policy)| {
            let limiter = Limiter::builder(store.clone())
                .policies(policy)
                .on_outage(Outage::Closed)
                .deadline(DEADLINE)
                .build();
            router.route(
                path,
                get(|| async { "hello\n" }).layer(RateLimitLayer::new(limiter, Global)),
            )
        });
    let server = Hosted::start(router);
    println!("Listening on {}", server.address());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime can be made");
    runtime.block_on(future::pending::<()>());
}
