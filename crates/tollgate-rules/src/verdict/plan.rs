//! The first half of a decision: which descriptors of a request are charged, and why others are
//! not.
//! The rule of a descriptor is found in `matching/`; the answer is combined in `combine.rs`.

use std::{collections::HashSet, fmt};

use tollgate::{Customer, Key, Priority};
#[cfg(feature = "http")]
use tollgate_tower::JointCheck;

use crate::{Compat, Descriptor, Match, PriorityClass, RuleSet, rule::Limit, rule_set::Domain};

/// The [`Treatment`] of each descriptor of a request: whether it is charged.
///
/// [`RuleSet::plan`] makes a plan, and [`RuleLimiter::check_plan`](crate::RuleLimiter::check_plan)
/// decides it.
///
/// ```
/// use tollgate_rules::{Descriptor, Format, RuleSet, Treatment};
///
/// let rules = RuleSet::parse(
///     "
///     domain: shop
///     descriptors:
///       - key: tenant
///         rate_limit: {name: tenant, quota: 600/min}
///       - key: route
///         rate_limit: {quota: 20/h, replaces: [{name: tenant}]}
///     ",
///     Format::Yaml,
/// )?;
/// let request = [Descriptor::from([("tenant", "acme")]), Descriptor::from([("route", "/export")])];
/// let plan = rules.plan("shop", &request, 0).unwrap();
/// assert_eq!(plan.iter().map(|planned| planned.treatment()).collect::<Vec<_>>(), [Treatment::Replaced, Treatment::Charged]);
/// # Ok::<(), tollgate_rules::RuleErrors>(())
/// ```
#[derive(Debug)]
pub struct Plan<'a> {
    pub(super) compat: Compat,
    pub(super) domain: &'a str,
    pub(super) hits: u32,
    class: Option<&'a PriorityClass>,
    customer: Option<Customer>,
    pub(super) planned: Vec<Planned<'a>>,
    /// Says what the layer asks for.
    #[cfg(feature = "http")]
    check: Option<JointCheck>,
}

/// One descriptor of a [`Plan`].
#[derive(Debug)]
pub struct Planned<'a> {
    pub(super) descriptor: &'a Descriptor<'a>,
    pub(super) found: Option<Match<'a>>,
    pub(super) treatment: Treatment,
    hits: u64,
}

/// Says whether a descriptor is charged, or why it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Treatment {
    /// No limit applies. The descriptor passes.
    NotLimited,
    /// The limit is `unlimited`. The descriptor passes, and nothing is counted.
    Unlimited,
    /// Another limit of the request [replaces](crate::Rule::replaces) the limit of the descriptor.
    /// The descriptor passes, and nothing is counted.
    Replaced,
    /// The descriptor is charged.
    Charged,
    /// The network of the client is allowed. The descriptor passes, and nothing is counted.
    NetworkAllowed,
    /// The network of the client is denied, and with it the request. Nothing is counted.
    NetworkDenied,
}

/// Reports a request that cannot be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// The request names no domain.
    EmptyDomain,
    /// The request has no descriptors.
    NoDescriptors,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EmptyDomain => "rate limit domain must not be empty",
            Self::NoDescriptors => "rate limit descriptors must not be empty",
        })
    }
}

impl std::error::Error for RequestError {}

impl RuleSet {
    /// Finds the limits of all descriptors of a request, and removes the limits that others
    /// [replace](crate::Rule::replaces).
    ///
    /// Each descriptor spends `hits` units, unless it has [`hits`](Descriptor::hits) of its own. 0
    /// counts as 1.
    ///
    /// # Errors
    ///
    /// Fails when the domain is empty or when there are no descriptors.
    pub fn plan<'a>(
        &'a self,
        domain: &'a str,
        descriptors: &'a [Descriptor<'a>],
        hits: u32,
    ) -> Result<Plan<'a>, RequestError> {
        if domain.is_empty() {
            return Err(RequestError::EmptyDomain);
        }
        if descriptors.is_empty() {
            return Err(RequestError::NoDescriptors);
        }
        let rules = self.domains.get(domain);
        let of_network = rules.and_then(|rules| rules.treatment_of_network(descriptors));
        Ok(self
            .plan_of((domain, rules), descriptors, hits, of_network)
            .replaced())
    }

    /// Finds the limits of all descriptors of a request whose client belongs to a network of the
    /// domain, or to none. The name of the domain comes with its rules: they are looked up once.
    fn plan_of<'a>(
        &'a self,
        (domain, rules): (&'a str, Option<&'a Domain>),
        descriptors: &'a [Descriptor<'a>],
        hits: u32,
        of_network: Option<Treatment>,
    ) -> Plan<'a> {
        let planned = descriptors.iter().map(|descriptor| {
            let found = rules.and_then(|rules| self.find_in(domain, rules, descriptor));
            let treatment = match found.as_ref().map(|found| found.rule().limit()) {
                None => Treatment::NotLimited,
                Some(Limit::Unlimited) => Treatment::Unlimited,
                Some(Limit::Blocked { .. } | Limit::Policies(_)) => Treatment::Charged,
            };
            let treatment = of_network.unwrap_or(treatment);
            let hits = descriptor.hits().unwrap_or_else(|| u64::from(hits.max(1)));
            Planned {
                descriptor,
                found,
                treatment,
                hits,
            }
        });
        let planned = planned.collect();
        let shares = rules.and_then(|rules| rules.fair_shares.as_ref());
        let mut classes = rules.into_iter().flat_map(|rules| &rules.priorities);
        let class = classes.find(|class| class.has(descriptors));
        Plan {
            compat: self.compat,
            domain,
            hits,
            class,
            customer: shares.map(|shares| shares.customer(descriptors)),
            planned,
            #[cfg(feature = "http")]
            check: None,
        }
    }
}

impl RuleSet {
    /// Finds the limits of all descriptors of a request in a layer. Without `has_networks` the
    /// lists of networks do not count.
    #[cfg(feature = "http")]
    pub(crate) fn plan_in_layer<'a>(
        &'a self,
        domain: &'a str,
        descriptors: &'a [Descriptor<'a>],
        check: JointCheck,
        has_networks: bool,
    ) -> Plan<'a> {
        let rules = self.domains.get(domain);
        let of_network = rules
            .filter(|_| has_networks)
            .and_then(|rules| rules.treatment_of_network(descriptors));
        let plan = Plan {
            check: Some(check),
            ..self.plan_of((domain, rules), descriptors, 1, of_network)
        };
        plan.replaced()
    }
}

impl Domain {
    /// Returns the treatment of all descriptors, when the client belongs to a network of the
    /// domain.
    #[cfg(feature = "http")]
    fn treatment_of_network(&self, descriptors: &[Descriptor<'_>]) -> Option<Treatment> {
        use tollgate_tower::key::NetworkVerdict;

        match self.networks.as_ref()?.verdict_of(descriptors) {
            NetworkVerdict::Allowed => Some(Treatment::NetworkAllowed),
            NetworkVerdict::Denied => Some(Treatment::NetworkDenied),
            _ => None,
        }
    }

    #[cfg(not(feature = "http"))]
    fn treatment_of_network(&self, _: &[Descriptor<'_>]) -> Option<Treatment> {
        None
    }
}

impl<'a> Plan<'a> {
    /// Removes the limits that another limit of the request names. Two limits that name each other
    /// are both removed. A limit on trial replaces none, except in the mode `envoy`.
    fn replaced(mut self) -> Self {
        let replaces = |found: &&Match<'_>| {
            let is_enforced = || !found.is_shadow() && self.is_enforced(&found.key());
            found.rule().replaces().len() > 0 && (self.compat.is_envoy() || is_enforced())
        };
        let found = self.planned.iter().filter_map(|one| one.found.as_ref());
        let names: HashSet<_> = found
            .filter(replaces)
            .flat_map(|found| found.rule().replaces().map(str::to_owned))
            .collect();
        if names.is_empty() {
            return self;
        }
        for one in &mut self.planned {
            let name = one.charged().and_then(|found| found.rule().name());
            if name.is_some_and(|name| names.contains(name)) {
                one.treatment = Treatment::Replaced;
            }
        }
        self
    }

    /// Returns the parts of the request that are decided one after the other.
    ///
    /// In the mode `envoy`, a descriptor that gives units back has a part of its own: each one finds
    /// the counter as those before it have left it.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &[Planned<'a>]> {
        let is_joint = !self.compat.is_envoy();
        self.planned.chunk_by(move |one, next| {
            is_joint || !(one.descriptor.is_refund() || next.descriptor.is_refund())
        })
    }

    /// Returns the descriptor, if a single one is charged and nothing else is done: nearly all requests
    /// have one. In the mode `envoy`, a denied request is charged too.
    pub(crate) fn only(&self) -> Option<&Planned<'a>> {
        match &*self.planned {
            [only] if !self.compat.is_envoy() && !only.is_refund() => Some(only),
            _ => None,
        }
    }

    /// Returns the descriptors, in the order of the request.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Planned<'a>> {
        self.planned.iter()
    }

    /// Returns the [class](PriorityClass) of the request. `None` when it belongs to none: it then
    /// has the priority of the layer, and without a layer it is critical.
    #[must_use]
    pub fn class(&self) -> Option<&'a PriorityClass> {
        self.class
    }

    /// Returns the priority of the request.
    pub(crate) fn priority(&self) -> Priority {
        #[cfg(feature = "http")]
        let default = self
            .check
            .as_ref()
            .map_or(Priority::CRITICAL, JointCheck::priority);
        #[cfg(not(feature = "http"))]
        let default = Priority::CRITICAL;
        self.class.map_or(default, PriorityClass::priority)
    }

    /// Returns whose request it is, under fair shares.
    pub(crate) fn customer(&self) -> Option<Customer> {
        self.customer
    }

    /// Returns whether the layer enforces the limits of a key.
    #[cfg(feature = "http")]
    pub(crate) fn is_enforced(&self, key: &Key) -> bool {
        self.check
            .as_ref()
            .is_none_or(|check| check.is_enforced(key))
    }

    /// Returns `true`: without layers, the rules alone decide what is enforced.
    #[cfg(not(feature = "http"))]
    pub(crate) fn is_enforced(&self, _: &Key) -> bool {
        true
    }

    /// Returns the mode of the rules.
    #[must_use]
    pub fn compat(&self) -> Compat {
        self.compat
    }
}

impl<'a> Planned<'a> {
    /// Returns whether the descriptor is charged, and if not, why.
    #[must_use]
    pub fn treatment(&self) -> Treatment {
        self.treatment
    }

    /// Returns the limit that is charged. `None` when nothing is charged.
    #[must_use]
    pub fn charged(&self) -> Option<&Match<'a>> {
        self.found
            .as_ref()
            .filter(|_| self.treatment == Treatment::Charged)
    }

    /// Returns the limit that was found, also when it is not charged.
    #[must_use]
    pub fn found(&self) -> Option<&Match<'a>> {
        self.found.as_ref()
    }

    /// Returns the units that the descriptor spends, or [gives back](Descriptor::refunding). 0 only
    /// tests the limit.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.hits
    }

    /// Returns whether the descriptor gives units back.
    pub(crate) fn is_refund(&self) -> bool {
        self.descriptor.is_refund()
    }
}
