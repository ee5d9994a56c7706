//! Names the counter of a matched descriptor.

use std::{borrow::Cow, net::IpAddr};

use tollgate::Key;

use super::{Match, Selected};
use crate::{Entry, rule_set::level::MatchedBy, selector::Selector};

impl Match<'_> {
    /// Returns the key of the counter.
    ///
    /// In native mode, two keys are equal only for the same domain and the same entries. The values of a shared pattern
    /// have one key, which differs from the key of every value. IPv6 addresses of one network have one key when the
    /// rule has a `prefix_v6`.
    ///
    /// In the mode `envoy`, the key is the text `domain_key_value_…`, so that some different descriptors have one key.
    ///
    /// ```
    /// use tollgate_rules::{Descriptor, Format, RuleSet};
    ///
    /// let rules = RuleSet::parse(
    ///     "
    ///     domain: shop
    ///     descriptors:
    ///       - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}
    ///       - {key: a_b, rate_limit: {unit: day, requests_per_unit: 1}}
    ///     ",
    ///     Format::Yaml,
    /// )?;
    /// let (one, two) = (Descriptor::from([("a", "b_c")]), Descriptor::from([("a_b", "c")]));
    /// assert_ne!(rules.find("shop", &one).unwrap().key(), rules.find("shop", &two).unwrap().key());
    /// # Ok::<(), tollgate_rules::RuleErrors>(())
    /// ```
    #[must_use]
    pub fn key(&self) -> Key {
        if self.set.compat.is_envoy() {
            return Key::new(self.envoy_prefix().as_str());
        }
        let domain = Key::new(self.domain);
        self.matched().fold(domain, |key, (entry, step)| key.join(part(entry, step)))
    }

    /// Returns the key that Envoy's service has in Redis, without its configured prefix.
    ///
    /// `now` is the time in seconds since the Unix epoch. The key ends with the start of the current window. Use it to
    /// compare with such a service. A rule that counts nothing has the key of a window of one second.
    #[must_use]
    pub fn envoy_key(&self, now: u64) -> String {
        let seconds = self.rule().amount().map_or(1, |(_, period)| period.as_secs().max(1));
        format!("{}{}", self.envoy_prefix(), now - now % seconds)
    }

    fn envoy_prefix(&self) -> String {
        let mut text = format!("{}_", self.domain);
        for (entry, step) in self.matched() {
            text.push_str(entry.key());
            text.push('_');
            text.push_str(&shared_pattern(entry, step).unwrap_or_else(|| entry.value().into()));
            text.push('_');
        }
        text
    }
}

/// Returns the part of one entry.
fn part(entry: &Entry<'_>, step: Option<Selected<'_>>) -> Key {
    let key = Key::new(entry.key());
    if let Some(pattern) = shared_pattern(entry, step) {
        // A third part keeps the pattern apart from a value of the same text.
        return key.join(&*pattern).join("shared");
    }
    let prefix = step.and_then(|step| step.node.prefix_v6);
    match prefix.and_then(|bits| Some((bits, entry.value().parse::<IpAddr>().ok()?))) {
        Some((bits, address)) => key.join(Key::network(address, bits)),
        None => key.join(entry.value()),
    }
}

/// Returns the pattern that takes the place of the value, when all values of the pattern share a counter.
pub(super) fn shared_pattern<'a>(entry: &Entry<'_>, step: Option<Selected<'a>>) -> Option<Cow<'a, str>> {
    let step = step.filter(|step| step.by == MatchedBy::Pattern && step.node.shares_counter)?;
    Some(pattern_text(entry, step.selector))
}

/// Returns the text of a pattern without the key of the entry.
pub(super) fn pattern_text<'a>(entry: &Entry<'_>, selector: &'a Selector) -> Cow<'a, str> {
    if let Some(value) = selector.value.as_deref().filter(|_| *selector.key == *entry.key()) {
        return value.into();
    }
    // A pattern in the key, in the mode `envoy`. It starts with the key of the entry only by chance.
    let text = selector.composite();
    let rest = text.strip_prefix(entry.key()).and_then(|rest| rest.strip_prefix('_'));
    rest.unwrap_or(&text).to_owned().into()
}
