//! Makes the figures of limiters, policies, rules and stores of the metrics.
//! Sums and rates are computed in `figures.rs`, columns are laid out in `sections.rs`.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    figures::Figures,
    snapshot::{LimiterFigures, PolicyFigures, RuleFigures, StoreFigures},
    tracker::PolicyUse,
};

type Sums<const N: usize> = BTreeMap<[String; N], f64>;

/// Returns the figures of each policy: by the scan, and by the metrics.
pub(super) fn policies(
    uses: &BTreeMap<(String, &'static str), PolicyUse>,
    figures: &Figures,
) -> Vec<PolicyFigures> {
    let of_layers = figures.rates("tollgate_decisions_total", ["policy", "outcome"]);
    let denials = figures.rates("tollgate_denials_total", ["policy", "limiter"]);
    let checks = figures.rates("tollgate_checks_total", ["limiter", "outcome"]);
    let allowed = |policy: &str| {
        let of_layer = of_layers
            .get(&[policy.to_owned(), "allowed".to_owned()])
            .copied();
        // A limiter registers each of its policies with the first check.
        let of_limiters = denials
            .keys()
            .filter(|[name, _]| name == policy)
            .map(|[_, limiter]| {
                checks
                    .get(&[limiter.clone(), "allowed".to_owned()])
                    .copied()
                    .unwrap_or(0.0)
            });
        of_layer.or_else(|| sum(of_limiters))
    };
    let denied = |policy: &str| {
        let of_limiters = denials
            .iter()
            .filter(|([name, _], _)| name == policy)
            .map(|(_, rate)| *rate);
        sum(of_limiters).or_else(|| {
            of_layers
                .get(&[policy.to_owned(), "denied".to_owned()])
                .copied()
        })
    };
    // Every layer has the counter. It says something only where a denial has passed.
    let totals = figures.values("tollgate_decisions_total", ["policy", "outcome"]);
    let shadowed = |policy: &str| {
        let series = [policy.to_owned(), "shadowed".to_owned()];
        of_layers
            .get(&series)
            .copied()
            .filter(|_| totals.get(&series) > Some(&0.0))
    };
    let mut found: Vec<_> = uses
        .iter()
        .map(|((policy, algorithm), of_scan)| PolicyFigures {
            policy: policy.clone(),
            algorithm: Some(*algorithm),
            keys: Some(of_scan.keys),
            limited_keys: of_scan.limited,
            units_per_second: of_scan.units_per_second,
            allowed_per_second: None,
            denied_per_second: None,
            shadowed_per_second: None,
        })
        .collect();
    let in_metrics: BTreeSet<_> = of_layers
        .keys()
        .chain(denials.keys())
        .map(|[policy, _]| policy)
        .collect();
    for policy in in_metrics {
        // Only Redis distinguishes two algorithms under one name.
        match found.iter_mut().find(|of_scan| of_scan.policy == *policy) {
            Some(of_scan) => {
                (of_scan.allowed_per_second, of_scan.denied_per_second) =
                    (allowed(policy), denied(policy));
                of_scan.shadowed_per_second = shadowed(policy);
            }
            None => found.push(PolicyFigures {
                policy: policy.clone(),
                allowed_per_second: allowed(policy),
                denied_per_second: denied(policy),
                shadowed_per_second: shadowed(policy),
                ..PolicyFigures::default()
            }),
        }
    }
    let activity = |of: &PolicyFigures| {
        let decisions = of.allowed_per_second.unwrap_or(0.0) + of.denied_per_second.unwrap_or(0.0);
        decisions.max(of.units_per_second.unwrap_or(0.0))
    };
    found.sort_by(|a, b| {
        activity(b)
            .total_cmp(&activity(a))
            .then_with(|| a.policy.cmp(&b.policy))
    });
    found
}

/// Returns the figures of each limiter. One in an outage comes first.
pub(super) fn limiters(figures: &Figures) -> Vec<LimiterFigures> {
    let totals = figures.values("tollgate_checks_total", ["limiter"]);
    let checks = figures.rates("tollgate_checks_total", ["limiter", "outcome"]);
    let degraded = figures.rates("tollgate_degraded_total", ["limiter", "reason"]);
    let p99 = figures.p99("tollgate_check_duration_seconds", "limiter");
    let (outage, outages) = (
        figures.values("tollgate_outage", ["limiter"]),
        figures.values("tollgate_outages_total", ["limiter"]),
    );
    let names: BTreeSet<_> = totals
        .keys()
        .chain(outage.keys())
        .map(|[limiter]| limiter)
        .collect();
    let figures_of = |limiter: &String| {
        let rate = |outcome: &str| checks.get(&[limiter.clone(), outcome.to_owned()]).copied();
        let by_reason = || degraded.iter().filter(|([name, _], _)| name == limiter);
        let reason = by_reason()
            .filter(|(_, rate)| **rate > 0.0)
            .max_by(|a, b| a.1.total_cmp(b.1));
        let own = [limiter.clone()];
        let whole = |sums: &Sums<1>| sums.get(&own).map(|value| *value as u64);
        LimiterFigures {
            limiter: limiter.clone(),
            allowed_per_second: rate("allowed"),
            denied_per_second: rate("denied"),
            failed_per_second: rate("failed"),
            degraded_per_second: sum(by_reason().map(|(_, rate)| *rate)),
            degraded_reason: reason.map(|([_, reason], _)| reason.clone()),
            p99_seconds: p99.get(limiter).copied(),
            processes_in_outage: whole(&outage),
            outages: whole(&outages),
        }
    };
    let mut found: Vec<_> = names.into_iter().map(figures_of).collect();
    found.sort_by_key(|of| std::cmp::Reverse(of.processes_in_outage.unwrap_or(0)));
    found
}

/// Returns the units of each rule, those with the most units over the limit first.
pub(super) fn rules(figures: &Figures) -> Vec<RuleFigures> {
    let sums = |name: &str| figures.rates(name, ["rule"]);
    let (within, over) = (
        sums("tollgate_rule_units_within_total"),
        sums("tollgate_rule_units_over_total"),
    );
    let shadow = sums("tollgate_rule_units_shadow_total");
    let figures_of = |rule: [String; 1]| RuleFigures {
        within_per_second: within.get(&rule).copied(),
        over_per_second: over.get(&rule).copied(),
        shadow_per_second: shadow.get(&rule).copied(),
        rule: rule.into_iter().collect(),
    };
    let names = figures
        .values("tollgate_rule_units_total", ["rule"])
        .into_keys();
    let mut found: Vec<_> = names.map(figures_of).collect();
    let rate = |rate: Option<f64>| rate.unwrap_or(0.0);
    found.sort_by(|a, b| {
        let by_over = rate(b.over_per_second).total_cmp(&rate(a.over_per_second));
        by_over.then_with(|| rate(b.within_per_second).total_cmp(&rate(a.within_per_second)))
    });
    found
}

/// Returns the state of each store, as the services see it.
pub(super) fn stores(figures: &Figures) -> Vec<StoreFigures> {
    let (sums, most) = (
        |name: &str| figures.values(name, ["store"]),
        |name: &str| figures.greatest(name, ["store"]),
    );
    let (connected, breakers) = (
        sums("tollgate_store_connected"),
        sums("tollgate_store_breakers_open"),
    );
    let (queued, round_trip) = (
        sums("tollgate_store_queued"),
        most("tollgate_store_round_trip_seconds"),
    );
    let replicas = most("tollgate_store_replicas");
    let figures_of = |(store, servers): ([String; 1], f64)| {
        let whole = |sums: &Sums<1>| sums.get(&store).map_or(0, |value| *value as u64);
        StoreFigures {
            servers: servers as u64,
            connected: whole(&connected),
            breakers_open: whole(&breakers),
            queued: whole(&queued),
            round_trip_seconds: round_trip.get(&store).copied(),
            replicas: whole(&replicas),
            store: store.into_iter().collect(),
        }
    };
    sums("tollgate_store_servers")
        .into_iter()
        .map(figures_of)
        .collect()
}

/// Adds up rates. `None` if there are none.
fn sum(rates: impl Iterator<Item = f64>) -> Option<f64> {
    rates.fold(None, |sum, rate| Some(sum.unwrap_or(0.0) + rate))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::exposition, *};

    /// Returns the figures of two pages that are one second apart. The first has zeros.
    fn figures(page: &str) -> Figures {
        let page = exposition::read(page, "tollgate");
        let zeros = page.keys().map(|series| (series.clone(), 0.0)).collect();
        let mut figures = Figures::default();
        figures.add(&page, Some((&zeros, Duration::from_secs(1))));
        figures
    }

    #[test]
    fn decisions_of_a_policy_are_those_of_the_layer_or_of_its_limiters() {
        let page = "tollgate_denials_total{limiter=\"jobs\",policy=\"day\"} 3\n\
                    tollgate_checks_total{limiter=\"jobs\",outcome=\"allowed\"} 7\n\
                    tollgate_checks_total{limiter=\"jobs\",outcome=\"denied\"} 3\n\
                    tollgate_denials_total{limiter=\"api\",policy=\"free\"} 5\n\
                    tollgate_checks_total{limiter=\"api\",outcome=\"allowed\"} 90\n\
                    tollgate_decisions_total{policy=\"free\",outcome=\"allowed\",route=\"/a\"} 20\n\
                    tollgate_decisions_total{policy=\"free\",outcome=\"allowed\",route=\"/b\"} 1\n\
                    tollgate_decisions_total{policy=\"free\",outcome=\"denied\",route=\"/b\"} 5\n";
        let of_scan = PolicyUse {
            keys: 4,
            limited: None,
            units_per_second: Some(7.0),
        };
        let uses = [(("day".to_owned(), "fixed_window"), of_scan)].into();
        let found = policies(&uses, &figures(page));
        let decisions: Vec<_> = found
            .iter()
            .map(|of| {
                (
                    of.policy.as_str(),
                    of.allowed_per_second,
                    of.denied_per_second,
                    of.keys,
                )
            })
            .collect();
        assert_eq!(
            decisions,
            [
                ("free", Some(21.0), Some(5.0), None),
                ("day", Some(7.0), Some(3.0), Some(4)),
            ]
        );
    }

    #[test]
    fn a_policy_shows_who_would_be_denied_once_a_denial_has_passed() {
        let page = |shadowed: u32| {
            format!(
                "tollgate_decisions_total{{policy=\"free\",outcome=\"denied\"}} 5\n\
                 tollgate_decisions_total{{policy=\"free\",outcome=\"shadowed\"}} {shadowed}\n"
            )
        };
        let rates = |shadowed| {
            let found = policies(&BTreeMap::new(), &figures(&page(shadowed)));
            (found[0].denied_per_second, found[0].shadowed_per_second)
        };
        assert_eq!(rates(0), (Some(5.0), None));
        assert_eq!(rates(3), (Some(5.0), Some(3.0)));
    }

    #[test]
    fn a_limiter_in_an_outage_comes_first_with_its_reason() {
        let page = "tollgate_checks_total{limiter=\"a\",outcome=\"allowed\"} 9\n\
                    tollgate_checks_total{limiter=\"b\",outcome=\"allowed\"} 8\n\
                    tollgate_checks_total{limiter=\"b\",outcome=\"failed\"} 1\n\
                    tollgate_degraded_total{limiter=\"b\",reason=\"timeout\"} 2\n\
                    tollgate_degraded_total{limiter=\"b\",reason=\"breaker\"} 6\n\
                    tollgate_outage{limiter=\"a\"} 0\ntollgate_outage{limiter=\"b\"} 1\n\
                    tollgate_outages_total{limiter=\"b\"} 4\n\
                    tollgate_check_duration_seconds{limiter=\"b\",quantile=\"0.99\"} 0.002\n";
        let found = limiters(&figures(page));
        let b = LimiterFigures {
            limiter: "b".to_owned(),
            allowed_per_second: Some(8.0),
            denied_per_second: None,
            failed_per_second: Some(1.0),
            degraded_per_second: Some(8.0),
            degraded_reason: Some("breaker".to_owned()),
            p99_seconds: Some(0.002),
            processes_in_outage: Some(1),
            outages: Some(4),
        };
        assert_eq!(found[0], b);
        assert_eq!(
            (found[1].limiter.as_str(), found[1].processes_in_outage),
            ("a", Some(0))
        );
    }
}
