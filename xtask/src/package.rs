//! Builds the crates from the files that they would publish.
//!
//! The core crate reads the Lua scripts through a directory link,
//! `crates/tollgate/scripts -> ../../scripts`. Cargo packs the files only if it is a link. In a
//! checkout where it is a text file, the packed crate does not build.

use std::process::Command;

use crate::{
    failure::{self, Failure},
    workspace::Workspace,
};

/// Builds the packed core crate, and the crate of macros on which it depends. The others take
/// minutes: [`rehearse`] builds all.
///
/// # Errors
///
/// When a crate cannot be packed, or the packed core does not build.
pub(crate) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let mut package = workspace.cargo("package");
    package.args([
        "--package",
        "tollgate-macros",
        "--package",
        "tollgate",
        "--allow-dirty",
    ]);
    failure::run(share(workspace, &mut package))
}

/// Rehearses the publication of all crates: packs them in their order, and builds each from the
/// packed ones below it.
///
/// Nothing is uploaded. Needs cargo 1.90 or newer, and a tree without changes, as the publication
/// itself does.
///
/// # Errors
///
/// When a crate cannot be packed, or does not build from its packed files.
pub(crate) fn rehearse(workspace: &Workspace) -> Result<(), Failure> {
    let mut publish = workspace.cargo("publish");
    publish.args(["--workspace", "--dry-run", "--locked"]);
    failure::run(share(workspace, &mut publish))
}

/// Lets cargo use the compiled dependencies of the workspace. A packed crate does not have the
/// profile of the workspace.
fn share<'a>(workspace: &Workspace, command: &'a mut Command) -> &'a mut Command {
    for variable in [
        "CARGO_PROFILE_DEV_DEBUG",
        "CARGO_PROFILE_DEV_BUILD_OVERRIDE_DEBUG",
    ] {
        command.env(variable, "line-tables-only");
    }
    command.args(["--config", "profile.dev.package.\"*\".debug=false"]);
    command.env("CARGO_TARGET_DIR", workspace.target())
}
