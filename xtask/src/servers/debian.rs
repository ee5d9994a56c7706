//! Servers from packages of a Debian release, unpacked and started by the loader that comes with
//! them. Nothing is installed, and the package lists of the system do not change.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    failure::{self, Failure},
    pypi::entries,
};

/// A server in such packages: of the tools of this product, a program that is the server when it is
/// started under the other name.
#[derive(Debug)]
pub(super) struct Debian {
    /// The release.
    pub(super) suite: &'static str,
    pub(super) product: &'static str,
}

const MIRROR: &str = "http://deb.debian.org/debian";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

impl Debian {
    /// Returns the name under which the program is the server.
    fn called(&self) -> String {
        format!("{}-server", self.product)
    }

    /// Returns its path. Fetches it into `home` and unpacks it first if that is not done.
    ///
    /// # Errors
    ///
    /// When there is no apt, when the mirror does not have the package, or when the server does not
    /// start.
    pub(super) fn provide(&self, home: &Path) -> Result<PathBuf, Failure> {
        let script = home.join(self.called());
        if !failure::starts(&script) {
            let _ = fs::remove_dir_all(home);
            self.fetch(home)?;
            fs::write(&script, self.script(home)?).map_err(broken(&script))?;
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755))
                .map_err(broken(&script))?;
        }
        if !failure::starts(&script) {
            return Err(Failure::new(format!("{} does not start", script.display())));
        }
        Ok(script)
    }

    fn fetch(&self, home: &Path) -> Result<(), Failure> {
        let packages = home.join("packages");
        let parts = [
            "lists/partial",
            "cache/archives/partial",
            "packages",
            "root",
        ];
        for part in parts {
            fs::create_dir_all(home.join(part)).map_err(broken(home))?;
        }
        let source = format!("deb [signed-by={KEYRING}] {MIRROR} {} main\n", self.suite);
        fs::write(home.join("sources.list"), source).map_err(broken(home))?;
        fs::write(home.join("status"), "").map_err(broken(home))?;
        fs::write(home.join("apt.conf"), configuration(home)).map_err(broken(home))?;
        let apt = |program: &str| {
            let mut command = Command::new(program);
            command
                .env("APT_CONFIG", home.join("apt.conf"))
                .current_dir(&packages);
            command
        };
        failure::run(apt("apt-get").args(["update", "-q"]))?;
        let package = format!("{}-tools", self.product);
        let depends = ["depends", "--recurse", "--important", &package];
        let depends = failure::output(apt("apt-cache").args(depends))?;
        let lines = depends.lines();
        let names: BTreeSet<&str> = lines.filter(|line| is_needed(line, &package)).collect();
        failure::run(apt("apt-get").args(["download", "-q"]).args(names))?;
        for package in fs::read_dir(&packages).map_err(broken(&packages))? {
            let package = package.map_err(broken(&packages))?.path();
            let mut unpack = Command::new("dpkg");
            failure::run(unpack.arg("-x").arg(package).arg(home.join("root")))?;
        }
        Ok(())
    }

    /// Returns a script that starts the program with the unpacked loader and libraries.
    fn script(&self, home: &Path) -> Result<String, Failure> {
        let root = home.join("root");
        // Older releases have some of them beside `usr`.
        let libraries: Vec<PathBuf> = ["usr/lib", "lib"]
            .iter()
            .flat_map(|directory| entries(&root.join(directory)))
            .filter(|path| path.to_string_lossy().ends_with("-linux-gnu"))
            .collect();
        let is_loader = |path: &PathBuf| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"))
        };
        let loader = libraries
            .iter()
            .flat_map(|library| entries(library))
            .find(is_loader);
        let loader = loader.ok_or_else(|| Failure::new("the packages hold no loader"))?;
        let libraries: Vec<_> = libraries
            .iter()
            .map(|library| library.to_string_lossy())
            .collect();
        let (loader, libraries, called) = (loader.display(), libraries.join(":"), self.called());
        let program = root.join(format!("usr/bin/{}-check-rdb", self.product));
        let program = program.display();
        Ok(format!(
            "#!/bin/sh\nexec '{loader}' --argv0 {called} --library-path '{libraries}' '{program}' \"$@\"\n"
        ))
    }
}

/// Returns whether a line of the dependency list names a library, or the package itself. Other
/// packages only prepare a system.
fn is_needed(line: &str, package: &str) -> bool {
    line == package || line.starts_with("lib") && !line.starts_with("libc-bin")
}

/// Returns a configuration of apt with its own lists and caches, in which no package is installed:
/// apt would else download the version that the system has, which this release may not.
fn configuration(home: &Path) -> String {
    let home = home.display();
    format!(
        "Dir::Etc::sourcelist \"{home}/sources.list\";\nDir::Etc::sourceparts \"/dev/null\";\n\
         Dir::State::lists \"{home}/lists\";\n\
         Dir::State::status \"{home}/status\";\nDir::Cache \"{home}/cache\";\nAPT::Sandbox::User \"root\";\n"
    )
}

fn broken(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    let path = path.display().to_string();
    move |error| Failure::new(format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_libraries_of_the_dependencies_are_needed() {
        let lines = [
            "redis-tools",
            "  Depends: adduser",
            "adduser",
            "libc6",
            "<libdebconf>",
            "libssl3t64",
            "debconf",
        ];
        let needed: Vec<_> = lines
            .into_iter()
            .filter(|line| is_needed(line, "redis-tools"))
            .collect();
        assert_eq!(needed, ["redis-tools", "libc6", "libssl3t64"]);
    }
}
