//! Limiters that differ in their policies alone.

use tollgate::{
    Cost, Key, Limiter, MemoryStore, Outage, Policy, PolicySet, Quota, test_util::FaultyStore,
};
use tollgate_test_support::{decided_at, remaining};

const API: Policy = Policy::token_bucket("api", Quota::per_day(10));

/// Returns a store that decides nothing.
fn away() -> FaultyStore {
    let store = FaultyStore::default();
    store.fail();
    store
}

fn daily(amount: u64) -> Policy {
    API.with_quota(Quota::per_day(amount)).expect("a policy")
}

#[tokio::test]
async fn other_policies_share_the_store_and_the_name_of_the_limiter() {
    let limiter = Limiter::builder(MemoryStore::new())
        .policies(API)
        .name("calls")
        .build();
    let larger = limiter.with_policies(daily(100));
    assert_eq!(
        (larger.name(), larger.policies()),
        ("calls", &PolicySet::from(daily(100)))
    );
    let _ = decided_at(&limiter, "acme", Cost::new(4)).await;
    assert_eq!(remaining(&larger, "acme").await, 96, "the units stay spent");
    assert_eq!(remaining(&limiter, "acme").await, 6);
}

#[tokio::test]
async fn a_refund_goes_to_the_policies_of_the_decision() {
    let limiter = Limiter::new(MemoryStore::new(), API);
    let other = limiter.with_policies(Policy::fixed_window("other", Quota::per_day(10)));
    for limiter in [&limiter, &other] {
        let _ = decided_at(limiter, "acme", Cost::new(5)).await;
    }
    let decision = decided_at(&limiter, "acme", Cost::new(3)).await;
    other
        .refund("acme", Cost::new(3))
        .of(&decision)
        .await
        .expect("a refund");
    assert_eq!(
        (
            remaining(&limiter, "acme").await,
            remaining(&other, "acme").await
        ),
        (5, 5)
    );
}

#[tokio::test]
async fn an_outage_limits_each_set_by_its_own_share() {
    for (outage, shares) in [
        (Outage::local(2), [5, 50]),
        (Outage::local(1), [10, 100]),
        (Outage::local(4), [2, 25]),
        (Outage::local(100), [1, 1]),
    ] {
        let limiter = Limiter::builder(away())
            .policies(API)
            .on_outage(outage)
            .build();
        for (amount, share) in [10, 100].into_iter().zip(shares) {
            let (limiter, key) = (limiter.with_policies(daily(amount)), Key::new(amount));
            let mut allowed = 0;
            while limiter.check(&key).await.expect("a decision").is_allowed() {
                allowed += 1;
            }
            assert_eq!(allowed, share, "{outage:?} of {amount}");
            assert!(limiter.check(&key).await.expect("a decision").is_degraded());
        }
    }
}
