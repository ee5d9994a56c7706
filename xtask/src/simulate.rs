//! `cargo xtask simulate`: simulates how processes share a server.

use crate::{
    failure::{self, Failure},
    workspace::Workspace,
};

/// Builds the simulation, optimised, and runs it with these arguments.
///
/// # Errors
///
/// When the simulation does not compile, or when it cannot write its page.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut command = Workspace::load()?.cargo("run");
    command
        .args([
            "--quiet",
            "--release",
            "--package",
            "tollgate-simulation",
            "--",
        ])
        .args(arguments);
    failure::run(&mut command)
}
