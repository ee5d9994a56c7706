//! The program `tollgate-envoy`: a rate limit service for Envoy.
//!
//! `tollgate-envoy --help` lists the settings. `docs/envoy.md` says how to replace Envoy's own
//! service.

// What the program does is in `command/`.

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::main()
}
