//! Installs subcommands of cargo into the target directory.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::failure::{self, Failure};

/// A subcommand of cargo, in a pinned version.
#[derive(Debug)]
pub(crate) struct CargoTool {
    /// The name of the crate and of its binary.
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}

impl CargoTool {
    /// Returns the path that the binary has under a target directory, also when it is not installed.
    pub(crate) fn path(&self, target: &Path) -> PathBuf {
        self.root(target).join("bin").join(self.name)
    }

    /// Installs the tool under a target directory if it is missing, and returns its binary.
    ///
    /// # Errors
    ///
    /// When the registry cannot be reached, or the tool does not build.
    pub(crate) fn provide(&self, target: &Path) -> Result<PathBuf, Failure> {
        let binary = self.path(target);
        if !binary.is_file() {
            let mut install = Command::new("cargo");
            // A tool compiles three times as fast without optimisation, and runs for a second.
            install.args(["install", "--locked", "--debug", "--version", self.version, "--root"]);
            install.arg(self.root(target));
            failure::run(install.arg(self.name))?;
        }
        Ok(binary)
    }

    fn root(&self, target: &Path) -> PathBuf {
        target.join("tools").join(format!("{}-{}", self.name, self.version))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_tool_that_is_installed_is_used_and_another_version_is_another_file() {
        let target = tempfile::tempdir().expect("a temporary directory can be made");
        let tool = CargoTool { name: "cargo-example", version: "1.0.0" };
        let binary = tool.path(target.path());
        fs::create_dir_all(binary.parent().expect("it is in a directory")).expect("the directory is ours");
        fs::write(&binary, "").expect("the directory is ours");
        assert_eq!(tool.provide(target.path()).expect("it is there"), binary);
        assert_ne!(CargoTool { version: "1.0.1", ..tool }.path(target.path()), binary);
    }
}
