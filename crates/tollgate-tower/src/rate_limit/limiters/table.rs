use http::request::Parts;
use tollgate::Limiter;

use super::lookup::Lookup;
use crate::{key::KeyError, rate_limit::joint::RequestDecider};

/// Lists the limiters of a layer: the fixed ones, the ways to look others up, and the deciders.
#[derive(Debug, Default)]
pub(crate) struct LimiterTable {
    pub(crate) fixed: Vec<Limiter>,
    pub(crate) lookups: Vec<Box<dyn Lookup>>,
    pub(crate) deciders: Vec<Box<dyn RequestDecider>>,
}

/// Says what limits a request.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// The fixed limiter at this index.
    Fixed(usize),
    /// The limiter that is looked up in the way at this index.
    Lookup(usize),
    /// The decider at this index.
    Decider(usize),
    Exempt,
}

/// Says what limits the requests of a layer.
pub(crate) enum Selector {
    Always(Target),
    By(Select),
}

type Select = Box<dyn Fn(&Parts) -> Result<Target, KeyError> + Send + Sync>;

impl LimiterTable {
    pub(crate) fn add_fixed(&mut self, limiter: Limiter) -> usize {
        self.fixed.push(limiter);
        self.fixed.len() - 1
    }

    pub(super) fn add_lookup(&mut self, lookup: Box<dyn Lookup>) -> Target {
        self.lookups.push(lookup);
        Target::Lookup(self.lookups.len() - 1)
    }

    pub(super) fn add_decider(&mut self, decider: Box<dyn RequestDecider>) -> Target {
        self.deciders.push(decider);
        Target::Decider(self.deciders.len() - 1)
    }
}
