//! The content of the cache, and the times at which it asks the source.

use tokio::{task::JoinSet, time::advance};
use tollgate::{Policy, Quota, limiter::Selection, tenants::TenantLimiters};
use tollgate_test_support::decided;

use crate::source::{API, LATENCY, MINUTE, Mood, Source, amount, amount_at_once};

/// Lets a fetch in the background end.
async fn settle() {
    tokio::time::sleep(LATENCY * 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_requests_of_a_tenant_share_one_fetch() {
    let source = Source::new();
    source.set_amount(7, 500);
    let tenants = source.tenants();
    let mut requests = JoinSet::new();
    for _ in 0..1_000 {
        let tenants = tenants.clone();
        requests.spawn(async move { amount(&tenants, 7).await });
    }
    assert!(
        requests
            .join_all()
            .await
            .into_iter()
            .all(|amount| amount == Some(500))
    );
    assert_eq!(source.fetches(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_share_one_fetch_of_each_tenant() {
    let source = Source::new();
    let tenants = source.tenants();
    let mut requests = JoinSet::new();
    for request in 0..2_000 {
        let tenants = tenants.clone();
        requests.spawn(async move { amount(&tenants, request % 20).await });
    }
    assert!(
        requests
            .join_all()
            .await
            .into_iter()
            .all(|amount| amount == Some(10))
    );
    assert_eq!(source.fetches(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_does_not_cancel_the_fetch_of_others() {
    let source = Source::new();
    source.set_amount(7, 500);
    let tenants = source.tenants();
    let cancelled = tenants.limiter_for(&7);
    let waiting = tokio::spawn({
        let tenants = tenants.clone();
        async move { amount(&tenants, 7).await }
    });
    tokio::task::yield_now().await;
    drop(cancelled);
    assert_eq!(waiting.await.expect("no panic"), Some(500));
    assert_eq!(source.fetches(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_selection_is_cached() {
    let source = Source::new();
    source.set_amount(1, 500);
    source.set(2, Selection::Exempt);
    source.set(3, Selection::Default);
    let tenants = source.tenants();
    for _ in 0..3 {
        for (tenant, expected) in [(1, Some(500)), (2, None), (3, Some(10)), (4, Some(10))] {
            assert_eq!(amount(&tenants, tenant).await, expected, "tenant {tenant}");
        }
    }
    assert_eq!((source.fetches(), tenants.cached()), (4, 4));
}

#[tokio::test(start_paused = true)]
async fn a_limiter_of_another_store_may_be_selected() {
    let (source, other) = (Source::new(), Source::new());
    source.set(
        7,
        other
            .tenants()
            .default_limiter()
            .with_policies(Policy::fixed_window("own", Quota::per_day(3))),
    );
    let limiter = source
        .tenants()
        .limiter_for(&7)
        .await
        .expect("limits")
        .into_limiter()
        .expect("a limiter");
    assert_eq!(
        decided(&limiter, "a")
            .await
            .state("own")
            .expect("a state")
            .remaining(),
        2
    );
}

#[tokio::test(start_paused = true)]
async fn old_limits_serve_while_a_fetch_refreshes_them_in_the_background() {
    let source = Source::new();
    source.set_amount(7, 500);
    let tenants = source.tenants();
    assert_eq!(amount(&tenants, 7).await, Some(500));
    source.set_amount(7, 600);
    advance(4 * MINUTE - LATENCY).await;
    assert_eq!(
        (amount_at_once(&tenants, 7), source.fetches()),
        (Some(500), 1)
    );
    advance(LATENCY).await;
    for _ in 0..100 {
        assert_eq!(amount_at_once(&tenants, 7), Some(500), "nobody waits");
    }
    settle().await;
    assert_eq!(
        (amount_at_once(&tenants, 7), source.fetches()),
        (Some(600), 2)
    );
}

#[tokio::test(start_paused = true)]
async fn expired_limits_are_waited_for() {
    let source = Source::new();
    source.set_amount(7, 500);
    let tenants = source.tenants();
    assert_eq!(amount(&tenants, 7).await, Some(500));
    source.set_amount(7, 600);
    advance(5 * MINUTE).await;
    assert_eq!(amount_at_once(&tenants, 7), None, "the limits are too old");
    assert_eq!(
        (amount(&tenants, 7).await, source.fetches()),
        (Some(600), 2)
    );
}

#[tokio::test(start_paused = true)]
async fn the_options_say_how_old_limits_may_be() {
    let source = Source::new();
    let tenants = source
        .builder()
        .time_to_live(MINUTE)
        .refresh_after(MINUTE / 2)
        .build();
    assert_eq!(amount(&tenants, 7).await, Some(10));
    advance(MINUTE / 2 - LATENCY).await;
    assert!(amount_at_once(&tenants, 7).is_some());
    settle().await;
    assert_eq!(source.fetches(), 1);
    assert!(amount_at_once(&tenants, 7).is_some());
    settle().await;
    assert_eq!(source.fetches(), 2);
    advance(MINUTE).await;
    assert!(amount_at_once(&tenants, 7).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_finds_equal_limits_keeps_the_policy_set() {
    let source = Source::new();
    source.set_amount(7, 500);
    let tenants = source.tenants();
    let policy = |tenants: &TenantLimiters<u64>| {
        let limiter = tenants
            .limiter_for(&7)
            .into_ready()
            .expect("limits at once")
            .expect("limits")
            .into_limiter()
            .expect("a limiter");
        std::ptr::from_ref(limiter.policies().iter().next().expect("a policy")).addr()
    };
    assert_eq!(amount(&tenants, 7).await, Some(500));
    let before = policy(&tenants);
    source.set_amount(7, 500);
    advance(4 * MINUTE).await;
    assert_eq!(policy(&tenants), before);
    settle().await;
    assert_eq!((policy(&tenants), source.fetches()), (before, 2));
}

#[tokio::test(start_paused = true)]
async fn the_cache_is_bounded_and_a_flood_of_new_tenants_does_not_displace_a_busy_one() {
    const MAX: usize = 256;
    let source = Source::new();
    let tenants = source.builder().max_entries(MAX).build();
    for busy in 0..16 {
        for _ in 0..3 {
            assert_eq!(amount(&tenants, busy).await, Some(10));
        }
    }
    let before = source.fetches();
    for unknown in 1_000..6_000 {
        assert_eq!(amount(&tenants, unknown).await, Some(10));
        if unknown % 100 == 0 {
            for busy in 0..16 {
                assert_eq!(amount(&tenants, busy).await, Some(10));
            }
        }
        assert!(tenants.cached() <= MAX + 32, "{} tenants", tenants.cached());
    }
    assert_eq!(
        source.fetches() - before,
        5_000,
        "each unknown tenant is fetched once, and no busy one"
    );
}

#[tokio::test(start_paused = true)]
async fn an_invalidated_tenant_is_fetched_again() {
    let source = Source::new();
    source.set_amount(7, 500);
    let tenants = source.tenants();
    assert_eq!(
        (amount(&tenants, 7).await, amount(&tenants, 8).await),
        (Some(500), Some(10))
    );
    source.set_amount(7, 600);
    tenants.invalidate(&7);
    assert_eq!(tenants.cached(), 1);
    assert_eq!(
        (amount(&tenants, 7).await, source.fetches()),
        (Some(600), 3)
    );
    assert!(amount_at_once(&tenants, 8).is_some());
    tenants.invalidate_all();
    assert_eq!(tenants.cached(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_fetch_from_before_an_invalidation_is_not_kept() {
    let source = Source::new();
    source.set_amount(7, 500);
    let tenants = source.tenants();
    let before = tenants.limiter_for(&7);
    // The fetch has read the old plan, and its answer is on the way.
    tokio::task::yield_now().await;
    source.set_mood(Mood::Answers);
    tenants.invalidate(&7);
    assert!(before.await.expect("limits").into_limiter().is_some());
    source.set_amount(7, 600);
    assert_eq!(
        (amount(&tenants, 7).await, source.fetches()),
        (Some(600), 2)
    );
}

#[tokio::test(start_paused = true)]
async fn a_fetch_returns_policies_in_every_form_that_a_limiter_takes() {
    const DAY: Policy = Policy::fixed_window("day", Quota::per_day(100));
    let source = Source::new();
    source.set(1, API);
    source.set(2, [API, DAY]);
    source.set(3, vec![API, DAY]);
    source.set(4, Some(vec![DAY]));
    source.set(5, None::<[Policy; 2]>);
    // No set has two policies of one name, or none: the fetch has failed, and nothing panics.
    source.set(6, vec![DAY, DAY]);
    source.set(7, Vec::new());
    let tenants = source.tenants();
    let names = async |tenant| {
        let limiter = tenants
            .limiter_for(&tenant)
            .await
            .expect("limits")
            .into_limiter()
            .expect("a limiter");
        limiter
            .policies()
            .iter()
            .map(|policy| policy.name().to_owned())
            .collect::<Vec<_>>()
    };
    let mut all = Vec::new();
    for tenant in 1..=7 {
        all.push(names(tenant).await.join("+"));
    }
    assert_eq!(
        all,
        ["api", "api+day", "api+day", "day", "api", "api", "api"]
    );
    // What has failed is fetched again.
    source.set(6, DAY);
    advance(MINUTE).await;
    assert_eq!(names(6).await, ["day"]);
}
