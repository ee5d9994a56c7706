//! A case about limits that operators see.

use tollgate::{Enforcement, Limiter, Policy, Quota};
use tollgate_test_support::{Deployment, PATIENCE};
use tollgate_tests::{RedisServer, Reply, wait};

const HOURLY: Policy = Policy::token_bucket("hourly", Quota::per_hour(5));

pub(super) async fn limits_are_shown_at_one_key_and_shares_reach_all_replicas(
    deployment: &Deployment,
) {
    let enforcements = [0, 100].map(Enforcement::share);
    let limiters = enforcements.each_ref().map(|enforcement| {
        let store = deployment.builder("shown").build().expect("a store");
        Limiter::builder(store)
            .policies(HOURLY)
            .published_with(enforcement.clone())
            .build()
    });
    let masters = deployment.masters();
    // The other masters of a cluster answer MOVED.
    let ask = |words: &[&str]| -> Reply {
        let replies = masters
            .iter()
            .map(|master: &&RedisServer| master.command(words));
        replies
            .into_iter()
            .find(|reply| !reply.is_error())
            .expect("one master has the slot")
    };
    wait::until_async("the limits of both", PATIENCE, async || {
        let shown = ask(&["ZRANGE", "shown:{replicas}:limits", "0", "-1"]);
        let mut texts: Vec<_> = shown
            .items()
            .iter()
            .map(|text| text.text().to_owned())
            .collect();
        texts.sort();
        texts
            == [0, 100].map(|share| {
                format!("hourly=5/hour, token_bucket; enforced {share}%; limiter hourly")
            })
    })
    .await;
    ask(&["HSET", "shown:{replicas}:shares", "hourly", "30%"]);
    for enforcement in &enforcements {
        wait::until_async("the share of the operator", PATIENCE, async || {
            enforcement.percent() == 30
        })
        .await;
    }
    drop(limiters);
}
