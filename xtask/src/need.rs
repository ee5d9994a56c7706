//! The programs that the tests need besides cargo: where they are found, and how they are
//! installed.

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    failure::{self, Failure},
    servers,
};

/// The variables that name the programs that were found, and their paths.
pub(crate) type Found = Vec<(&'static str, PathBuf)>;

/// Installs a program under the target directory.
type Substitute = fn(&Path) -> Result<PathBuf, Failure>;

/// A program that a task starts.
#[derive(Debug)]
pub(crate) struct Need {
    pub(crate) name: &'static str,
    /// The environment variable that names the binary. It wins over the search, and passes the
    /// result on.
    variable: &'static str,
    /// The names of the program; the first one found is used.
    binaries: &'static [&'static str],
    /// The Debian package and the brew formula.
    apt: &'static str,
    brew: &'static str,
    /// Without a required program the task fails. What needs an optional one is left out.
    is_required: bool,
    /// Takes the place of the package manager, for a required program where that may not install.
    substitute: Option<Substitute>,
}

const fn need(
    name: &'static str,
    variable: &'static str,
    binaries: &'static [&'static str],
    [apt, brew]: [&'static str; 2],
) -> Need {
    Need {
        name,
        variable,
        binaries,
        apt,
        brew,
        is_required: true,
        substitute: None,
    }
}

const REDIS: Need = need(
    "a Redis server",
    "REDIS_SERVER",
    &["redis-server", "valkey-server"],
    ["redis-server", "redis"],
);

/// Debian has the server beside PATH.
const POSTGRES: Need = Need {
    substitute: Some(servers::provide_postgres),
    ..need(
        "a PostgreSQL server",
        "POSTGRES",
        &[
            "postgres",
            "/usr/lib/postgresql/18/bin/postgres",
            "/usr/lib/postgresql/17/bin/postgres",
            "/usr/lib/postgresql/16/bin/postgres",
            "/usr/lib/postgresql/15/bin/postgres",
            "/usr/lib/postgresql/14/bin/postgres",
        ],
        ["postgresql", "postgresql"],
    )
};

/// The programs that the tests start.
pub(crate) const TESTS: &[Need] = &[
    REDIS,
    POSTGRES,
    // Debian has it beside the PATH of users.
    need(
        "a PgBouncer server",
        "PGBOUNCER",
        &["pgbouncer", "/usr/sbin/pgbouncer"],
        ["pgbouncer", "pgbouncer"],
    ),
    Need {
        // The tests move the wall clock of a server with a library written in C, on Linux only.
        is_required: cfg!(target_os = "linux"),
        ..need(
            "a C compiler",
            "C_COMPILER",
            &["cc", "gcc", "clang"],
            ["gcc", "llvm"],
        )
    },
    Need {
        is_required: false,
        substitute: Some(servers::provide_valkey),
        ..need(
            "a Valkey server",
            "VALKEY_SERVER",
            &["valkey-server"],
            ["valkey-server", "valkey"],
        )
    },
];

/// The program that `cargo xtask faults` starts in addition when it runs as root.
pub(crate) const FAULTS: &[Need] = &[Need {
    is_required: false,
    ..need("a packet filter", "NFT", &["nft"], ["nftables", "nftables"])
}];

/// The programs that `cargo xtask browser` starts.
pub(crate) const BROWSER: &[Need] = &[
    REDIS,
    need(
        "a browser",
        "CHROMIUM",
        &["chromium", "chromium-browser", "google-chrome"],
        ["chromium", "chromium"],
    ),
    need("Node.js", "NODE", &["node"], ["nodejs", "node"]),
    need("npm", "NPM", &["npm"], ["npm", "node"]),
];

/// Finds or installs these programs; `target` is the target directory.
///
/// # Errors
///
/// When something required is missing and cannot be installed; the failure says what to install.
pub(crate) fn provide(needs: &[Need], target: &Path) -> Result<Found, Failure> {
    let mut found = Vec::new();
    for need in needs {
        match need.provide(target) {
            Ok(binary) => {
                eprintln!("{}: {}", need.name, binary.display());
                found.push((need.variable, binary));
            }
            Err(failure) if need.is_required => return Err(failure),
            Err(failure) => eprintln!("{}", need.left_out(&failure)),
        }
    }
    Ok(found)
}

impl Need {
    fn provide(&self, target: &Path) -> Result<PathBuf, Failure> {
        if let Some(binary) = self.find()? {
            return Ok(binary);
        }
        let installed = match self.substitute {
            Some(install) if !self.is_required || !is_root() => install(target).map(Some),
            _ => self.install().and_then(|()| self.find()),
        };
        match installed {
            Ok(Some(binary)) => Ok(binary),
            Ok(None) => Err(self.missing("the package has no such program on PATH")),
            Err(failure) => Err(self.missing(&failure.to_string())),
        }
    }

    fn find(&self) -> Result<Option<PathBuf>, Failure> {
        let path = env::var_os("PATH").unwrap_or_default();
        match env::var_os(self.variable).filter(|chosen| !chosen.is_empty()) {
            Some(chosen) => on_path(&path, &chosen).map(Some).ok_or_else(|| {
                let (variable, chosen) = (self.variable, chosen.display());
                Failure::new(format!(
                    "{variable} names {chosen}, which is not a program here: correct or unset it"
                ))
            }),
            None => Ok(self
                .binaries
                .iter()
                .find_map(|binary| on_path(&path, OsStr::new(binary)))),
        }
    }

    /// Installs the program by the package manager, where that needs no password.
    fn install(&self) -> Result<(), Failure> {
        let mut install = if cfg!(target_os = "macos") {
            let mut brew = Command::new("brew");
            brew.args(["install", self.brew]);
            brew
        } else if is_root() {
            // One of many sources may be out of reach, or the lists are fresh enough: the
            // installation is still tried.
            let _ =
                failure::run(apt_get().arg("update")).inspect_err(|failure| eprintln!("{failure}"));
            let mut apt = apt_get();
            apt.args(["install", "--no-install-recommends", self.apt]);
            apt
        } else {
            return Err(Failure::new("only root may install it"));
        };
        failure::run(&mut install)
    }

    /// Formats a line that stands out in the output of the build.
    fn left_out(&self, why: &Failure) -> String {
        format!(
            "*** WHAT NEEDS {} IS LEFT OUT: {why} ***",
            self.name.to_uppercase()
        )
    }

    /// Returns the sentence that says what to do about a program that this cannot install.
    fn missing(&self, why: &str) -> Failure {
        let (name, variable, binaries) = (self.name, self.variable, self.binaries.join(" or "));
        let (apt, brew) = (self.apt, self.brew);
        Failure::new(format!(
            "{name} is missing ({why}): install {binaries} (`apt-get install {apt}`, `brew install {brew}`) or name the \
             binary in {variable}"
        ))
    }
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    // Another apt may run on a machine that has just started.
    command.args([
        "-y",
        "-o",
        "DPkg::Lock::Timeout=300",
        "-o",
        "Acquire::Retries=3",
    ]);
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null());
    command
}

pub(crate) fn is_root() -> bool {
    failure::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// Finds a program: itself if it is a path, else the first match in the directories of `path`.
fn on_path(path: &OsString, program: &OsStr) -> Option<PathBuf> {
    if Path::new(program).components().count() > 1 {
        let program = std::path::absolute(program).ok()?;
        return is_executable(&program).then_some(program);
    }
    env::split_paths(path)
        .map(|directory| directory.join(program))
        .find(|candidate| is_executable(candidate))
}

fn is_executable(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_name_or_by_path_and_only_if_it_can_run() {
        let path = OsString::from("/nowhere:/usr/bin:/bin");
        let on_path = |program: &str| on_path(&path, OsStr::new(program));
        assert!(on_path("sh").is_some_and(|sh| sh.ends_with("sh")));
        assert_eq!(on_path("/bin/sh"), Some(PathBuf::from("/bin/sh")));
        assert_eq!(
            [on_path("no-such-program"), on_path("/etc/passwd")],
            [None, None]
        );
    }

    #[test]
    fn a_program_that_is_missing_is_a_sentence_with_every_remedy() {
        for need in [TESTS, FAULTS, BROWSER].into_iter().flatten() {
            let missing = need.missing("why").to_string();
            for word in [need.binaries[0], need.apt, need.brew, need.variable] {
                assert!(
                    missing.contains(word) && !missing.contains(". "),
                    "{missing}"
                );
            }
        }
    }

    #[test]
    fn an_optional_program_comes_from_its_substitute_or_is_left_out_loudly() {
        let packages = ["no-such-package-anywhere", "no-such-formula-anywhere"];
        let nobodys = need(
            "a shell of nobody's",
            "NO_SUCH_VARIABLE_ANYWHERE",
            &["no-such-program"],
            packages,
        );
        let optional = Need {
            is_required: false,
            substitute: Some(|target| Ok(target.join("sh"))),
            ..nobodys
        };
        assert_eq!(
            optional.provide(Path::new("/bin")).expect("installed"),
            PathBuf::from("/bin/sh")
        );
        let failing = Need {
            substitute: Some(|_| Err(Failure::new("no network"))),
            ..optional
        };
        let line = failing.left_out(&failing.provide(Path::new("/bin")).expect_err("no network"));
        let begin = "*** WHAT NEEDS A SHELL OF NOBODY'S IS LEFT OUT: a shell of nobody's is missing (no network): install";
        assert!(line.starts_with(begin), "{line}");
        assert_eq!(
            provide(&[failing], Path::new("/bin")).expect("it is optional"),
            []
        );
    }
}
