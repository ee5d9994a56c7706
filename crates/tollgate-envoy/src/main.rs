//! The program `tollgate-envoy`: a rate limit service for Envoy.
//!
//! `tollgate-envoy --help` lists the settings. `docs/envoy.md` says how to replace Envoy's own
//! service.

// What the program does is in `command/`.

mod command;

use std::process::ExitCode;

/// Allocates. The allocator of musl, of which the image is made, takes three times as long as that of
/// glibc, which takes longer than this one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    command::main()
}
