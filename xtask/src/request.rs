//! `cargo xtask request`: counts the source files that work for a request.

use crate::{
    failure::{self, Failure},
    need,
    workspace::Workspace,
};

/// Builds `tools/request` in its own profile, and runs it. The tool runs itself under valgrind.
///
/// # Errors
///
/// When there is no server or no valgrind, when the program does not compile, or when a request
/// fails.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if !arguments.is_empty() {
        return Err(Failure::new("request takes no arguments"));
    }
    let workspace = Workspace::load()?;
    let mut command = workspace.cargo("run");
    command.args([
        "--quiet",
        "--profile",
        "request",
        "--package",
        "tollgate-request",
    ]);
    for (variable, binary) in need::provide(need::REQUEST, workspace.target())? {
        command.env(variable, binary);
    }
    failure::run(&mut command)
}
