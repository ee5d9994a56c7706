//! Runs the benches with the feature `metrics` of all crates. The services that are counted record for
//! Prometheus.

use std::process::ExitCode;

fn main() -> ExitCode {
    tollgate_benches::main()
}
