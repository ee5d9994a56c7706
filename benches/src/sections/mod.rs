//! What is measured, one file each.

mod check;
mod grpc;
mod http;
mod latency;
mod layer;
pub(crate) mod memory;
mod repeat;
mod scripts;
mod throughput;

use crate::{pace::Pace, report::Findings};

/// A section: its name on the command line, and the work.
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: fn(&Pace) -> Findings,
}

/// In the order of the report.
pub(crate) const ALL: &[Section] = &[
    // First: its figure moves most with how sections before it have left the memory.
    Section { name: "layer", about: "one request through a layer around nothing", run: layer::run },
    Section { name: "check", about: "one decision inside the process", run: check::run },
    Section { name: "throughput", about: "concurrent callers through Redis", run: throughput::run },
    Section { name: "latency", about: "one caller through Redis, and a pool that was handed over", run: latency::run },
    Section { name: "denied", about: "who keeps asking after a denial", run: repeat::run },
    Section { name: "scripts", about: "what a decision costs the server", run: scripts::run },
    Section { name: "memory", about: "a million keys inside the process", run: memory::run },
    Section { name: "grpc", about: "unary calls of a tonic service", run: grpc::run },
    Section { name: "http", about: "an Axum service under wrk", run: http::run },
];
