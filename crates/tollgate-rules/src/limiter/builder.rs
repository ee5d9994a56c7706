//! The options of a limiter, and the limiters of the core that it is made of, one for each rule of
//! an outage.
//! What it does with a request is in `rule_limiter.rs`.

use std::{borrow::Cow, sync::Arc, time::Duration};

use tollgate::{
    Limiter, LimiterBuilder, Outage, Policy, Quota, Store,
    limiter::{DeniedKeys, events::Observer},
};

use super::{
    exceeded::Exceeded,
    rule_limiter::{RuleLimiter, RuleLimiterInner},
    steps::Steps,
};
use crate::{GlobalModes, Rules};

impl RuleLimiter {
    /// Creates a limiter with the default options.
    #[must_use]
    pub fn new(rules: Rules, store: impl Store) -> Self {
        Self::builder(rules, store).build()
    }

    /// Returns a builder for the options.
    pub fn builder(rules: Rules, store: impl Store) -> RuleLimiterBuilder {
        RuleLimiterBuilder {
            rules,
            limits: Limiter::builder(store).name("rules"),
            outage: Outage::default(),
            modes: GlobalModes::default(),
            denied_keys: None,
            observer: None,
        }
    }
}

/// Sets options and builds a [`RuleLimiter`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct RuleLimiterBuilder {
    rules: Rules,
    /// Has the options that all limiters have, also those of counters above their limits.
    limits: LimiterBuilder<()>,
    outage: Outage,
    modes: GlobalModes,
    denied_keys: Option<DeniedKeys>,
    observer: Option<Arc<dyn Observer>>,
}

/// Takes the place of policies until a rule gives its own. It is never checked.
const NONE: Policy = Policy::fixed_window("rules", Quota::per_second(1)).unranked();

impl RuleLimiterBuilder {
    /// Sets the name in log lines and metrics. The default is `rules`.
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.limits = self.limits.name(name);
        self
    }

    /// Sets the answer in an outage of the store, for rules without `on_outage`. The default is
    /// [`Outage::default`].
    ///
    /// With [`Outage::Local`], rules with `on_outage: local` use its number of replicas, too.
    pub fn on_outage(mut self, outage: Outage) -> Self {
        self.outage = outage;
        self
    }

    /// Sets the longest time that a decision may take. The default is the same as for a
    /// [`Limiter`], which explains it:
    /// [`LimiterBuilder::deadline`](tollgate::LimiterBuilder::deadline).
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.limits = self.limits.deadline(deadline);
        self
    }

    /// Puts all rules in shadow mode or in quota mode. By default, the files decide for each rule.
    pub fn modes(mut self, modes: GlobalModes) -> Self {
        self.modes = modes;
        self
    }

    /// Counts the descriptors over their limit by key, to see which keys are denied most. By
    /// default, nothing is counted.
    ///
    /// The key of a descriptor is [`Match::key`](crate::Match::key). Rules in shadow mode are
    /// counted too, so that you see whom they would deny.
    pub fn denied_keys(mut self, denied_keys: DeniedKeys) -> Self {
        self.denied_keys = Some(denied_keys);
        self
    }

    /// Sets the observer of the [events](tollgate::limiter::events) of the limits: denials, limits
    /// that are nearly reached, lockouts and outages. By default there is none.
    ///
    /// The policy of an event is the limit of its rule, and the key is
    /// [`Match::key`](crate::Match::key). A rule in shadow mode raises its denials, too. Two
    /// denials raise no event: a denial by a rule of 0 requests, and a denial of more units than
    /// the limit ever has. For reloads of the rules, see [`Rules::set_observer`].
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Builds the limiter. Operators see from now on which rules it enforces, where the store shows
    /// it: `tollgate status` lists the [reports](tollgate::store::ReplicaReport) of all replicas.
    #[must_use]
    pub fn build(self) -> RuleLimiter {
        let limiter = |outage| {
            let builder = self.limits.clone().policies(NONE).on_outage(outage);
            // A reload may bring fair shares.
            let builder = builder.fair_shares().with_exceptions();
            match &self.observer {
                Some(observer) => builder.observer(Arc::clone(observer)).build(),
                None => builder.build(),
            }
        };
        let default = limiter(self.outage);
        // The limiter with the same answer is shared, and with it the memory of an outage.
        let other = |outage| {
            if outage == self.outage {
                default.clone()
            } else {
                limiter(outage)
            }
        };
        let local = match self.outage {
            Outage::Local { .. } => self.outage,
            _ => Outage::default(),
        };
        default.publish_rules(self.rules.in_force());
        let name = format!("{}.exceeded", default.name());
        let exceeded = Exceeded::new(self.limits.clone().name(name));
        RuleLimiter(Arc::new(RuleLimiterInner {
            open: other(Outage::Open),
            closed: other(Outage::Closed),
            local: other(local),
            default,
            rules: self.rules,
            modes: self.modes,
            denied_keys: self.denied_keys,
            steps: Steps::new(),
            exceeded,
        }))
    }
}

tollgate::debug_fields! { RuleLimiterBuilder: rules, limits, outage, modes, .. }
