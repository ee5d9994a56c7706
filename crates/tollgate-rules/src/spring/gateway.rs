use std::{borrow::Cow, collections::HashMap, fmt, sync::Arc};

use super::route_limit::RouteLimit;
use crate::{Descriptor, RuleSet};

/// The rate limits of a Spring Cloud Gateway: see the [module](super).
#[derive(Clone)]
pub struct Gateway {
    pub(super) rules: Arc<RuleSet>,
    pub(super) limits: Vec<RouteLimit>,
    pub(super) by_route: HashMap<Box<str>, usize>,
    /// The limit of routes that are not in the file.
    pub(super) default: Option<usize>,
}

impl Gateway {
    /// Names the domain of the [rules](Self::rules).
    pub const DOMAIN: &'static str = "spring";

    /// Returns the limits of the routes in the order of the file, and last the limit of all other routes, if there is
    /// one.
    #[must_use]
    pub fn limits(&self) -> &[RouteLimit] {
        &self.limits
    }

    /// Returns the limit of a route. `None` for a route without a limit.
    ///
    /// Default filters also limit routes that are not in the file.
    #[must_use]
    pub fn limit(&self, route: &str) -> Option<&RouteLimit> {
        match self.by_route.get(route) {
            Some(&at) => self.limits.get(at),
            None => self.default.and_then(|at| self.limits.get(at)),
        }
    }

    /// Returns the rules of all routes, in the domain [`DOMAIN`](Self::DOMAIN). A limit has the keys `route` and `key`.
    #[must_use]
    pub fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }

    /// Returns the descriptor of a request, for a check of the [rules](Self::rules): its route, its key and its
    /// [cost](RouteLimit::cost).
    ///
    /// `None` for a route without a limit.
    #[must_use]
    pub fn descriptor<'a>(
        &self,
        route: impl Into<Cow<'a, str>>,
        key: impl Into<Cow<'a, str>>,
    ) -> Option<Descriptor<'a>> {
        let route = route.into();
        let cost = self.limit(&route)?.cost();
        Some(Descriptor::new().entry("route", route).entry("key", key).with_hits(cost))
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("limits", &self.limits).finish_non_exhaustive()
    }
}
