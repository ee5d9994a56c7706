//! Compares the public interface with that of the last release.

use std::process::Command;

use super::steps;
use crate::{
    cargo_tool::CargoTool,
    failure::{self, Failure},
    workspace::Workspace,
};

const SEMVER_CHECKS: CargoTool = CargoTool { name: "cargo-semver-checks", version: "0.51.0" };

/// Finds changes that the version of the next release does not allow. The baseline is the last tag `v…`.
///
/// Before the first tag there is nothing to compare with, and a line says so.
///
/// # Errors
///
/// When a change breaks the interface and the version does not say so, or when the tool cannot be installed.
pub(super) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let mut describe = Command::new("git");
    describe.args(["tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname"]).current_dir(workspace.root());
    let tags = failure::output(&mut describe)?;
    let Some(tag) = baseline(&tags) else {
        eprintln!("there is no tag v…: the first release has no interface to compare with");
        return Ok(());
    };
    let mut check = workspace.tool(&SEMVER_CHECKS.provide(workspace.target())?);
    check.args(["semver-checks", "--baseline-rev", tag]).args(steps::packages(workspace));
    failure::run(check.env("CARGO_TARGET_DIR", steps::target(workspace)))
}

/// Returns the newest tag of a list that begins with the newest.
fn baseline(tags: &str) -> Option<&str> {
    tags.lines().map(str::trim).find(|tag| tag.starts_with('v'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_is_the_newest_tag_if_there_is_one() {
        assert_eq!(baseline("v0.2.0\nv0.1.0\n"), Some("v0.2.0"));
        assert_eq!(baseline(""), None);
    }
}
