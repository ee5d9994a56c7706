//! Reads what is told about the choice of a rule.

use tollgate_rules::{AttemptOutcome, Descriptor, LimitOverride, Unit};

use super::{envoy::SHOP, envoy_rules, rules};

#[test]
fn each_candidate_is_told_with_its_line_and_why_it_was_not_selected() {
    let explanation = rules(SHOP).explain(
        "shop",
        &Descriptor::from([("tenant", "gold"), ("route", "/search/a")]),
    );
    assert_eq!(
        explanation.to_string(),
        "tenant=gold
  value gold (line 15): selected
  pattern free-* (line 8): does not match
  pattern trial-* (line 11): does not match
  key without a value (line 4): not tried, an earlier one was selected
route=/search/a
  value /search/a: no rule
  pattern /search* (line 25): selected
  key without a value: no rule
limit 50/s of shop.tenant_gold.route_/search* (line 25), in shadow mode
"
    );
    let attempts = explanation.levels()[0].attempts();
    assert_eq!(attempts[1].outcome(), AttemptOutcome::NoMatch);
    assert_eq!(
        (attempts[1].pattern(), attempts[1].place()),
        (Some("free-*"), Some("line 8"))
    );
}

#[test]
fn every_reason_for_no_limit_is_told() {
    for set in [rules(SHOP), envoy_rules(SHOP)] {
        for (domain, entries, expected) in [
            (
                "other",
                &[("tenant", "a")][..],
                "no limit: there is no domain \"other\"",
            ),
            ("shop", &[], "no limit: the descriptor has no entries"),
            (
                "shop",
                &[("user", "a")],
                "no limit: no rule for user=a at level 1",
            ),
            (
                "shop",
                &[("tenant", "gold"), ("route", "/x")],
                "no limit: no rule for route=/x at level 2",
            ),
            (
                "shop",
                &[("tenant", "internal")],
                "no limit: the rule at line 6 has no rate_limit",
            ),
            (
                "shop",
                &[("tenant", "acme"), ("route", "/x")],
                "no limit: the rule for the first 1 entries has no rules below it",
            ),
        ] {
            let descriptor: Descriptor<'_> = entries.iter().copied().collect();
            assert_eq!(set.explain(domain, &descriptor).outcome(), expected);
        }
        let descriptor =
            Descriptor::from([("x", "y")]).with_limit(LimitOverride::new(5, Unit::Day));
        let outcome = set.explain("shop", &descriptor);
        assert_eq!(
            outcome.outcome(),
            "limit 5 per day of the request, the rules are not consulted"
        );
    }
}
