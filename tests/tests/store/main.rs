//! Stores as an application uses them: on every deployment of Redis, in process, and through faults.

mod batches;
mod blocking;
mod breaker;
mod cluster;
mod deadline;
mod diagnosis;
mod distance;
mod diversity;
mod faults;
mod forgetful_server;
mod live_change;
mod memory;
mod order;
mod overload;
mod paused_server;
mod probe;
mod redis;
mod refusing_servers;
mod replicas;
mod rest;
mod runtimes;
mod suite;
mod swing;
mod tls;
mod with_policies;
mod wrapped;
