//! The layer `tower::limit::RateLimitLayer`, by the crate `tower`.

use std::{convert::Infallible, future::ready, time::Duration};

use tollgate::{Policy, Quota};
use tower::{Layer, Service, limit::RateLimitLayer, service_fn};

use super::{SECOND, assert_same_admissions, in_process, trace};

#[tokio::test(start_paused = true)]
async fn a_window_from_the_first_hit_admits_at_once_what_the_layer_of_tower_admits_at_once() {
    let policy = Policy::window_from_first_hit("all", Quota::new(5, Duration::from_secs(2)));
    // A poll of a second, and pauses: tokio counts whole milliseconds.
    let gaps = [0, 0, 1_000, SECOND / 4, SECOND, 2 * SECOND, 5 * SECOND];
    for seed in 0..20 {
        let mut theirs = RateLimitLayer::new(5, Duration::from_secs(2))
            .layer(service_fn(|(): ()| ready(Ok::<_, Infallible>(()))));
        let mut admitted = Vec::new();
        let times = trace(seed, 1_000, &gaps);
        let mut last = 0;
        for &now in &times {
            tokio::time::advance(Duration::from_micros(now - last)).await;
            last = now;
            // A caller that would have to wait gives up.
            let is_ready = tokio::time::timeout(
                Duration::ZERO,
                std::future::poll_fn(|cx| theirs.poll_ready(cx)),
            )
            .await;
            if is_ready.is_ok() {
                theirs.call(()).await.expect("it cannot fail");
            }
            admitted.push(is_ready.is_ok());
        }
        let mut admitted = admitted.into_iter();
        assert_same_admissions(
            &times,
            move |_| admitted.next().expect("a decision for each"),
            in_process(policy.clone()),
        );
    }
}
