//! Measures one subject in each file.

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

/// Describes a section: its name on the command line, its purpose, and the function that measures.
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: fn(&Pace) -> Findings,
}

/// Lists the sections in the order of the report.
pub(crate) const ALL: &[Section] = &[
    // This section is the first one, because its figures depend most on the memory layout that earlier sections leave.
    Section { name: "layer", about: "one request through a layer around an empty service", run: layer::run },
    Section { name: "check", about: "one decision in process", run: check::run },
    Section { name: "throughput", about: "concurrent callers through Redis", run: throughput::run },
    Section { name: "latency", about: "one caller through Redis, and a pool as the source", run: latency::run },
    Section { name: "denied", about: "clients that are denied again and again", run: repeat::run },
    Section { name: "scripts", about: "server time of a decision, for each script", run: scripts::run },
    Section { name: "memory", about: "a million keys in process", run: memory::run },
    Section { name: "grpc", about: "unary calls of a tonic service", run: grpc::run },
    Section { name: "http", about: "an Axum service under wrk", run: http::run },
];
