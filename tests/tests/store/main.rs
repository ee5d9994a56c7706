//! Stores as an application uses them: on every deployment of Redis, in process, and through faults.

mod batches;
mod breaker;
mod cluster;
mod deadline;
mod diagnosis;
mod faults;
mod memory;
mod probe;
mod redis;
mod refusing_servers;
mod replicas;
mod runtimes;
mod suite;
mod tls;
mod wrapped;
