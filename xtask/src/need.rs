//! What the tests need besides cargo, where it is found, and how it gets there.

use std::{
    env,
    ffi::OsString,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::failure::{self, Failure};

/// One program the tests start.
#[derive(Debug)]
struct Need {
    name: &'static str,
    /// Any of these will do, the first one found is taken.
    binaries: &'static [&'static str],
    /// Names a binary and wins over the search; the tests are told through it which binary to start.
    variable: &'static str,
    /// The Debian package and the brew formula it comes in.
    apt: &'static str,
    brew: &'static str,
    /// Without a required one nothing runs. An optional one is installed where the package manager knows it; the tests
    /// that start it say themselves that it is missing.
    is_required: bool,
}

/// Everything the tests start. A test that needs more adds a line here.
const NEEDS: &[Need] = &[
    Need {
        name: "a Redis server",
        binaries: &["redis-server", "valkey-server"],
        variable: "REDIS_SERVER",
        apt: "redis-server",
        brew: "redis",
        is_required: true,
    },
    Need {
        name: "a C compiler",
        binaries: &["cc", "gcc", "clang"],
        variable: "C_COMPILER",
        apt: "gcc",
        brew: "llvm",
        // The wall clock that is moved under a server is a library of C, for Linux.
        is_required: cfg!(target_os = "linux"),
    },
    Need {
        name: "a Valkey server",
        binaries: &["valkey-server"],
        variable: "VALKEY_SERVER",
        apt: "valkey-server",
        brew: "valkey",
        is_required: false,
    },
];

/// What `cargo xtask faults` starts besides, where it is root.
const FAULT_NEEDS: &[Need] = &[Need {
    name: "a packet filter",
    binaries: &["nft"],
    variable: "NFT",
    apt: "nftables",
    brew: "nftables",
    is_required: false,
}];

/// Finds or installs everything in the tests' table.
///
/// Returns the environment the tests get: for each program found, its variable and where it is.
///
/// # Errors
///
/// When something required is missing and cannot be installed; the failure says what to install.
pub(crate) fn provide() -> Result<Vec<(&'static str, PathBuf)>, Failure> {
    provide_all(NEEDS)
}

/// [`provide`], and what the faults need besides: nobody but root can make use of it.
///
/// # Errors
///
/// As [`provide`].
pub(crate) fn provide_for_faults() -> Result<Vec<(&'static str, PathBuf)>, Failure> {
    let mut found = provide()?;
    if is_root() {
        found.extend(provide_all(FAULT_NEEDS)?);
    }
    Ok(found)
}

fn provide_all(needs: &[Need]) -> Result<Vec<(&'static str, PathBuf)>, Failure> {
    let mut found = Vec::new();
    for need in needs {
        if let Some(binary) = need.provide()? {
            eprintln!("{}: {}", need.name, binary.display());
            found.push((need.variable, binary));
        }
    }
    Ok(found)
}

impl Need {
    fn provide(&self) -> Result<Option<PathBuf>, Failure> {
        if let Some(binary) = self.find()? {
            return Ok(Some(binary));
        }
        if !self.is_required {
            let installed = if self.is_known() { self.install() } else { Err(Failure::new(self.advice())) };
            let found = if installed.is_ok() { self.find()? } else { None };
            if found.is_none() {
                let why = installed.err().map_or_else(|| self.advice(), |failure| failure.to_string());
                eprintln!("{}", self.left_out(&why));
            }
            return Ok(found);
        }
        self.install()?;
        match self.find()? {
            Some(binary) => Ok(Some(binary)),
            None => Err(Failure::new(format!("the installation left no binary on PATH: {}", self.advice()))),
        }
    }

    fn find(&self) -> Result<Option<PathBuf>, Failure> {
        let path = env::var_os("PATH").unwrap_or_default();
        match env::var_os(self.variable).filter(|chosen| !chosen.is_empty()) {
            Some(chosen) => on_path(&path, &chosen).map(Some).ok_or_else(|| {
                let (variable, chosen) = (self.variable, chosen.display());
                Failure::new(format!("{variable} names {chosen}, which is not a program here: correct or unset it"))
            }),
            None => Ok(self.binaries.iter().find_map(|binary| on_path(&path, &OsString::from(binary)))),
        }
    }

    /// Whether the package manager has it to install. Its lists are taken as they are: for what is optional nothing is
    /// fetched that may not be there.
    fn is_known(&self) -> bool {
        let mut ask = if cfg!(target_os = "macos") { Command::new("brew") } else { Command::new("apt-cache") };
        let words = if cfg!(target_os = "macos") { ["info", self.brew] } else { ["show", self.apt] };
        failure::succeeds(ask.args(words))
    }

    /// Not to be overlooked among what the build prints.
    fn left_out(&self, why: &str) -> String {
        format!("*** THE TESTS ON {} ARE LEFT OUT: {why} ***", self.name.to_uppercase())
    }

    fn install(&self) -> Result<(), Failure> {
        let path = env::var_os("PATH").unwrap_or_default();
        let has = |program: &str| on_path(&path, &OsString::from(program)).is_some();
        let mut command = if cfg!(target_os = "macos") && has("brew") {
            brew(self.brew)
        } else if has("apt-get") && is_root() {
            apt(&[], self.apt)
        } else if has("apt-get") && has("sudo") {
            apt(sudo(), self.apt)
        } else {
            return Err(Failure::new(self.advice()));
        };
        eprintln!("{} is not on PATH: installing it", self.name);
        if let Some(refresh) = &mut command.refresh
            && let Err(failure) = failure::run(refresh.stdin(Stdio::null()))
        {
            // One source of many out of reach, or lists that are fresh enough: the package may be had all the same.
            eprintln!("{failure}");
        }
        failure::run(command.install.stdin(Stdio::null()))
            .map_err(|failure| Failure::new(format!("{failure}; {}", self.advice())))
    }

    /// The one sentence for a person whose machine cannot be helped from here.
    fn advice(&self) -> String {
        format!(
            "the tests need {name}: install {binaries} (`apt-get install {apt}`, `brew install {brew}`) \
             or name the binary in {variable}",
            name = self.name,
            binaries = self.binaries.join(" or "),
            apt = self.apt,
            brew = self.brew,
            variable = self.variable,
        )
    }
}

/// What to run, in this order.
#[derive(Debug)]
struct Installation {
    refresh: Option<Command>,
    install: Command,
}

/// `wrapper` is what makes it root, if anything has to.
fn apt(wrapper: &[&str], package: &str) -> Installation {
    // Through `env`, because sudo keeps the variable only where its configuration allows it.
    let words = [wrapper, &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]].concat();
    // Another apt may be at work on a machine that has just started.
    let patient = ["-y", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3"];
    let apt_get = |rest: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(patient).args(rest);
        command
    };
    Installation {
        refresh: Some(apt_get(&["update"])),
        install: apt_get(&["install", "--no-install-recommends", package]),
    }
}

/// Brew refreshes by itself.
fn brew(formula: &str) -> Installation {
    let mut install = Command::new("brew");
    install.args(["install", formula]);
    Installation { refresh: None, install }
}

/// Where nobody can type a password, a refusal is better than a prompt.
fn sudo() -> &'static [&'static str] {
    if env::var_os("CI").is_some() { &["sudo", "-n"] } else { &["sudo"] }
}

fn is_root() -> bool {
    failure::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// Where `program` is: itself if it is a path, else the first match in the directories of `path`.
fn on_path(path: &OsString, program: &OsString) -> Option<PathBuf> {
    if Path::new(program).components().count() > 1 {
        let program = std::path::absolute(program).ok()?;
        return is_executable(&program).then_some(program);
    }
    env::split_paths(path).map(|directory| directory.join(program)).find(|candidate| is_executable(candidate))
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(installation: &Installation) -> Vec<String> {
        let commands = installation.refresh.iter().chain([&installation.install]);
        commands.map(failure::spelled).collect()
    }

    #[test]
    fn the_package_lists_are_refreshed_before_the_package_is_installed() {
        let commands = spelled(&apt(&[], "redis-server"));
        assert_eq!(commands.len(), 2);
        assert!(commands[0].starts_with("env DEBIAN_FRONTEND=noninteractive apt-get -y"), "{commands:?}");
        assert!(commands[0].ends_with("update"), "{commands:?}");
        assert!(commands[1].ends_with("install --no-install-recommends redis-server"), "{commands:?}");
    }

    #[test]
    fn sudo_comes_before_everything_else() {
        for command in spelled(&apt(&["sudo", "-n"], "redis-server")) {
            assert!(command.starts_with("sudo -n env DEBIAN_FRONTEND=noninteractive apt-get"), "{command}");
        }
    }

    #[test]
    fn a_program_is_found_by_name_or_by_path_and_only_if_it_can_run() {
        let (path, file) = (OsString::from("/nowhere:/usr/bin:/bin"), OsString::from("/bin/sh"));
        assert!(on_path(&path, &OsString::from("sh")).is_some_and(|sh| sh.ends_with("sh")));
        assert_eq!(on_path(&path, &file), Some(PathBuf::from("/bin/sh")));
        assert_eq!(on_path(&path, &OsString::from("no-such-program")), None);
        assert_eq!(on_path(&path, &OsString::from("/etc/passwd")), None);
    }

    #[test]
    fn what_no_package_manager_knows_is_left_out_aloud() {
        let need = Need {
            name: "a server of nobody's",
            binaries: &["no-such-program"],
            variable: "NO_SUCH_VARIABLE_ANYWHERE",
            apt: "no-such-package-anywhere",
            brew: "no-such-formula-anywhere",
            is_required: false,
        };
        assert!(!need.is_known());
        assert_eq!(need.provide().expect("it is optional"), None);
        let line = need.left_out(&need.advice());
        assert!(line.starts_with("*** THE TESTS ON A SERVER OF NOBODY'S ARE LEFT OUT: the tests need"), "{line}");
    }

    #[test]
    fn the_advice_names_every_way_out_in_one_sentence() {
        for need in NEEDS.iter().chain(FAULT_NEEDS) {
            let advice = need.advice();
            for word in [need.binaries[0], need.apt, need.brew, need.variable] {
                assert!(advice.contains(word), "{advice}");
            }
            assert!(!advice.contains(". "), "{advice}");
        }
    }
}
