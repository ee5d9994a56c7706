//! `cargo xtask model`: explores the protocols that give units away, in every order of their messages
//! and faults.

use crate::{
    failure::{self, Failure},
    workspace::Workspace,
};

/// Builds `tools/protocols` in the profile of the tests and runs it with these arguments.
///
/// # Errors
///
/// When the program does not compile, does not know an argument, or finds a violation.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let workspace = Workspace::load()?;
    failure::run(&mut workspace.cargo_build(&["--bin", "tollgate-protocols"]))?;
    let mut command = workspace.tool(&workspace.target().join("debug/tollgate-protocols"));
    failure::run(command.args(arguments))
}
