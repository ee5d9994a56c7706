//! Names a matched descriptor in metrics.

use std::borrow::Cow;

use super::{
    Match, Selected,
    counter::{pattern_text, shared_pattern},
};
use crate::{
    Metadata,
    names::{metric_part, stat_name},
    rule_set::level::MatchedBy,
};

impl Match<'_> {
    /// Returns the name in metrics: the domain, and for each entry the key and the value of the rule.
    ///
    /// The value is that of the file, a pattern included, and a default has none. With `value_to_metric` it is the
    /// value of the request at that level, and with `detailed_metric` at every level. A pattern with `share_threshold`
    /// keeps its own text. `:`, `|` and the dots of IPv4 addresses become `_`.
    ///
    /// **A name with values of requests has as many series as clients choose.** [`Rule::metric_name`](crate::Rule::metric_name)
    /// is bounded. Overrides have values of requests.
    ///
    /// ```
    /// use tollgate_rules::{Descriptor, Format, RuleSet};
    ///
    /// let rules = RuleSet::parse(
    ///     "
    ///     domain: shop
    ///     descriptors:
    ///       - key: tenant
    ///         descriptors:
    ///           - key: route
    ///             value_to_metric: true
    ///             rate_limit: {unit: second, requests_per_unit: 5}
    ///     ",
    ///     Format::Yaml,
    /// )?;
    /// let descriptor = Descriptor::from([("tenant", "acme"), ("route", "/pay")]);
    /// let found = rules.find("shop", &descriptor).unwrap();
    /// assert_eq!(found.metric_name(), "shop.tenant.route_/pay");
    /// assert_eq!(found.rule().metric_name(), "shop.tenant.route");
    /// # Ok::<(), tollgate_rules::RuleErrors>(())
    /// ```
    #[must_use]
    pub fn metric_name(&self) -> Cow<'_, str> {
        let is_detailed = self.is_override() || self.rule().has_detailed_metric;
        let has_value = |step: Selected<'_>| step.node.value_to_metric && step.by != MatchedBy::Value;
        if !is_detailed && !self.matched().any(|(_, step)| step.is_some_and(has_value)) {
            return self.rule().metric_name().into();
        }
        let is_shared = self.matched().any(|(entry, step)| shared_pattern(entry, step).is_some());
        let mut name = self.domain.to_owned();
        for (entry, step) in self.matched() {
            let is_plain = |step: &Selected<'_>| !is_detailed && !step.node.value_to_metric;
            let value: Cow<'_, str> = match (shared_pattern(entry, step), step.filter(is_plain)) {
                (Some(pattern), _) => pattern,
                (None, Some(Selected { selector, by: MatchedBy::Pattern, .. })) => pattern_text(entry, selector),
                (None, Some(Selected { by: MatchedBy::Default, .. })) => "".into(),
                _ => entry.value().into(),
            };
            name.push('.');
            name.push_str(&metric_part(entry.key(), &value));
            // Envoy's service writes the separator of an empty value, in this one case.
            let keeps_separator = self.set.compat.is_envoy() && !self.is_override() && is_detailed && !is_shared;
            if value.is_empty() && keeps_separator {
                name.push('_');
            }
        }
        stat_name(&name).into()
    }

    /// Returns the metadata of the rule.
    ///
    /// In the mode `envoy` it is lost where the metric has values of requests, as in Envoy's service.
    #[must_use]
    pub fn metadata(&self) -> Option<&Metadata> {
        let metadata = self.rule().metadata()?;
        if !self.set.compat.is_envoy() {
            return Some(metadata);
        }
        let is_lost = if self.rule().has_detailed_metric {
            self.steps.last().is_none_or(|step| self.set.node(*step).children.is_none())
        } else {
            self.metric_name() != self.rule().metric_name()
        };
        (!is_lost).then_some(metadata)
    }
}
