//! Cases about customers that several processes have.

use tollgate::{Cost, Costs, Customer, Limiter, Policy, Quota, Store, store::ReplicaGroup};
use tollgate_test_support::{Deployment, PATIENCE};
use tollgate_tests::wait;

/// A twentieth of the burst does not accrue while a test runs, and what is kept of it is more.
const SERVICE: Policy =
    Policy::token_bucket("service", Quota::per_day(1_000_000).with_burst(100_000));

/// Checks that a customer leaves units to others that another process was told to admit it.
///
/// `told` returns what processes have told about each other, and `tell` adds to it what another
/// process tells about a customer.
pub(crate) async fn a_heavy_customer_of_others_is_heavy_here(
    store: impl Store,
    told: impl AsyncFn() -> String,
    tell: impl AsyncFn(&str),
) {
    let limiter = Limiter::builder(store)
        .policies(SERVICE)
        .deadline(PATIENCE)
        .fair_shares()
        .build();
    let costs = |customer: &str, cost: u64| {
        Costs::new(Cost::new(cost)).with_customer(Customer::new(customer))
    };
    let check = limiter.check("all").cost(costs("heavy", 95_000));
    assert!(check.await.expect("a decision").is_allowed());
    // What is told has the digests of customers, and their units.
    let entries = |text: &str| {
        let entries = text.split_whitespace();
        let entries = entries.filter_map(|entry| entry.split_once('='));
        entries
            .map(|(spender, units)| (units.parse().expect("units"), spender.to_owned()))
            .collect::<Vec<(u64, String)>>()
    };
    let mut text = String::new();
    wait::until_async("two customers to be told", PATIENCE, async || {
        let check = limiter.check("all").cost(costs("acme", 1));
        let _ = check.await.expect("a decision");
        text = told().await;
        entries(&text).len() == 2
    })
    .await;
    assert!(!text.contains("acme"), "{text}");
    let (_, acme) = entries(&text).into_iter().min().expect("two entries");

    // It has spent no more than its share here, until the other process says more.
    let waits = async |customer: &'static str| {
        let look = limiter.peek("all").cost(costs(customer, 30));
        look.await.expect("a look").retry_after().is_some()
    };
    assert!(!waits("acme").await);
    let other = format!("{acme}=1000000");
    wait::until_async("the other process to be heard", PATIENCE, async || {
        tell(&other).await;
        let _ = limiter.check("all").cost(costs("acme", 1)).await;
        waits("acme").await
    })
    .await;
    assert!(!waits("third").await);

    // What others told stays, until it is old, when this process tells again.
    let own = async || {
        let text = told().await;
        let own = text.lines().find(|line| !line.contains("other"));
        (own.map(str::to_owned), text.contains("=1000000"))
    };
    wait::until_async("both processes beside each other", PATIENCE, async || {
        tell(&other).await;
        let (before, _) = own().await;
        let mut stays = false;
        wait::until_async("the next report", PATIENCE, async || {
            let _ = limiter.check("all").cost(costs("acme", 1)).await;
            let after = own().await;
            stays = after.1;
            after.0.is_some() && after.0 != before
        })
        .await;
        stays
    })
    .await;
}

/// Returns the end of the name under which it is told.
pub(crate) fn name() -> String {
    format!("{}:spent", ReplicaGroup::new("service", &SERVICE.into()))
}

pub(super) async fn a_customer_that_is_heavy_in_another_process_is_heavy_here(
    deployment: &Deployment,
) {
    let store = deployment.builder("fair").build().expect("a store");
    let key = format!("fair:{{replicas}}:{}", name());
    // The other masters of a cluster answer MOVED.
    let told = async || {
        let masters = deployment.masters();
        let replies = masters.iter().map(|master| master.command(&["GET", &key]));
        let texts = replies.filter(|reply| !reply.is_error() && !reply.is_nil());
        texts.map(|reply| reply.text().to_owned()).collect()
    };
    let tell = async |entry: &str| {
        for master in deployment.masters() {
            let time = master.command(&["TIME"]);
            let [seconds, micros] =
                [0, 1].map(|at| time.items()[at].text().parse::<u64>().expect("a number"));
            let now_us = seconds * 1_000_000 + micros;
            // Together they are longer than any other reply of the server.
            let report = " ffffffffffffffff=1".repeat(32);
            let crowd: String = (0..300)
                .map(|at| format!("{now_us} other{at}{report}\n"))
                .collect();
            let lines = format!("{crowd}{now_us} other {entry}\n");
            let _ = master.command(&["APPEND", &key, &lines]);
        }
    };
    a_heavy_customer_of_others_is_heavy_here(store, told, tell).await;
}
