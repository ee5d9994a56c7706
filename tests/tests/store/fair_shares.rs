//! Fair shares as an application uses them, and what they are refused with.

use std::{num::NonZeroU32, time::Duration};

use tollgate::{
    Cost, Costs, Customer, ErrorKind, Lease, Limiter, MemoryStore, Outage, Policy, PolicySet,
    Priority, Quota, Store, store::Clock, test_util::FaultyStore,
};
use tollgate_test_support::decided_at;

const SERVICE: Policy = Policy::token_bucket("service", Quota::per_second(100));

fn fair(policies: impl Into<PolicySet>, clock: &Clock) -> Limiter {
    on(memory(clock), policies, clock)
}

fn memory(clock: &Clock) -> MemoryStore {
    MemoryStore::builder().clock(clock.clone()).build()
}

fn on(store: impl Store, policies: impl Into<PolicySet>, clock: &Clock) -> Limiter {
    Limiter::builder(store)
        .policies(policies)
        .outage_clock(clock.clone())
        .fair_shares()
        .build()
}

fn of(customer: &str, weight: u32) -> Costs {
    let weight = NonZeroU32::new(weight).expect("a weight");
    Costs::new(Cost::ONE).with_customer(Customer::new(customer).weighing(weight))
}

/// Lets customers ask for ten times the limit together, and returns what each was admitted in ten
/// seconds, after the first ones.
async fn admitted<const N: usize>(
    limiter: &Limiter,
    clock: &Clock,
    customers: [Costs; N],
) -> [u64; N] {
    let mut admitted = [0; N];
    for at in 0..20_000 {
        clock.advance(Duration::from_millis(1));
        let costs = customers[at % N].clone();
        let is_allowed = decided_at(limiter, "all", costs).await.is_allowed();
        admitted[at % N] += u64::from(is_allowed && at >= 10_000);
    }
    admitted
}

#[tokio::test]
async fn customers_get_shares_by_their_weights_and_the_whole_limit_together() {
    let clock = Clock::manual(0);
    // The answers of both are there at once, and the second store need not be in the process.
    let distant = on(FaultyStore::new(memory(&clock)), SERVICE, &clock);
    for limiter in [fair(SERVICE, &clock), distant] {
        let customers = [of("one", 1), of("two", 2), of("four", 4)];
        let admitted = admitted(&limiter, &clock, customers).await;
        let sum: u64 = admitted.iter().sum();
        // It is 990 of 1000, and up to three less where customers share rows of the sketch, whose hashes
        // are drawn for each limiter.
        assert!((985..=1_010).contains(&sum), "{admitted:?}");
        for (part, weight) in admitted.into_iter().zip([1, 2, 4]) {
            let ideal = sum * weight / 7;
            assert!(part.abs_diff(ideal) * 10 < ideal * 2, "{admitted:?}");
        }
    }
}

#[tokio::test]
async fn the_example_of_the_page_passes_by_second_minute_hour_and_day() {
    for seconds in [1, 60, 3_600, 86_400] {
        let (quota, clock) = (
            Quota::new(1_000, Duration::from_secs(seconds)),
            Clock::manual(0),
        );
        for policy in [
            Policy::token_bucket("service", quota),
            Policy::leaky_bucket("service", quota),
            Policy::interval_bucket("service", quota.with_burst(2_500)),
        ] {
            let most = policy.quota().burst() * 88 / 100;
            let limiter = fair(policy, &clock);
            let mut heavy = 0;
            while decided_at(&limiter, "all", of("heavy", 1))
                .await
                .is_allowed()
            {
                heavy += 1;
            }
            assert_eq!(heavy, most, "at once, of a limit by {seconds} s");
            assert!(
                decided_at(&limiter, "all", of("light", 1))
                    .await
                    .is_allowed()
            );
        }
    }
}

#[tokio::test]
async fn a_plan_of_a_customer_is_whole_and_a_check_without_a_customer_has_the_whole_burst() {
    let clock = Clock::manual(0);
    let plan = Policy::fixed_window("plan", Quota::per_day(30))
        .unranked()
        .at_branch(2);
    let limiter = fair([SERVICE, plan], &clock);
    let key = tollgate::Key::new("all").with_branch("acme");
    for _ in 0..30 {
        assert!(
            decided_at(&limiter, key.clone(), of("acme", 1))
                .await
                .is_allowed()
        );
    }
    let denied = decided_at(&limiter, key, of("acme", 1)).await;
    assert_eq!(denied.strictest().expect("a state").policy().name(), "plan");
    // The heavy one leaves a part of what is left to others, and none to a check of nobody.
    let limiter = fair(SERVICE, &clock);
    while decided_at(&limiter, "all", of("acme", 1))
        .await
        .is_allowed()
    {}
    let mut left = 0;
    while decided_at(&limiter, "all", Cost::ONE).await.is_allowed() {
        left += 1;
    }
    assert_eq!(left, 12, "what is kept for who comes next");
}

#[tokio::test]
async fn a_cost_above_what_is_left_to_a_customer_is_denied_and_no_error() {
    let clock = Clock::manual(0);
    let limiter = fair(SERVICE, &clock);
    let whole = Costs::new(Cost::new(100)).with_customer(Customer::new("acme"));
    assert!(
        decided_at(&limiter, "all", whole.clone())
            .await
            .is_allowed()
    );
    clock.advance(Duration::from_millis(900));
    assert!(decided_at(&limiter, "all", whole.clone()).await.is_denied());
    clock.advance(Duration::from_millis(100));
    assert!(decided_at(&limiter, "all", whole).await.is_allowed());
}

#[tokio::test]
async fn an_outage_shares_what_this_process_has() {
    let (store, clock) = (FaultyStore::default(), Clock::manual(0));
    let limiter = Limiter::builder(store.clone())
        .policies(SERVICE)
        .on_outage(Outage::local(2))
        .outage_clock(clock.clone())
        .fair_shares()
        .build();
    store.fail();
    let customers = [of("light", 1), of("light", 1), of("heavy", 4)];
    let admitted = admitted(&limiter, &clock, customers).await;
    let sum: u64 = admitted.iter().sum();
    assert!(
        (490..=510).contains(&sum),
        "half of the limit: {admitted:?}"
    );
    assert!(admitted[2] > sum * 7 / 10, "{admitted:?}");
}

#[tokio::test(start_paused = true)]
async fn what_waits_or_is_reserved_counts_for_its_customer() {
    let queue = Policy::leaky_bucket("service", Quota::per_second(100));
    let (clock, away) = (Clock::tokio(), FaultyStore::default());
    away.fail();
    for (limiter, waits) in [
        (fair(SERVICE, &clock), true),
        (fair(queue, &clock), true),
        (fair(SERVICE, &clock), false),
        (on(away, SERVICE, &clock), false),
    ] {
        // All at one instant: in a queue, each would wait for its turn.
        for _ in 0..40 {
            if waits {
                let check = limiter.check("all").cost(of("acme", 1));
                tokio::spawn(check.wait(Duration::from_secs(9)).into_future());
            } else {
                let reserved = limiter.reserve("all", of("acme", 1)).await;
                assert!(reserved.expect("a decision").decision().is_allowed());
            }
        }
        tokio::task::yield_now().await;
        let left = async |customer| {
            let look = limiter.peek("all").cost(of(customer, 1));
            let state = look.await.expect("a state");
            state.state("service").expect("a state").remaining()
        };
        assert_eq!((left("other").await, left("acme").await), (60, 48));
    }
}

#[test]
fn policies_that_cannot_be_shared_fairly_are_refused_with_their_names() {
    let refusal = |policy: Policy| {
        let builder = Limiter::builder(MemoryStore::new()).policies(policy);
        let error = builder.fair_shares().try_build().expect_err("a refusal");
        assert_eq!(error.kind(), ErrorKind::Config);
        error.to_string()
    };
    let quota = Quota::per_second(100);
    assert_eq!(
        refusal(SERVICE.leased(Lease::new())),
        "policy service is leased, and its units have no priority"
    );
    assert_eq!(
        refusal(Policy::fixed_window("day", quota)),
        "fair shares need a bucket, and policy day is a fixed_window: make it unranked if it belongs to one customer"
    );
    assert_eq!(
        refusal(Policy::token_bucket("small", quota.with_burst(9))),
        "fair shares need a burst of 10 units or more, and policy small has 9: make it unranked if it belongs to one customer"
    );
    assert_eq!(
        refusal(Policy::interval_bucket("steps", quota.with_burst(249))),
        "fair shares need a burst of 250 units or more in an interval bucket, and policy steps has 249: make it unranked if it belongs to one customer"
    );
    for policy in [
        Policy::interval_bucket("steps", quota.with_burst(250)),
        Policy::leaky_bucket("queue", quota),
    ] {
        let builder = Limiter::builder(MemoryStore::new()).policies(policy);
        assert!(builder.fair_shares().try_build().is_ok());
    }
    let unranked = Policy::fixed_window("day", quota).unranked();
    assert!(
        Limiter::builder(MemoryStore::new())
            .policies([SERVICE, unranked])
            .fair_shares()
            .try_build()
            .is_ok()
    );
}

#[test]
#[should_panic(expected = "fair shares need a bucket, and policy day is a fixed_window")]
fn a_limiter_that_cannot_be_fair_is_not_built() {
    let _ = Limiter::builder(MemoryStore::new())
        .policies(Policy::fixed_window("day", Quota::per_day(100)))
        .fair_shares()
        .build();
}

#[tokio::test]
async fn a_check_has_a_customer_or_a_priority_and_other_limiters_refuse_the_customer() {
    let clock = Clock::manual(0);
    let both = of("acme", 1).with_priority(Priority::BACKGROUND);
    let error = fair(SERVICE, &clock)
        .check("all")
        .cost(both)
        .await
        .expect_err("a refusal");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(
        error.to_string(),
        "a check has a customer or a priority, got both and Priority(60 %)"
    );
    let limiter = Limiter::new(
        MemoryStore::new(),
        Policy::token_bucket("day", Quota::per_day(100)),
    );
    let error = limiter.check("all").cost(of("acme", 1)).await;
    let error = error.expect_err("a refusal");
    assert_eq!(error.kind(), ErrorKind::Config);
    let text = error.to_string();
    assert!(text.contains("the limiter has no fair shares"), "{text}");
    // One that blocks has no shares.
    let blocked =
        fair(SERVICE, &clock).with_policies(Policy::token_bucket("service", Quota::per_second(0)));
    assert!(decided_at(&blocked, "all", of("acme", 1)).await.is_denied());
    // A leased policy that comes later is refused by the check.
    let leased = fair(SERVICE, &clock).with_policies(SERVICE.leased(Lease::new()));
    let error = leased.check("all").cost(of("acme", 1)).await;
    assert_eq!(error.expect_err("a refusal").kind(), ErrorKind::Config);
}
