//! Packages from PyPI, each list in a virtual environment of its own under the target directory.
//!
//! Nothing of the system changes. A list names every package with its version, and `pip` installs
//! nothing else.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::failure::{self, Failure};

/// The file in an environment that holds the list of what was installed whole.
const INSTALLED: &str = "installed.txt";

/// Returns the directory of these packages in the environment `home`, which is made anew if it has
/// others. `more` are further options of pip.
///
/// # Errors
///
/// When there is no python3 with the module venv, and when PyPI lacks a package for this machine or
/// cannot be reached.
pub(crate) fn provide(home: &Path, pins: &str, more: &[&str]) -> Result<PathBuf, Failure> {
    let list = home.join(INSTALLED);
    let is_installed = fs::read_to_string(&list).is_ok_and(|installed| installed == pins);
    if !is_installed || !python(home).is_file() {
        install(home, pins, more)?;
        fs::write(&list, pins)
            .map_err(|error| Failure::new(format!("cannot write {}: {error}", list.display())))?;
    }
    let libraries = entries(&home.join("lib")).into_iter();
    let mut packages = libraries.map(|library| library.join("site-packages"));
    packages
        .find(|packages| packages.is_dir())
        .ok_or_else(|| Failure::new(format!("{} has no packages", home.display())))
}

fn install(home: &Path, pins: &str, more: &[&str]) -> Result<(), Failure> {
    let listed = pins.lines().filter(|line| line.contains("=="));
    let packages: Vec<_> = listed.filter(|line| !line.starts_with('#')).collect();
    let _ = fs::remove_dir_all(home);
    failure::run(Command::new("python3").args(["-m", "venv"]).arg(home))?;
    let mut install = Command::new(python(home));
    install.args(["-m", "pip", "install", "--quiet", "--no-input"]);
    install.args(["--disable-pip-version-check", "--retries", "2"]);
    // The list has all that is used. What a package asks for beyond that is not needed.
    install.arg("--no-deps").args(more).args(packages);
    failure::run(&mut install)
}

/// Returns the Python of the environment.
pub(crate) fn python(home: &Path) -> PathBuf {
    home.join("bin/python")
}

/// Returns the entries of a directory, none where it cannot be read.
pub(crate) fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .collect()
}
