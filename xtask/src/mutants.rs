//! `cargo xtask mutants`: breaks the code in small ways, and lists the faults that no test notices.
//!
//! [cargo-mutants](https://mutants.rs) runs the tests for each fault. One that no test notices is a
//! hole in the tests, or it changes nothing. Arguments are passed on:
//!
//! ```console
//! $ cargo xtask mutants --package tollgate --shard 3/200 --sharding round-robin
//! $ cargo xtask mutants --file 'crates/tollgate/src/redis/dispatch/*.rs' --test-package tollgate,tollgate-tests
//! $ cargo xtask mutants --in-diff my.diff
//! $ cargo xtask mutants --package tollgate-tonic --test-package tollgate-tonic
//! ```
//!
//! These are a sample, some files, what a change touches, and every mutant of a crate, for a night.
//! `--test-package` names the crates whose tests run, and saves linking the others. The target is
//! that the tests notice 92 % of the mutants that compile, in each crate. `.cargo/mutants.toml`
//! lists the mutants that change nothing, each with the reason why no test can notice it.

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
