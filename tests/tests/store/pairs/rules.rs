//! Rules of a file, which give a request a limit for its tenant and one for its host.

use std::sync::Arc;

use tollgate::{Key, Outage, Policy, Store};
use tollgate_rules::{Descriptor, Format, RequestRules, RuleLimiter, RuleSet, Rules};
use tollgate_test_support::PATIENCE;

use super::scenario::Scenario;

/// Returns the rules of a scenario. Its sets are the limits of a tenant and of a host.
fn rule_set(scenario: &Scenario) -> RuleSet {
    let limit = |policy: &Policy| {
        let (name, quota, algorithm) = (policy.name(), policy.quota(), policy.algorithm());
        format!("{{name: {name}, quota: {quota}, algorithm: '{algorithm}'}}")
    };
    let [tenants, hosts] = [0, 1].map(|set: usize| {
        scenario.sets[set]
            .iter()
            .map(limit)
            .collect::<Vec<_>>()
            .join(", ")
    });
    let text = format!(
        "
        domain: d
        rate_limits:
        - actions: [{{request_headers: {{header_name: x-key, descriptor_key: tenant}}}}]
        - actions: [{{request_headers: {{header_name: x-host, descriptor_key: host}}}}]
        descriptors:
        - {{key: tenant, shadow_mode: {}, rate_limit: {{limits: [{tenants}]}}}}
        - {{key: host, rate_limit: {{limits: [{hosts}]}}}}
        ",
        scenario.options.is_trial,
    );
    RuleSet::parse(&text, Format::Yaml).expect("rules")
}

pub(super) fn request_rules(scenario: &Scenario, store: Arc<dyn Store>) -> RequestRules {
    let rules = RuleLimiter::builder(Rules::new(rule_set(scenario)), store);
    rules
        .on_outage(Outage::Closed)
        .deadline(PATIENCE)
        .build()
        .for_requests("d")
}

/// Returns the key of the limit of a tenant or of a host.
pub(super) fn key_of(scenario: &Scenario, set: usize, text: &str) -> Key {
    let descriptor = Descriptor::from([(["tenant", "host"][set], text)]);
    rule_set(scenario)
        .find("d", &descriptor)
        .expect("a rule")
        .key()
}
