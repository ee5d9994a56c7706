//! Tests that start other programs: several processes at one server, also with leases, and with
//! callers that wait, processes with wrong clocks, also with exceptions, the quickstart, the examples of gRPC, of sessions, of
//! actix-web, of reqwest-middleware, of priorities, of
//! enforcement, of events, of OpenTelemetry, of ranked rules and of log-ins, the examples whose
//! limits come from a database or renew with the customer, that defers jobs, of outgoing calls, of a language model, of long
//! exports, of WebSockets, with metrics for Prometheus, and that counts in a file, and the
//! playground.

mod actix;
mod bound;
mod clocks;
mod crowd;
mod deferred_jobs;
mod enforcement;
mod events;
mod exceptions;
mod export_permits;
mod fair_shares;
mod grpc;
mod http;
mod leases;
mod linear;
mod llm_gateway;
mod login;
mod mcp_tools;
mod opentelemetry;
mod outgoing_calls;
mod playground;
mod postgres;
mod priorities;
mod prometheus;
mod queue;
mod quickstart;
mod renewals;
mod replicas;
mod reqwest_middleware;
mod rules;
mod sessions;
mod sqlite;
mod tenants;
mod websocket;

use std::time::Duration;

/// A tenth of the deadline of a check, which may wait for a core in each of the processes that it
/// passes. The examples are as a user writes them, and have no longer deadline. So a scene that fails
/// while the machine stands still for so long says nothing.
const STANDSTILL: Duration = Duration::from_millis(5);
