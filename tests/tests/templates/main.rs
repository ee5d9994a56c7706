//! The templates and the compose files: they are expanded, built and started, and what needs a
//! container runtime or a cluster is compared with the program.

mod generated;
mod grafana;
mod manifests;
mod service;
