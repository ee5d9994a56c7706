//! The classes that rank the requests of a domain.
//! They are read in `compile/priorities.rs`, and the ceilings are kept by the store.

use tollgate::Priority;

use crate::{Descriptor, pattern::Pattern, rule::Origin};

/// A class of requests with its [`Priority`]: an element of the field `priorities` of a file.
///
/// A request belongs to the first class, in the order of the file, for which one of its descriptors
/// has an entry with the `key` of the class. If the class has a `value`, the entry must match it.
/// `*` stands for any characters, as in a descriptor. A class without a `key` is the last, and
/// takes all other requests. A request that belongs to no class has the priority of its layer, or
/// else [`CRITICAL`](Priority::CRITICAL), as without `priorities`.
///
/// All classes spend from the same counters, on all replicas. A request is denied when it would use
/// more of any of its limits than the `ceiling` of its class. The units above the ceiling are left
/// for requests of a higher class.
///
/// ```
/// use tollgate::MemoryStore;
/// use tollgate_rules::{Descriptor, Format, RuleLimiter, RuleSet, Rules};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rules = RuleSet::parse(
///     "
///     domain: shop
///     priorities:
///       - {name: critical, ceiling: 100%, key: path, value: /orders*}
///       - {name: background, ceiling: 60%, key: path, value: /reports*}
///       - {name: default, ceiling: 90%}
///     descriptors:
///       - {key: service, rate_limit: {quota: 10/h}}
///     ",
///     Format::Yaml,
/// )?;
/// let limiter = RuleLimiter::new(Rules::new(rules), MemoryStore::new());
/// let request = |path| [Descriptor::from([("service", "shop")]), Descriptor::from([("path", path)])];
///
/// for _ in 0..6 {
///     assert!(limiter.check("shop", &request("/reports/7"), 1).await?.is_allowed());
/// }
/// assert!(limiter.check("shop", &request("/reports/7"), 1).await?.is_denied());
/// assert!(limiter.check("shop", &request("/orders"), 1).await?.is_allowed());
/// # Ok(()) }
/// ```
pub struct PriorityClass {
    pub(crate) name: Box<str>,
    pub(crate) priority: Priority,
    /// `None` for the class of all other requests.
    pub(crate) selector: Option<EntrySelector>,
    pub(crate) origin: Origin,
}

impl PriorityClass {
    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the priority, which has the `ceiling` of the class.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Returns whether a request with these descriptors belongs to the class, if it belongs to none
    /// before.
    pub(crate) fn has(&self, descriptors: &[Descriptor<'_>]) -> bool {
        let Some(selector) = &self.selector else {
            return true;
        };
        descriptors
            .iter()
            .flat_map(Descriptor::entries)
            .any(|entry| selector.covers(entry.key(), entry.value()))
    }

    /// Returns whether every request of another class would belong to this one.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (&self.selector, &other.selector) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(other)) => own.covers(&other.key, &other.value),
        }
    }
}

tollgate::debug_fields! { PriorityClass: name, priority, .. }

/// Selects requests by an entry of their descriptors.
pub(crate) struct EntrySelector {
    pub(crate) key: Box<str>,
    /// The text of the file. A star stands for any value.
    value: Box<str>,
    pattern: Option<Pattern>,
}

impl EntrySelector {
    pub(crate) fn new(key: Box<str>, value: Option<Box<str>>) -> Self {
        let value = value.unwrap_or_else(|| "*".into());
        let pattern = Pattern::new(&value);
        Self {
            key,
            value,
            pattern,
        }
    }

    /// Returns whether it matches an entry, or all that the pattern `value` matches: a star of the
    /// text is then matched by a star.
    fn covers(&self, key: &str, value: &str) -> bool {
        *self.key == *key
            && match &self.pattern {
                Some(pattern) => pattern.matches(value.as_bytes()),
                None => *self.value == *value,
            }
    }
}
