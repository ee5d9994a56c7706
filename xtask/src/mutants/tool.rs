use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{
    Binaries,
    results::{NOTICED, Outcome},
    sample,
};
use crate::{
    cargo_tool::CargoTool,
    failure::{self, Failure},
};

/// The tool that makes the mutants.
const MUTANTS: CargoTool = CargoTool { name: "cargo-mutants", version: "27.1.0" };

/// Runs `cargo-mutants` in a copy of the workspace.
#[derive(Debug)]
pub(super) struct Tool {
    binary: PathBuf,
    home: PathBuf,
    binaries: Binaries,
}

/// Names the tests that a mutant is tested with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Scope {
    packages: &'static str,
    targets: &'static [&'static str],
    /// The most seconds that the tests may take: ten times as long as they do. A mutant that takes longer hangs, which is
    /// noticed.
    timeout: &'static str,
}

impl Scope {
    /// Returns the tests for a mutant, the nearest first. The last ones are all tests of the crates that use the code.
    /// Examples in the documentation are left out.
    pub(super) fn steps(package: &str, mutant: &str) -> Vec<Self> {
        let of = |packages, targets, timeout| Self { packages, targets, timeout };
        let all = |packages| of(packages, &["--lib", "--tests"], "600");
        match package {
            "tollgate" => {
                let nearest = of("tollgate", &["--lib"], "120");
                let on_servers = of("tollgate,tollgate-tests", &["--lib", "--test", "store"], "900");
                let all = of("tollgate,tollgate-tests,tollgate-tower", &["--lib", "--tests"], "3600");
                // Hardly any test of the Redis store does without a server.
                let first = usize::from(mutant.starts_with("crates/tollgate/src/redis/"));
                vec![nearest, on_servers, all].split_off(first)
            }
            "tollgate-tower" => vec![all("tollgate-tower,tollgate-tonic")],
            "tollgate-rules" => vec![all("tollgate-rules,tollgate-cli,tollgate-envoy")],
            "tollgate-cli" => vec![all("tollgate-cli")],
            "tollgate-envoy" => vec![all("tollgate-envoy")],
            _ => vec![all("tollgate-tonic")],
        }
    }
}

impl Tool {
    /// Installs the tool under `target` if it is missing. `home` holds the copy, its build and the results.
    pub(super) fn provide(target: &Path, home: &Path, binaries: Binaries) -> Result<Self, Failure> {
        Ok(Self { binary: MUTANTS.provide(target)?, home: home.to_owned(), binaries })
    }

    /// Returns the copy of the workspace.
    pub(super) fn tree(&self) -> PathBuf {
        self.home.join("tree")
    }

    /// Lists the mutants of a package, one line each: `file:line:column: change`.
    pub(super) fn list(&self, package: &str, files: &[String]) -> Result<Vec<String>, Failure> {
        let mut command = self.command(package);
        command.arg("--list");
        for file in files {
            command.args(["--file", file]);
        }
        Ok(failure::output(&mut command)?.lines().map(str::to_owned).collect())
    }

    /// Tests some of `all` mutants of a package one by one, with the tests of a scope.
    ///
    /// The tool's filter of names lets every mutant of the kind "delete field" through. So the other mutants are written
    /// where the tool looks for those that it noticed earlier.
    pub(super) fn test(
        &self,
        all: &[String],
        mutants: &[String],
        scope: &Scope,
        package: &str,
    ) -> Result<Outcome, Failure> {
        let out = self.home.join("out");
        let results = out.join("mutants.out");
        let _ = fs::remove_dir_all(&out);
        let others: Vec<&str> = all.iter().filter(|one| !mutants.contains(one)).map(String::as_str).collect();
        fs::create_dir_all(&results)
            .and_then(|()| fs::write(results.join(NOTICED), others.join("\n")))
            .map_err(|error| Failure::new(format!("cannot write {}: {error}", results.display())))?;
        let mut command = self.command(package);
        command.args([
            "--in-place",
            "--iterate",
            "--all-features",
            "--baseline",
            "skip",
            "--timeout",
            scope.timeout,
            "--no-times",
        ]);
        command.arg("--output").arg(&out).args(["--test-package", scope.packages]);
        for file in mutants.iter().map(|mutant| sample::file(mutant)).collect::<BTreeSet<_>>() {
            command.args(["--file", file]);
        }
        // What follows `--` is left out when the tool compiles the tests: it would compile and link all of them.
        command.args(scope.targets.iter().map(|target| format!("--cargo-arg={target}"))).stdin(Stdio::null());
        // The tool ends with 2 when a mutant was missed, and with 3 when one hung.
        let spelled = format!("cargo mutants: {} mutants of {package}, tests of {scope:?}", mutants.len());
        eprintln!("$ {spelled}");
        let status = command.status().map_err(|error| Failure::new(format!("cannot start `{spelled}`: {error}")))?;
        if !matches!(status.code(), Some(0 | 2 | 3)) {
            return Err(Failure::new(format!("`{spelled}` failed: {status}")));
        }
        Outcome::read(&results)
    }

    fn command(&self, package: &str) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(["mutants", "--package", package]).current_dir(self.tree());
        command.env("CARGO_TARGET_DIR", self.home.join("target"));
        for (variable, binary) in &self.binaries {
            command.env(variable, binary);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_is_tested_with_the_nearest_tests_first() {
        let steps = Scope::steps("tollgate", "crates/tollgate/src/key.rs:1:1: change");
        assert_eq!(
            steps.iter().map(|scope| scope.targets).collect::<Vec<_>>(),
            [&["--lib"][..], &["--lib", "--test", "store"], &["--lib", "--tests"]]
        );
        assert_eq!(Scope::steps("tollgate", "crates/tollgate/src/redis/url.rs:1:1: change"), steps[1..]);
    }
}
