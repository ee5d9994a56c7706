//! The groups of rows: each starts its servers, and runs one or two scripts against them.

use crate::{case::Line, clients::Clients};

mod fields;
mod forwarding;
mod grpc;
mod kinds;
mod ratelimit;
mod retries;

/// A group of rows.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
    /// Returns the lines of the scripts. The flag asks for the short form.
    pub(crate) run: fn(&Clients, bool) -> Vec<Line>,
}

pub(crate) const ALL: &[Group] = &[
    Group {
        name: "forwarding",
        title: "Envoy in front: whose address counts",
        about: "Spoofed forwarding headers, sent through Envoy to the example `behind_a_proxy`. With right settings no spoof \
                gets a second quota. The wrong settings are rows too: their spoofs get through, as `ForwardedIp` documents.",
        run: forwarding::run,
    },
    Group {
        name: "retries",
        title: "Envoy, grpcio, openai and anthropic as clients that wait",
        about: "A denied request is sent again by the client itself, after the wait that the response tells. One retry is \
                allowed, so a retry that comes too early fails the case.",
        run: retries::run,
    },
    Group {
        name: "grpc",
        title: "gRPC and gRPC-Web through Envoy",
        about: "The example `grpc_server` behind Envoy: denials arrive with their code, their details and their pushback.",
        run: grpc::run,
    },
    Group {
        name: "fields",
        title: "Rate limit fields, read strictly",
        about: "Every header format from stacks of layers, read with a parser of RFC 9651, or with parsers of Go's durations and of dates: fields parse, names are unique, \
                numbers fit their limits, and no field promises an earlier time than Retry-After.",
        run: fields::run,
    },
    Group {
        name: "kinds",
        title: "Kinds of requests",
        about: "HEAD, GET, OPTIONS, POST with `Expect: 100-continue`, an upgrade to WebSocket, HTTP/2: allowed and denied. \
                Uploads that a layer, a layer of permits and a handler deny before they were read: the client receives the denial.",
        run: kinds::run,
    },
    Group {
        name: "ratelimit",
        title: "Envoy asks `tollgate-envoy`",
        about: "The rate limit filter of Envoy asks the service before each request, over HTTP and gRPC, in both modes. The \
                service or its Redis may be away. The checks are those of Envoy's rate limit service.",
        run: ratelimit::run,
    },
];
