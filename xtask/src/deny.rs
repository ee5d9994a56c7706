//! Checks licences, bans, sources and advisories by `deny.toml`.

use std::process::Command;

use crate::{
    cargo_tool::CargoTool,
    failure::{self, Failure},
    workspace::Workspace,
};

const DENY: CargoTool = CargoTool {
    name: "cargo-deny",
    version: "0.20.2",
};

const NOT_INSTALLED: &str = "cargo-deny is not installed, deny.toml is not checked: `cargo xtask release dependencies` installs it";

/// Checks the dependencies if `cargo-deny` is installed. Otherwise a line says that they are not
/// checked.
///
/// # Errors
///
/// Names the check that failed.
pub(crate) fn check_if_installed(workspace: &Workspace) -> Result<(), Failure> {
    if DENY.path(workspace.target()).is_file() {
        return check(|| installed(workspace));
    }
    if failure::succeeds(workspace.cargo("deny").arg("--version")) {
        return check(|| workspace.cargo("deny"));
    }
    eprintln!("{NOT_INSTALLED}");
    Ok(())
}

/// Installs `cargo-deny` if it is missing, and checks the dependencies.
///
/// # Errors
///
/// As [`check_if_installed`], and when the tool cannot be installed.
pub(crate) fn install_and_check(workspace: &Workspace) -> Result<(), Failure> {
    DENY.provide(workspace.target())?;
    check(|| installed(workspace))
}

fn installed(workspace: &Workspace) -> Command {
    let mut deny = workspace.tool(&DENY.path(workspace.target()));
    deny.arg("deny");
    deny
}

/// Runs the checks. Without the database of advisories, a line says what is not checked.
fn check(deny: impl Fn() -> Command) -> Result<(), Failure> {
    failure::run(deny().args([
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]))?;
    if let Err(unreachable) = failure::run(deny().args(["fetch", "db"])) {
        eprintln!("{unreachable}: the advisories are not checked");
        return Ok(());
    }
    failure::run(deny().args(["check", "advisories"]))
}
