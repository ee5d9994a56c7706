use std::time::Duration;

use http::request::Parts;
use tollgate::{Cost, KeySecret};

use crate::{charge::FinalCost, headers::HeaderOptions, labels::MetricLabels};

/// Stores the options of a layer. Closures are boxed, so that they do not appear in the type of the layer.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) cost: Option<FromParts<Cost>>,
    pub(crate) exempt: Option<FromParts<bool>>,
    pub(crate) final_cost: Option<FinalCost>,
    /// Tells whether a request is charged after the response and not before.
    pub(crate) charges_after: bool,
    pub(crate) wait: Option<Duration>,
    pub(crate) headers: HeaderOptions,
    pub(crate) partition_secret: Option<KeySecret>,
    pub(crate) retry_jitter: Duration,
    pub(crate) is_shadow: bool,
    pub(crate) exposes_decisions: bool,
    pub(crate) labels: Option<MetricLabels>,
    pub(crate) rpc_name: Option<RpcNameOf>,
    pub(crate) request_limiter: Option<RequestLimiterSource>,
}

type FromParts<T> = Box<dyn Fn(&Parts) -> T + Send + Sync>;

type RpcNameOf = Box<dyn for<'a> Fn(&'a Parts) -> Option<(&'a str, &'a str)> + Send + Sync>;

/// Selects the limiter of a [`RequestLimiter`](crate::RequestLimiter).
#[derive(Clone, Copy)]
pub(crate) enum RequestLimiterSource {
    /// The limiter that admitted the request.
    Same,
    /// The fixed limiter at this index.
    At(usize),
}
