//! Checks the files that the crates would publish.
//!
//! The core crate reads the Lua scripts through a directory link, `crates/tollgate/scripts -> ../../scripts`. Cargo packs
//! the files only if it is a link. In a checkout where it is a text file, the crate would be published without its
//! scripts. So this compares the list of packed files with the directory.

use std::{collections::BTreeSet, fs, path::Path};

use crate::{
    failure::{self, Failure},
    workspace::Workspace,
};

const CORE: &str = "tollgate";

/// The crate on which the core depends.
const MACROS: &str = "tollgate-macros";

/// Lists the packed files of every published crate, and builds the core crate from them.
///
/// # Errors
///
/// When a script is not packed, when a crate cannot be packed, or when the packed core does not build.
pub(crate) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let scripts = scripts(&workspace.root().join("scripts"))?;
    for name in workspace.published() {
        let packed = list(workspace, name)?;
        if name == CORE {
            let packed = packed.lines().collect();
            complete(&scripts, &packed)?;
        }
    }
    // The crates above the core name a version of it that is not published yet, so only the core can be built, with its
    // macros.
    let mut package = workspace.cargo("package");
    package.args(["--package", MACROS, "--package", CORE, "--allow-dirty"]);
    // Shares the compiled dependencies of the workspace.
    package.env("CARGO_TARGET_DIR", workspace.target());
    failure::run(&mut package)
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

fn complete(scripts: &[String], packed: &BTreeSet<&str>) -> Result<(), Failure> {
    let absent: Vec<_> =
        scripts.iter().filter(|script| !packed.contains(script.as_str())).map(String::as_str).collect();
    if absent.is_empty() {
        eprintln!("{CORE} packs {}", scripts.join(", "));
        Ok(())
    } else {
        Err(Failure::new(format!(
            "{CORE} would be published without {}: is crates/{CORE}/scripts still a link to ../../scripts?",
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
        assert!(complete(&scripts, &all).is_ok());
        let part = BTreeSet::from(["src/lib.rs", "scripts/a.lua"]);
        let failure = complete(&scripts, &part).expect_err("b is absent");
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
