//! The groups of rows: each starts its servers, and runs scripts against them.

use crate::clients::Clients;

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
    /// Runs the scripts, and panics where one fails. The flag asks for the short form.
    pub(crate) run: fn(&Clients, bool),
}

pub(crate) const ALL: &[Group] = &[
    Group {
        name: "forwarding",
        title: "Envoy in front: whose address counts",
        about: "Spoofed forwarding headers, sent through Envoy to the example `behind_a_proxy`. With right settings no \
                spoof gets a second quota. The wrong settings are rows too: their spoofs get through, as `ForwardedIp` \
                documents.",
        run: forwarding::run,
    },
    Group {
        name: "retries",
        title: "Clients that read the fields, and wait",
        about: "A denied request is sent again by Envoy, grpcio, openai or anthropic itself, after the wait that the \
                response tells. One retry is allowed, so a retry that comes too early fails the case. Parsers of RFC \
                9651 and of Go's durations read the fields of each format.",
        run: retries::run,
    },
    Group {
        name: "grpc",
        title: "gRPC and gRPC-Web through Envoy",
        about: "The example `grpc_server` behind Envoy: denials arrive with their code, their details and their \
                pushback.",
        run: grpc::run,
    },
    Group {
        name: "kinds",
        title: "Kinds of requests",
        about: "HEAD, GET, OPTIONS, POST, an upgrade to WebSocket, HTTP/2: allowed and denied. Uploads that a layer, a \
                layer of permits and a handler deny before they were read: the client receives the denial.",
        run: kinds::run,
    },
    Group {
        name: "ratelimit",
        title: "Envoy asks `tollgate-envoy`",
        about: "The rate limit filter of Envoy asks the service before each request, over HTTP and gRPC, in both \
                modes. The service or its Redis may be away. A gateway of Kuadrant reserves and settles by gRPC.",
        run: ratelimit::run,
    },
];
