//! Limits on requests in flight that follow the latency of the service.

mod layer;
mod limits;
mod simulated;
mod simulation;
