//! `cargo xtask mutants`: breaks the code in small ways, and lists the faults that no test notices.

use crate::{
    cargo_tool::CargoTool,
    failure::{self, Failure},
    need,
    workspace::Workspace,
};

const MUTANTS: CargoTool = CargoTool {
    name: "cargo-mutants",
    version: "27.1.0",
};

/// Runs `cargo mutants` with these arguments, and with the servers of the tests.
/// `.cargo/mutants.toml` says what it leaves out.
///
/// # Errors
///
/// When the tool cannot be installed, when the tests cannot run, and when they miss a mutant.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let workspace = Workspace::load()?;
    let mut mutants = workspace.tool(&MUTANTS.provide(workspace.target())?);
    mutants
        .args(["mutants", "--output"])
        .arg(workspace.target())
        .args(arguments);
    failure::run(mutants.envs(need::provide(need::TESTS, workspace.target())?))
}
