//! Runs the benches as most services are built: with the allocator of the system, and without metrics.

use std::process::ExitCode;

fn main() -> ExitCode {
    tollgate_benches::main()
}
