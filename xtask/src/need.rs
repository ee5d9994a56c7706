//! The programs that the tests need besides cargo: where they are found, and how they are installed.

use std::{
    env,
    ffi::OsString,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    failure::{self, Failure},
    servers,
};

/// Installs a program under a target directory.
type Fallback = fn(&Path) -> Result<PathBuf, Failure>;

/// A program that the tests start.
#[derive(Debug)]
struct Need {
    name: &'static str,
    /// The names of the program; the first one found is used.
    binaries: &'static [&'static str],
    /// The environment variable that names the binary. It wins over the search, and passes the result to the tests.
    variable: &'static str,
    /// The Debian package and the brew formula.
    apt: &'static str,
    brew: &'static str,
    /// Without a required program no test runs. An optional one is installed where that is possible; its tests are
    /// skipped where not.
    is_required: bool,
    /// Installs the program under the target directory, where the package manager does not have it.
    fallback: Option<Fallback>,
}

const REDIS: Need = Need {
    name: "a Redis server",
    binaries: &["redis-server", "valkey-server"],
    variable: "REDIS_SERVER",
    apt: "redis-server",
    brew: "redis",
    is_required: true,
    fallback: None,
};

/// All programs that the tests start.
const NEEDS: &[Need] = &[
    REDIS,
    Need {
        name: "a C compiler",
        binaries: &["cc", "gcc", "clang"],
        variable: "C_COMPILER",
        apt: "gcc",
        brew: "llvm",
        // The tests move the wall clock of a server with a library written in C, on Linux only.
        is_required: cfg!(target_os = "linux"),
        fallback: None,
    },
    Need {
        name: "a Valkey server",
        binaries: &["valkey-server"],
        variable: "VALKEY_SERVER",
        apt: "valkey-server",
        brew: "valkey",
        is_required: false,
        fallback: Some(servers::provide_valkey),
    },
];

/// Lists the programs that `cargo xtask faults` starts in addition when it runs as root.
const FAULT_NEEDS: &[Need] = &[Need {
    name: "a packet filter",
    binaries: &["nft"],
    variable: "NFT",
    apt: "nftables",
    brew: "nftables",
    is_required: false,
    fallback: None,
}];

/// Lists the programs that `cargo xtask browser` starts.
const BROWSER_NEEDS: &[Need] = &[
    REDIS,
    Need {
        name: "a browser",
        binaries: &["chromium", "chromium-browser", "google-chrome"],
        variable: "CHROMIUM",
        apt: "chromium",
        brew: "chromium",
        is_required: true,
        fallback: None,
    },
    Need {
        name: "Node.js",
        binaries: &["node"],
        variable: "NODE",
        apt: "nodejs",
        brew: "node",
        is_required: true,
        fallback: None,
    },
    Need {
        name: "npm",
        binaries: &["npm"],
        variable: "NPM",
        apt: "npm",
        brew: "node",
        is_required: true,
        fallback: None,
    },
];

/// Lists the programs that `cargo xtask request` starts.
const REQUEST_NEEDS: &[Need] = &[
    REDIS,
    Need {
        name: "callgrind",
        binaries: &["valgrind"],
        variable: "VALGRIND",
        apt: "valgrind",
        brew: "valgrind",
        is_required: true,
        fallback: None,
    },
];

/// Finds or installs all programs that the tests start; `target` is the target directory.
///
/// Returns the environment of the tests: the variable of each program found, and its path.
///
/// # Errors
///
/// When something required is missing and cannot be installed; the failure says what to install.
pub(crate) fn provide(target: &Path) -> Result<Vec<(&'static str, PathBuf)>, Failure> {
    provide_all(NEEDS, target)
}

/// As [`provide`], with the programs that only the fault suite uses, and only as root.
///
/// # Errors
///
/// As [`provide`].
pub(crate) fn provide_for_faults(target: &Path) -> Result<Vec<(&'static str, PathBuf)>, Failure> {
    let mut found = provide(target)?;
    if is_root() {
        found.extend(provide_all(FAULT_NEEDS, target)?);
    }
    Ok(found)
}

/// As [`provide`], with the programs that the browser tests start, and no others.
///
/// # Errors
///
/// As [`provide`].
pub(crate) fn provide_for_browser(target: &Path) -> Result<Vec<(&'static str, PathBuf)>, Failure> {
    provide_all(BROWSER_NEEDS, target)
}

/// As [`provide`], with the programs that count the files of a request, and no others.
///
/// # Errors
///
/// As [`provide`].
pub(crate) fn provide_for_request(target: &Path) -> Result<Vec<(&'static str, PathBuf)>, Failure> {
    provide_all(REQUEST_NEEDS, target)
}

fn provide_all(needs: &[Need], target: &Path) -> Result<Vec<(&'static str, PathBuf)>, Failure> {
    let mut found = Vec::new();
    for need in needs {
        if let Some(binary) = need.provide(target)? {
            eprintln!("{}: {}", need.name, binary.display());
            found.push((need.variable, binary));
        }
    }
    Ok(found)
}

impl Need {
    fn provide(&self, target: &Path) -> Result<Option<PathBuf>, Failure> {
        if let Some(binary) = self.find()? {
            return Ok(Some(binary));
        }
        if !self.is_required {
            return Ok(match self.provide_optional(target) {
                Ok(binary) => Some(binary),
                Err(failure) => {
                    eprintln!("{}", self.left_out(&failure.to_string()));
                    None
                }
            });
        }
        self.install()?;
        match self.find()? {
            Some(binary) => Ok(Some(binary)),
            None => Err(Failure::new(format!("the installation left no binary on PATH: {}", self.advice()))),
        }
    }

    /// Installs an optional program: by the package manager where it has the package, else by the fallback.
    fn provide_optional(&self, target: &Path) -> Result<PathBuf, Failure> {
        if self.is_known() {
            self.install()?;
            if let Some(binary) = self.find()? {
                return Ok(binary);
            }
        }
        match self.fallback {
            Some(install) => install(target).map_err(|failure| Failure::new(format!("{failure}; {}", self.advice()))),
            None => Err(Failure::new(self.advice())),
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

    /// Returns whether the package manager has the package. Its lists are not refreshed for an optional program.
    fn is_known(&self) -> bool {
        let mut ask = if cfg!(target_os = "macos") { Command::new("brew") } else { Command::new("apt-cache") };
        let words = if cfg!(target_os = "macos") { ["info", self.brew] } else { ["show", self.apt] };
        failure::succeeds(ask.args(words))
    }

    /// Formats a line that stands out in the output of the build.
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
            // One of many sources may be out of reach, or the lists are fresh enough: the installation is still tried.
            eprintln!("{failure}");
        }
        failure::run(command.install.stdin(Stdio::null()))
            .map_err(|failure| Failure::new(format!("{failure}; {}", self.advice())))
    }

    /// Returns the sentence for a machine on which this cannot install the program.
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

/// The commands of an installation, in this order.
#[derive(Debug)]
struct Installation {
    refresh: Option<Command>,
    install: Command,
}

/// Installs with apt; `wrapper` is the command that runs it as root, if one is needed.
fn apt(wrapper: &[&str], package: &str) -> Installation {
    // Through `env`, because sudo keeps the variable only where its configuration allows it.
    let words = [wrapper, &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]].concat();
    // Another apt may run on a machine that has just started.
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

/// Installs with brew, which refreshes its lists by itself.
fn brew(formula: &str) -> Installation {
    let mut install = Command::new("brew");
    install.args(["install", formula]);
    Installation { refresh: None, install }
}

/// Returns the sudo command. On CI nobody can type a password, so it refuses instead of asking.
fn sudo() -> &'static [&'static str] {
    if env::var_os("CI").is_some() { &["sudo", "-n"] } else { &["sudo"] }
}

fn is_root() -> bool {
    failure::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// Finds a program: itself if it is a path, else the first match in the directories of `path`.
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
    fn a_missing_optional_program_is_reported_loudly() {
        let need = Need {
            name: "a server of nobody's",
            binaries: &["no-such-program"],
            variable: "NO_SUCH_VARIABLE_ANYWHERE",
            apt: "no-such-package-anywhere",
            brew: "no-such-formula-anywhere",
            is_required: false,
            fallback: None,
        };
        assert!(!need.is_known());
        assert_eq!(need.provide(Path::new("/nowhere")).expect("it is optional"), None);
        let line = need.left_out(&need.advice());
        assert!(line.starts_with("*** THE TESTS ON A SERVER OF NOBODY'S ARE LEFT OUT: the tests need"), "{line}");
    }

    #[test]
    fn a_fallback_is_used_where_no_package_manager_has_the_program() {
        let need = Need {
            name: "a shell",
            binaries: &["no-such-program"],
            variable: "NO_SUCH_VARIABLE_ANYWHERE",
            apt: "no-such-package-anywhere",
            brew: "no-such-formula-anywhere",
            is_required: false,
            fallback: Some(|target| Ok(target.join("sh"))),
        };
        assert_eq!(need.provide(Path::new("/bin")).expect("it is optional"), Some(PathBuf::from("/bin/sh")));
        let failing = Need { fallback: Some(|_| Err(Failure::new("no network"))), ..need };
        assert_eq!(failing.provide(Path::new("/bin")).expect("it is optional"), None);
    }

    #[test]
    fn the_advice_names_every_remedy_in_one_sentence() {
        for need in NEEDS.iter().chain(FAULT_NEEDS) {
            let advice = need.advice();
            for word in [need.binaries[0], need.apt, need.brew, need.variable] {
                assert!(advice.contains(word), "{advice}");
            }
            assert!(!advice.contains(". "), "{advice}");
        }
    }
}
