//! What a request is described by: its descriptors, and the limit or the units that one may bring
//! along.
//! Descriptors are made of HTTP requests in `actions/`, and matched with rules in `matching/`.

mod entries;
mod entry;

use std::borrow::Cow;

use crate::Unit;
use entries::Entries;
pub use entry::DescriptorEntry;

/// Describes one aspect of a request by an ordered list of keys and values.
///
/// A request has one or more descriptors. The rules give each descriptor at most one limit: see
/// [`RuleSet::find`](crate::RuleSet::find).
///
/// ```
/// use tollgate_rules::Descriptor;
///
/// let descriptor = Descriptor::from([("tenant", "gold"), ("route", "/export")]);
/// assert_eq!(descriptor.entries()[1].value(), "/export");
/// assert_eq!(descriptor, Descriptor::new().entry("tenant", "gold").entry("route", "/export"));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Descriptor<'a> {
    entries: Entries<'a>,
    limit: Option<LimitOverride>,
    hits: Option<u64>,
    is_refund: bool,
}

/// Replaces the limit of the rules for one descriptor of one request.
///
/// The rules are not consulted for such a descriptor, but its domain must exist.
///
/// ```
/// use tollgate_rules::{Descriptor, LimitOverride, Unit};
///
/// let descriptor = Descriptor::from([("tenant", "acme")]).with_limit(LimitOverride::new(42, Unit::Hour));
/// assert_eq!(descriptor.limit().unwrap().requests(), 42);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitOverride {
    requests: u32,
    unit: Unit,
}

impl LimitOverride {
    /// Creates an override. With 0 requests the descriptor is always denied.
    #[must_use]
    pub const fn new(requests: u32, unit: Unit) -> Self {
        Self { requests, unit }
    }

    /// Returns the requests in one window.
    #[must_use]
    pub const fn requests(&self) -> u32 {
        self.requests
    }

    /// Returns the length of the window.
    #[must_use]
    pub const fn unit(&self) -> Unit {
        self.unit
    }
}

impl<'a> Descriptor<'a> {
    /// Creates a descriptor without entries. It matches no rule.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an entry.
    #[must_use]
    pub fn entry(mut self, key: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) -> Self {
        self.push(key, value);
        self
    }

    /// Appends an entry in place.
    pub fn push(&mut self, key: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) {
        self.entries
            .push(DescriptorEntry::new(key.into(), value.into()));
    }

    /// Sets a limit for this descriptor, which replaces the limit of the rules.
    #[must_use]
    pub fn with_limit(mut self, limit: LimitOverride) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Sets the units that this descriptor spends, in place of the `hits` of the request. 0 only
    /// tests the limit.
    #[must_use]
    pub fn with_hits(mut self, hits: u64) -> Self {
        self.hits = Some(hits);
        self
    }

    /// Gives units back in place of spending them: those that the descriptor would spend.
    ///
    /// Such a descriptor passes, and never denies the request. It gives back at most what is spent.
    /// See [`RuleLimiter`](crate::RuleLimiter#units-that-are-given-back).
    #[must_use]
    pub fn refunding(mut self) -> Self {
        self.is_refund = true;
        self
    }

    /// Converts the descriptor to one that owns its texts.
    #[must_use]
    pub fn into_owned(self) -> Descriptor<'static> {
        let mut owned = Descriptor {
            entries: Entries::default(),
            limit: self.limit,
            hits: self.hits,
            is_refund: self.is_refund,
        };
        for entry in self.entries.iter().cloned() {
            owned.entries.push(entry.into_owned());
        }
        owned
    }

    /// Returns the entries, in order.
    #[must_use]
    pub fn entries(&self) -> &[DescriptorEntry<'a>] {
        &self.entries
    }

    /// Returns the limit that replaces the limit of the rules. `None` when the rules decide.
    #[must_use]
    pub fn limit(&self) -> Option<LimitOverride> {
        self.limit
    }

    /// Returns the units that this descriptor spends. `None` when it spends the `hits` of the
    /// request.
    #[must_use]
    pub fn hits(&self) -> Option<u64> {
        self.hits
    }

    /// Returns whether the descriptor gives units back.
    #[must_use]
    pub fn is_refund(&self) -> bool {
        self.is_refund
    }
}

impl<'a, K: Into<Cow<'a, str>>, V: Into<Cow<'a, str>>, const N: usize> From<[(K, V); N]>
    for Descriptor<'a>
{
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<'a, K: Into<Cow<'a, str>>, V: Into<Cow<'a, str>>> FromIterator<(K, V)> for Descriptor<'a> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut descriptor = Self::new();
        for (key, value) in entries {
            descriptor.push(key, value);
        }
        descriptor
    }
}

tollgate::debug_fields! { Descriptor<'a>: entries = .entries(), limit, hits, is_refund }
