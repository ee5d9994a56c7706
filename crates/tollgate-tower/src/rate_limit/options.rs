//! The options of a layer, as the builder collects them.
//! They are read in `ask.rs` and `reply.rs`. Those that every kind of layer has are in `gate/options.rs`.

use std::{mem, net::IpAddr, sync::Arc, time::Duration};

use http::request::Parts;
use tollgate_core::{Cost, Costs, Customer, Enforcement, KeySecret, Limiter, Priority};

use crate::{
    charge::FinalCost,
    gate::FromParts,
    headers::HeaderOptions,
    key::{KeyError, Networks},
    rate_limit::reservation::{EstimateOf, ReserveOptions},
};

/// Stores the options of a layer. Closures are boxed, so that they do not appear in the type of the
/// layer.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) cost: Option<CostOf>,
    pub(crate) rank: Option<Rank>,
    pub(crate) final_cost: Option<FinalCost>,
    /// A request is charged after the response and not before.
    pub(crate) charges_after: bool,
    pub(crate) wait: Option<Duration>,
    pub(crate) headers: Arc<HeaderOptions>,
    pub(crate) partition_secret: Option<KeySecret>,
    pub(crate) networks: Option<Box<NetworkOptions>>,
    /// `None` for all keys.
    pub(crate) enforcement: Option<Enforcement>,
    pub(crate) exposes_decisions: bool,
    pub(crate) records_spans: bool,
    pub(crate) rpc_name: Option<RpcNameOf>,
    pub(crate) request_limiter: Option<RequestLimiterSource>,
}

/// Stores the lists of networks, and how the address of a request is found.
pub(crate) struct NetworkOptions {
    pub(crate) networks: Networks,
    pub(crate) address: FromParts<Result<IpAddr, KeyError>>,
}

impl Options {
    /// Logs the options that need the one key of a request, for a layer whose requests have
    /// several.
    pub(crate) fn warn_without_key(&self) {
        let options = [
            ("wait", self.wait.is_some()),
            ("partition_key", self.partition_secret.is_some()),
            ("expose_request_limiter", self.request_limiter.is_some()),
            ("charge_after", self.charges_after),
            ("costs", matches!(self.cost, Some(CostOf::Each(_)))),
            ("reserve", matches!(self.cost, Some(CostOf::Estimate(..)))),
        ];
        for (option, _) in options.into_iter().filter(|(_, is_set)| *is_set) {
            tracing::warn!(
                code = "TOLLGATE-NO-KEY",
                option,
                "the option has no effect on requests that several limiters decide, because they have no single key"
            );
        }
    }
}

/// Ranks a request by its head.
pub(crate) enum Rank {
    Priority(FromParts<Priority>),
    /// By what its customer was admitted lately.
    Customer(FromParts<Customer>),
}

impl Rank {
    /// Returns the costs of a request with its rank.
    pub(crate) fn of(&self, costs: Costs, request: &Parts) -> Costs {
        match self {
            Self::Priority(priority) => costs.with_priority(priority(request)),
            Self::Customer(customer) => costs.with_customer(customer(request)),
        }
    }

    /// Returns whether the rank means something to a limiter beside the one of the layer: of a
    /// handler, or of the service. A customer has no share where there are no shares.
    pub(crate) fn fits(&self, limiter: &Limiter) -> bool {
        match self {
            Self::Priority(_) => true,
            Self::Customer(_) => limiter.has_fair_shares(),
        }
    }

    /// Returns whether both rank requests in the same way.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        mem::discriminant(self) == mem::discriminant(other)
    }
}

/// Computes the cost of a request from its head.
pub(crate) enum CostOf {
    /// One cost for all policies.
    One(FromParts<Cost>),
    /// A cost for each policy.
    Each(FromParts<Costs>),
    /// An estimate for each policy, which is reserved.
    Estimate(EstimateOf, ReserveOptions),
}

type RpcNameOf = Box<dyn for<'a> Fn(&'a Parts) -> Option<(&'a str, &'a str)> + Send + Sync>;

/// Selects the limiter of a [`RequestLimiter`](crate::RequestLimiter).
#[derive(Clone, Copy)]
pub(crate) enum RequestLimiterSource {
    /// The limiter that admitted the request.
    Same,
    /// The fixed limiter at this index.
    At(usize),
}
