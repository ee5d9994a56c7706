//! Newer servers than those of the system: packages of another Debian release, unpacked into the target directory and
//! started by the loader that comes with them. Nothing is installed, and the package lists of the system do not change.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    failure::{self, Failure},
    workspace::Workspace,
};

/// A server in such packages.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: &'static str,
    /// The package, and the program in it, which is the server when it is started under the other name.
    package: &'static str,
    program: &'static str,
    called: &'static str,
}

pub(crate) const SERVERS: &[Server] = &[
    Server { name: "redis8", package: "redis-tools", program: "redis-check-rdb", called: "redis-server" },
    Server { name: "valkey8", package: "valkey-tools", program: "valkey-check-rdb", called: "valkey-server" },
];

/// The release of the packages.
const SUITE: &str = "trixie";
const MIRROR: &str = "http://deb.debian.org/debian";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Returns the server of this name.
///
/// # Errors
///
/// When there is none; the message lists the names.
pub(crate) fn named(name: &str) -> Result<&'static Server, Failure> {
    SERVERS.iter().find(|server| server.name == name).ok_or_else(|| {
        let names: Vec<_> = SERVERS.iter().map(|server| server.name).collect();
        Failure::new(format!("there is no server {name:?}: {} can be had", names.join(", ")))
    })
}

impl Server {
    /// Returns its path. Fetches and unpacks it first if that is not done.
    ///
    /// # Errors
    ///
    /// When there is no apt, when the mirror does not have the package, or when the server does not start.
    pub(crate) fn provide(&self, workspace: &Workspace) -> Result<PathBuf, Failure> {
        let home = workspace.target().join("servers").join(self.name);
        let script = home.join(self.called);
        if !is_sound(&script) {
            let _ = fs::remove_dir_all(&home);
            self.fetch(&home)?;
            fs::write(&script, self.script(&home)?).map_err(broken(&script))?;
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).map_err(broken(&script))?;
        }
        if !is_sound(&script) {
            return Err(Failure::new(format!("{} does not start", script.display())));
        }
        Ok(script)
    }

    fn fetch(&self, home: &Path) -> Result<(), Failure> {
        let packages = home.join("packages");
        let parts = ["lists/partial", "cache/archives/partial", "packages", "root"];
        for part in parts {
            fs::create_dir_all(home.join(part)).map_err(broken(home))?;
        }
        let source = format!("deb [signed-by={KEYRING}] {MIRROR} {SUITE} main\n");
        fs::write(home.join("sources.list"), source).map_err(broken(home))?;
        fs::write(home.join("apt.conf"), configuration(home)).map_err(broken(home))?;
        let apt = |program: &str| {
            let mut command = Command::new(program);
            command.env("APT_CONFIG", home.join("apt.conf")).current_dir(&packages);
            command
        };
        failure::run(apt("apt-get").args(["update", "-q"]))?;
        let depends = failure::output(apt("apt-cache").args(DEPENDS).arg(self.package))?;
        let names: BTreeSet<&str> = depends.lines().filter(|line| is_needed(line, self.package)).collect();
        failure::run(apt("apt-get").args(["download", "-q"]).args(names))?;
        for package in fs::read_dir(&packages).map_err(broken(&packages))? {
            let package = package.map_err(broken(&packages))?.path();
            failure::run(Command::new("dpkg").arg("-x").arg(package).arg(home.join("root")))?;
        }
        Ok(())
    }

    /// Returns a script that starts the program with the unpacked loader and libraries.
    fn script(&self, home: &Path) -> Result<String, Failure> {
        let root = home.join("root");
        let library = fs::read_dir(root.join("usr/lib")).map_err(broken(&root))?.filter_map(Result::ok);
        let library = library.map(|entry| entry.path()).find(|path| path.to_string_lossy().ends_with("-linux-gnu"));
        let library = library.ok_or_else(|| Failure::new("the packages hold no libraries"))?;
        let loaders = fs::read_dir(&library).map_err(broken(&library))?.filter_map(Result::ok);
        let is_loader =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"));
        let loader = loaders.map(|entry| entry.path()).find(is_loader);
        let loader = loader.ok_or_else(|| Failure::new("the packages hold no loader"))?;
        let (loader, library, called) = (loader.display(), library.display(), self.called);
        let program = root.join("usr/bin").join(self.program);
        let program = program.display();
        Ok(format!("#!/bin/sh\nexec '{loader}' --argv0 {called} --library-path '{library}' '{program}' \"$@\"\n"))
    }
}

const DEPENDS: [&str; 8] = [
    "depends",
    "--recurse",
    "--no-recommends",
    "--no-suggests",
    "--no-conflicts",
    "--no-breaks",
    "--no-replaces",
    "--no-enhances",
];

/// Returns whether a line of the dependency list names a library, or the package itself. Other packages only prepare a
/// system.
fn is_needed(line: &str, package: &str) -> bool {
    line == package || line.starts_with("lib") && !line.starts_with("libc-bin")
}

/// Returns a configuration of apt with its own lists and caches.
fn configuration(home: &Path) -> String {
    let home = home.display();
    format!(
        "Dir::Etc::sourcelist \"{home}/sources.list\";\nDir::Etc::sourceparts \"/dev/null\";\n\
         Dir::State::lists \"{home}/lists\";\nDir::Cache \"{home}/cache\";\nAPT::Sandbox::User \"root\";\n"
    )
}

fn is_sound(script: &Path) -> bool {
    script.exists() && failure::succeeds(Command::new(script).arg("--version"))
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
        let lines = ["redis-tools", "  Depends: adduser", "adduser", "libc6", "<libdebconf>", "libssl3t64", "debconf"];
        let needed: Vec<_> = lines.into_iter().filter(|line| is_needed(line, "redis-tools")).collect();
        assert_eq!(needed, ["redis-tools", "libc6", "libssl3t64"]);
    }

    #[test]
    fn an_unknown_server_is_an_error_that_lists_the_known_ones() {
        assert_eq!(named("valkey8").expect("it can be had").called, "valkey-server");
        let failure = named("redis9").expect_err("nobody has it");
        assert_eq!(failure.to_string(), "there is no server \"redis9\": redis8, valkey8 can be had");
    }
}
