//! Checks the files that the crates would publish.
//!
//! The core crate reads the Lua scripts through a directory link, `crates/tollgate/scripts -> ../../scripts`. Cargo packs
//! the files only if it is a link. In a checkout where it is a text file, the crate would be published without its
//! scripts. So this compares the list of packed files with the directory.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use crate::{
    failure::{self, Failure},
    metadata,
    workspace::Workspace,
};

const CORE: &str = "tollgate";

/// The crate on which the core depends.
const MACROS: &str = "tollgate-macros";

/// Lists the packed files of every published crate, and builds the core crate from them.
///
/// # Errors
///
/// When a script, a README or a licence is not packed, when a crate cannot be packed, or when the packed core does not build.
pub(crate) fn check(workspace: &Workspace) -> Result<(), Failure> {
    check_lists(workspace)?;
    // The others take minutes: `rehearse` builds all of them.
    let mut package = workspace.cargo("package");
    package.args(["--package", MACROS, "--package", CORE, "--allow-dirty"]);
    failure::run(share(workspace, &mut package))
}

/// Checks the list of packed files of every published crate.
fn check_lists(workspace: &Workspace) -> Result<(), Failure> {
    let scripts = scripts(&workspace.root().join("scripts"))?;
    for name in workspace.published() {
        let packed = list(workspace, name)?;
        let packed = packed.lines().collect();
        complete(name, metadata::FILES, &packed)?;
        if name == CORE {
            complete(name, &scripts, &packed)?;
        }
    }
    Ok(())
}

/// Rehearses the publication of all crates: packs them in their order, and builds each from the packed ones below it.
///
/// Nothing is uploaded. Needs cargo 1.90 or newer, and a tree without changes, as the publication itself does.
///
/// # Errors
///
/// When a crate cannot be packed, or does not build from its packed files.
pub(crate) fn rehearse(workspace: &Workspace) -> Result<(), Failure> {
    check_lists(workspace)?;
    let mut publish = workspace.cargo("publish");
    publish.args(["--workspace", "--dry-run", "--locked"]);
    failure::run(share(workspace, &mut publish))
}

/// Lets cargo use the compiled dependencies of the workspace. A packed crate does not have the profile of the workspace.
fn share<'a>(workspace: &Workspace, command: &'a mut Command) -> &'a mut Command {
    for variable in ["CARGO_PROFILE_DEV_DEBUG", "CARGO_PROFILE_DEV_BUILD_OVERRIDE_DEBUG"] {
        command.env(variable, "line-tables-only");
    }
    command.args(["--config", "profile.dev.package.\"*\".debug=false"]);
    command.env("CARGO_TARGET_DIR", workspace.target())
}

/// Returns the scripts by their packed names: `scripts/NAME.lua`.
fn scripts(directory: &Path) -> Result<Vec<String>, Failure> {
    let unreadable = |error| Failure::new(format!("cannot read {}: {error}", directory.display()));
    let mut scripts = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".lua") {
            scripts.push(format!("scripts/{name}"));
        }
    }
    if scripts.is_empty() {
        return Err(Failure::new(format!("there is no script in {}", directory.display())));
    }
    scripts.sort();
    Ok(scripts)
}

fn list(workspace: &Workspace, name: &str) -> Result<String, Failure> {
    let mut list = workspace.cargo("package");
    list.args(["--list", "--package", name, "--allow-dirty"]);
    failure::output(&mut list)
}

/// Checks that a crate packs all of the wanted files.
fn complete(
    name: &str,
    wanted: impl IntoIterator<Item = impl AsRef<str>>,
    packed: &BTreeSet<&str>,
) -> Result<(), Failure> {
    let wanted = wanted.into_iter();
    let absent: Vec<_> = wanted.map(|file| file.as_ref().to_owned()).filter(|file| !packed.contains(&**file)).collect();
    if absent.is_empty() {
        Ok(())
    } else {
        Err(Failure::new(format!(
            "{name} would be published without {}: are the links in its folder still links?",
            absent.join(", ")
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_is_not_packed_is_named() {
        let scripts = ["scripts/a.lua".to_owned(), "scripts/b.lua".to_owned()];
        let all = BTreeSet::from(["src/lib.rs", "scripts/a.lua", "scripts/b.lua"]);
        assert!(complete(CORE, &scripts, &all).is_ok());
        let part = BTreeSet::from(["src/lib.rs", "scripts/a.lua"]);
        let failure = complete(CORE, &scripts, &part).expect_err("b is absent");
        assert!(failure.to_string().contains("without scripts/b.lua:"), "{failure}");
    }

    #[test]
    fn a_directory_without_scripts_is_a_failure() {
        assert!(scripts(Path::new("/no/such/directory")).is_err());
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let failure = scripts(&sources).expect_err("there is no Lua among the sources");
        assert!(failure.to_string().starts_with("there is no script in"), "{failure}");
    }
}
