//! Policies that are replaced while requests run.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use http::StatusCode;
use tollgate::{Limiter, LimiterHandle, Policy, Quota};
use tollgate_tower::{RateLimitLayer, key::Global};
use tower::{Layer, ServiceExt};

use crate::support::*;

#[tokio::test]
async fn headers_and_documents_are_told_from_the_new_policies_at_once() {
    let handle = LimiterHandle::new(Limiter::new(still(), TWO));
    let layer = RateLimitLayer::new(handle.clone(), Global);
    assert_eq!(
        header(&send(&layer, request()).await, "ratelimit-policy"),
        Some(r#""two";q=2;w=60"#)
    );
    handle.replace_policies([TWO.with_quota(Quota::per_minute(3)).unwrap(), HOURLY]);
    let response = send(&layer, request()).await;
    assert_eq!(
        header(&response, "ratelimit-policy"),
        Some(r#""two";q=3;w=60, "hourly";q=3;w=3600"#)
    );
    // One unit was spent under the old quota.
    assert_eq!(
        header(&response, "ratelimit"),
        Some(r#""two";r=1;t=20, "hourly";r=2;t=3600"#)
    );
    handle.replace_policies(HOURLY.with_quota(Quota::per_hour(1)).unwrap());
    let denied = send(&layer, request()).await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(
        denied.body().contains(r#""violated-policies":["hourly"]"#),
        "{}",
        denied.body()
    );
    assert_eq!(
        header(&denied, "ratelimit-policy"),
        Some(r#""hourly";q=1;w=3600"#)
    );
}

/// Each response is told from one policy set: the name and the quota in its headers belong
/// together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_response_is_a_mixture_of_two_sets_while_policies_change() {
    const SWAPS: u64 = 2_000;
    let set = |number: u64| {
        let policy = Policy::try_new(
            format!("set-{}", number % 7),
            tollgate::Algorithm::FixedWindow,
            Quota::per_day(1_000_000 + number % 7),
        );
        policy.unwrap()
    };
    let handle = LimiterHandle::new(Limiter::new(still(), set(0)));
    let service = RateLimitLayer::new(handle.clone(), Global).layer(hello());
    let is_over = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let (service, is_over) = (service.clone(), Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut seen = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    let Ok(response) = service.clone().oneshot(request()).await;
                    assert_eq!(response.status(), StatusCode::OK);
                    let policy = header(&response, "ratelimit-policy").unwrap();
                    let number = policy.strip_prefix("\"set-").unwrap()[..1]
                        .parse::<u64>()
                        .unwrap();
                    assert_eq!(
                        policy,
                        format!(r#""set-{number}";q={};w=86400"#, 1_000_000 + number)
                    );
                    assert!(
                        header(&response, "ratelimit")
                            .unwrap()
                            .starts_with(&format!("\"set-{number}\";r="))
                    );
                    seen += 1;
                    tokio::task::yield_now().await;
                }
                seen
            })
        })
        .collect();
    for swap in 1..=SWAPS {
        handle.replace_policies(set(swap));
        tokio::task::yield_now().await;
    }
    is_over.store(true, Ordering::Relaxed);
    let mut seen = 0;
    for task in tasks {
        seen += task.await.unwrap();
    }
    let mut charged = 0;
    for number in 0..7 {
        let limiter = handle.load().with_policies(set(number));
        charged += 1_000_000 + number - remaining(&limiter, "all", &format!("set-{number}")).await;
    }
    assert_eq!(charged, seen, "each request is charged once");
}
