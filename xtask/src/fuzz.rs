//! `cargo xtask fuzz`: what reads strangers' words, fed with millions of made-up ones.

use crate::{
    failure::{self, Failure},
    workspace::Workspace,
};

/// Builds the program optimised, with the checks of a test build, and runs it; the arguments are its own.
///
/// # Errors
///
/// When anything does not compile, or a law does not hold: the input that breaks it is printed.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut command = Workspace::load()?.cargo("run");
    command.args(["--quiet", "--profile", "fuzz", "--package", "tollgate-tests", "--all-features"]);
    command.args(["--example", "fuzz", "--"]).args(arguments);
    failure::run(&mut command)
}
