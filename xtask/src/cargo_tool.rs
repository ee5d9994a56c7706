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
    /// Returns the path that the binary has under a target directory, also when it is not
    /// installed.
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
            install.args([
                "install",
                "--locked",
                "--debug",
                "--version",
                self.version,
                "--root",
            ]);
            install.arg(self.root(target));
            failure::run(install.arg(self.name))?;
        }
        Ok(binary)
    }

    fn root(&self, target: &Path) -> PathBuf {
        target
            .join("tools")
            .join(format!("{}-{}", self.name, self.version))
    }
}
