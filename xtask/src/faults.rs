//! `cargo xtask faults`: the faults a limiter has to survive, raised and measured.

use crate::{
    failure::{self, Failure},
    need,
    workspace::Workspace,
};

/// Builds the program with the tests' package, as the tests are built, and runs it; the arguments are its own.
///
/// # Errors
///
/// When there is no server, anything does not compile, or a row could not be carried out. A figure that misses its
/// target is no failure: it says so.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let workspace = Workspace::load()?;
    let mut command = workspace.cargo("run");
    command.args(["--quiet", "--package", "tollgate-tests", "--all-features", "--example", "faults", "--"]);
    command.args(arguments);
    for (variable, binary) in need::provide_for_faults()? {
        command.env(variable, binary);
    }
    failure::run(&mut command)
}
