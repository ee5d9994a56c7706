//! Rules that lease their limits, on a real server.

use tollgate::Outage;
use tollgate_rules::{Descriptor, Format, RuleLimiter, RuleSet, Rules};
use tollgate_test_support::{Deployment, Kind, PATIENCE};
use tollgate_tests::wait;

/// The commands by which scripts run.
const SCRIPTS: &[&str] = &["eval", "evalsha"];

/// A limit for each tenant.
fn rules(amount: u64, lease: &str) -> RuleSet {
    let text = format!(
        "{{domain: d, descriptors: [{{key: tenant, rate_limit: {{quota: {amount}/h burst {amount}, lease: {lease}}}}}]}}"
    );
    RuleSet::parse(&text, Format::Yaml).expect("rules")
}

/// Checks each of two tenants five hundred times. Returns the calls of the server.
async fn trips(limiter: &RuleLimiter, deployment: &Deployment) -> u64 {
    let before = deployment.calls(SCRIPTS);
    for _ in 0..500 {
        for tenant in ["acme", "other"] {
            let request = [Descriptor::from([("tenant", tenant)])];
            assert!(
                limiter
                    .check("d", &request, 1)
                    .await
                    .expect("a decision")
                    .is_allowed()
            );
        }
    }
    deployment.calls(SCRIPTS) - before
}

/// Waits until most of a thousand checks make no trip.
async fn leases(limiter: &RuleLimiter, deployment: &Deployment) {
    wait::until_async("leased checks", PATIENCE, async || {
        trips(limiter, deployment).await < 500
    })
    .await;
}

#[tokio::test]
async fn a_rule_leases_the_counter_of_each_tenant_also_after_its_amount_changes() {
    let test = "a_rule_leases_the_counter_of_each_tenant_also_after_its_amount_changes";
    let deployment = Deployment::start(Kind::Server, test).expect("a server");
    let store = deployment
        .builder("rules")
        .connect()
        .await
        .expect("a store");
    let in_use = Rules::new(rules(10_000_000, "{generation: 200ms}"));
    // No replica is counted and no check is late, so each call of a script is a check.
    let builder = RuleLimiter::builder(in_use.clone(), store.clone());
    let limiter = builder
        .on_outage(Outage::local(1))
        .deadline(PATIENCE)
        .build();
    leases(&limiter, &deployment).await;
    // Units of the former amount are out until they lapse.
    in_use.replace(rules(9_000_000, "{generation: 200ms}"));
    leases(&limiter, &deployment).await;
    // What is left goes back now, and not in a task beside the checks that are counted.
    store.release_leases().await.expect("the units go back");
    in_use.replace(rules(9_000_000, "false"));
    assert_eq!(
        trips(&limiter, &deployment).await,
        1_000,
        "without a lease, each check makes a trip"
    );
    deployment.assert_every_key_expires();
}
