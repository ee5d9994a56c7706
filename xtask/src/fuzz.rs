//! `cargo xtask fuzz`: feeds the parsers of untrusted input with millions of generated inputs.

use crate::{
    failure::{self, Failure},
    workspace::Workspace,
};

/// The number of inputs of each target, unless `PROPTEST_CASES` is set.
const INPUTS: &str = "5000000";

/// Builds the tests of `tools/fuzz` optimised, with the checks of a test build, and runs those that
/// the arguments name.
///
/// # Errors
///
/// When they do not compile, or a law does not hold: the input that breaks it is printed.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut command = Workspace::load()?.cargo("test");
    command
        .args(["--quiet", "--profile", "fuzz", "--package", "tollgate-fuzz"])
        .args(arguments);
    if std::env::var_os("PROPTEST_CASES").is_none() {
        command.env("PROPTEST_CASES", INPUTS);
    }
    failure::run(&mut command)
}
