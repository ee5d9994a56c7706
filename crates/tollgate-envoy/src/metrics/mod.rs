//! Counts under the names of Envoy's service, so that dashboards and alerts stay as they are.
//! Tollgate's own series are those of the core and of tollgate-rules.

mod histogram;
#[cfg(feature = "server")]
mod mapper;
mod names;
#[cfg(feature = "server")]
mod prometheus;
mod registry;
#[cfg(feature = "server")]
mod statsd;

#[cfg(feature = "server")]
pub(crate) use names::bounded;
#[cfg(feature = "server")]
pub use prometheus::prometheus_text;
pub(crate) use registry::Counted;
pub use registry::Metrics;
#[cfg(feature = "server")]
pub use statsd::{Statsd, StatsdProtocol};
