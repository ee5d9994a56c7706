//! All rules of a load, as the tree of their descriptors for each domain. It never changes.
//! It is built in `compile/`, searched in `matching/`, and exchanged in `reload/`.

pub(crate) mod level;

use std::{collections::HashMap, fmt, sync::Arc};

use foldhash::fast::FixedState;
use tollgate::store::RulesDigest;

use crate::{
    Compat, PriorityClass, Rule, fair_shares::FairShares, rule::Origin, rule_set::level::Level,
    selector::Selector,
};

/// The checked rules of one or more domains.
///
/// A set is immutable. A load returns either a whole set, or every mistake that was found.
/// [`Rules`](crate::Rules) replaces one set by another while requests run.
///
/// ```
/// use tollgate_rules::{Descriptor, Format, RuleSet};
///
/// let rules = RuleSet::parse(
///     "
///     domain: shop
///     descriptors:
///       - key: tenant                 # for every tenant, each with its own counter
///         rate_limit: {unit: minute, requests_per_unit: 600}
///       - key: tenant
///         value: gold
///         rate_limit: {quota: 6000/min burst 200}
///     ",
///     Format::Yaml,
/// )?;
/// let acme = Descriptor::from([("tenant", "acme")]);
/// assert_eq!(rules.find("shop", &acme).unwrap().rule().amount().unwrap().0, 600);
/// let gold = Descriptor::from([("tenant", "gold")]);
/// assert_eq!(rules.find("shop", &gold).unwrap().rule().amount().unwrap().0, 6_000);
/// assert!(rules.find("shop", &Descriptor::from([("route", "/")])).is_none());
/// # Ok::<(), tollgate_rules::RuleErrors>(())
/// ```
#[doc(alias = "yaml")]
#[doc(alias = "config")]
pub struct RuleSet {
    pub(crate) compat: Compat,
    pub(crate) digest: RulesDigest,
    pub(crate) domains: HashMap<Box<str>, Domain, FixedState>,
    /// The keys and values of the descriptors of all domains and levels.
    pub(crate) selectors: Vec<Selector>,
    /// The descriptors, in the same order.
    pub(crate) nodes: Vec<RuleNode>,
}

pub(crate) struct Domain {
    pub(crate) root: Level,
    pub(crate) priorities: Vec<PriorityClass>,
    pub(crate) fair_shares: Option<FairShares>,
    #[cfg(feature = "http")]
    pub(crate) networks: Option<crate::networks::ClientNetworks>,
    #[cfg(feature = "http")]
    pub(crate) descriptors: Option<crate::Descriptors>,
}

/// A descriptor of the file.
pub(crate) struct RuleNode {
    pub(crate) rule: Option<Arc<Rule>>,
    pub(crate) children: Option<Box<Level>>,
    /// The runtime value is part of the metric's name.
    pub(crate) value_to_metric: bool,
    /// All values that match the pattern share one counter. `None` when the file says nothing.
    pub(crate) shares_counter: Option<bool>,
    /// The bits of an IPv6 address that make a counter.
    pub(crate) prefix_v6: Option<u8>,
    pub(crate) origin: Origin,
}

impl RuleSet {
    /// Creates a set without domains.
    pub(crate) fn empty(compat: Compat) -> Self {
        Self {
            compat,
            digest: RulesDigest::new([0; 8]),
            domains: HashMap::default(),
            selectors: Vec::new(),
            nodes: Vec::new(),
        }
    }

    /// Returns the mode of the rules.
    #[must_use]
    pub fn compat(&self) -> Compat {
        self.compat
    }

    /// Returns the digest of the texts, by which operators see [which replica enforces
    /// them](tollgate::store::ReplicaReport).
    ///
    /// That of one file has the first digits of its `sha256sum`. That of a directory has those of
    /// `LC_ALL=C sha256sum *.yaml | sha256sum` within it, with all its files of rules, and behind
    /// them the files of networks that they name. Names of directories do not matter, so that
    /// machines may keep the rules in different places. A set without rules has the digest 0.
    ///
    /// ```
    /// use tollgate_rules::{Format, RuleSet};
    ///
    /// // printf 'domain: shop' | sha256sum
    /// let rules = RuleSet::parse("domain: shop", Format::Yaml)?;
    /// assert_eq!(rules.digest().to_string(), "28460a0aa6d467ce");
    /// # Ok::<(), tollgate_rules::RuleErrors>(())
    /// ```
    #[must_use]
    pub fn digest(&self) -> RulesDigest {
        self.digest
    }

    /// Returns the names of the domains, in any order.
    pub fn domains(&self) -> impl ExactSizeIterator<Item = &str> {
        self.domains.keys().map(AsRef::as_ref)
    }

    /// Returns whether there are rules for this domain.
    #[must_use]
    pub fn has_domain(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// Returns the `rate_limits` of a domain, and `None` when its file has none.
    #[cfg(feature = "http")]
    #[must_use]
    pub fn descriptors(&self, domain: &str) -> Option<&crate::Descriptors> {
        self.domains.get(domain)?.descriptors.as_ref()
    }

    #[cfg(feature = "http")]
    pub(crate) fn networks(&self, domain: &str) -> Option<&crate::networks::ClientNetworks> {
        self.domains.get(domain)?.networks.as_ref()
    }

    /// Returns the [`priorities`](PriorityClass) of a domain, in the order of the file.
    pub fn priorities(&self, domain: &str) -> impl Iterator<Item = &PriorityClass> {
        self.domains
            .get(domain)
            .into_iter()
            .flat_map(|domain| &domain.priorities)
    }

    /// Returns who shares the limits of a domain fairly, if its file says so.
    #[cfg(feature = "http")]
    pub(crate) fn fair_shares(&self, domain: &str) -> Option<&FairShares> {
        self.domains.get(domain)?.fair_shares.as_ref()
    }

    /// Returns all rules, in the order of the files.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.nodes.iter().filter_map(|node| node.rule.as_deref())
    }
}

impl fmt::Debug for RuleSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleSet")
            .field("compat", &self.compat)
            .field("domains", &self.domains.keys().collect::<Vec<_>>())
            .field("rules", &self.rules().count())
            .finish()
    }
}
