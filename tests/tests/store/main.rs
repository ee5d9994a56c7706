//! Stores as an application uses them: on every deployment of Redis, in process, and through faults.

mod batches;
mod breaker;
mod cluster;
mod deadline;
mod diagnosis;
mod faults;
mod forgetful_server;
mod memory;
mod order;
mod probe;
mod redis;
mod refusing_servers;
mod rest;
mod runtimes;
mod suite;
mod tls;
mod wrapped;
