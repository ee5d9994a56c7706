//! `cargo xtask fuzz`: feeds the parsers of untrusted input with millions of generated inputs.

use crate::{
    failure::{self, Failure},
    workspace::Workspace,
};

/// Builds `tools/fuzz` optimised, with the checks of a test build, and runs it with these arguments.
///
/// # Errors
///
/// When the program does not compile, or a law does not hold: the input that breaks it is printed.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut command = Workspace::load()?.cargo("run");
    command.args(["--quiet", "--profile", "fuzz", "--package", "tollgate-fuzz", "--"]).args(arguments);
    failure::run(&mut command)
}
