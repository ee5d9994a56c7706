//! `cargo xtask bench`: Tollgate and its peers on the same work.

use crate::{
    failure::{self, Failure},
    need,
    workspace::{BENCHES, Workspace},
};

/// Builds the benches with the peers, optimised, and runs them; the arguments are theirs.
///
/// # Errors
///
/// When there is no server to measure against, anything does not compile, or a contestant answers wrongly.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let workspace = Workspace::load()?;
    let mut command = workspace.cargo("run");
    command.args(["--quiet", "--profile", "bench", "--package", BENCHES, "--"]).args(arguments);
    for (variable, binary) in need::provide()? {
        command.env(variable, binary);
    }
    failure::run(&mut command)
}
