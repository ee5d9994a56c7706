//! The classes that rank the requests of a domain.

use std::fmt;

use tollgate::Priority;

use crate::{Descriptor, DescriptorEntry, pattern::Pattern, rule::Origin};

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
            .any(|entry| selector.matches(entry))
    }

    /// Returns whether every request of another class would belong to this one.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (&self.selector, &other.selector) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(other)) => {
                own.key == other.key && own.value.covers(other.value.text())
            }
        }
    }
}

impl fmt::Debug for PriorityClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PriorityClass")
            .field("name", &self.name)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

/// Selects requests by an entry of their descriptors.
pub(crate) struct EntrySelector {
    pub(crate) key: Box<str>,
    pub(crate) value: EntryValue,
}

pub(crate) enum EntryValue {
    Any,
    Text(Box<str>),
    Pattern(Box<str>, Pattern),
}

impl EntrySelector {
    fn matches(&self, entry: &DescriptorEntry<'_>) -> bool {
        *entry.key() == *self.key && self.value.covers(entry.value())
    }
}

impl EntryValue {
    pub(crate) fn new(text: Option<Box<str>>) -> Self {
        match text {
            None => Self::Any,
            Some(text) => match Pattern::new(&text) {
                Some(pattern) => Self::Pattern(text, pattern),
                None => Self::Text(text),
            },
        }
    }

    /// Returns the text of the file. A star stands for any value.
    fn text(&self) -> &str {
        match self {
            Self::Any => "*",
            Self::Text(text) | Self::Pattern(text, _) => text,
        }
    }

    /// Returns whether it matches a value, or all that the pattern `text` matches: a star of the
    /// text is then matched by a star.
    fn covers(&self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Text(own) => **own == *text,
            Self::Pattern(_, pattern) => pattern.matches(text.as_bytes()),
        }
    }
}
