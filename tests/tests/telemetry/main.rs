//! Tests what an operator sees: log lines, metrics and the dashboard, and that no secret is among
//! it.
//!
//! Tracing decides once per process whether a line is enabled, so all tests that read the log are
//! in this program: each collects by [`Log`](tollgate_tests::Log), which keeps the lines of all
//! levels enabled.

mod dashboard;
mod diagnosis_log;
mod distance_log;
mod metrics;
mod outage_log;
mod postgres_log;
mod proxy_log;
mod secrets;
