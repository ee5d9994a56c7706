//! Asks cargo for the root of this workspace, its members, and which of them are published.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::failure::{self, Failure};

/// The package of the benches. It compiles the peers, so the tests and the quick lints leave it
/// out.
pub(crate) const BENCHES: &str = "tollgate-benches";

/// The packages of examples and tests whose libraries nothing else needs.
const HEAVY: [&str; 4] = [
    "tollgate-examples-actix",
    "tollgate-examples-libraries",
    "tollgate-macros-errors",
    "tollgate-tests-full",
];

/// Adds a small example to what cargo builds or documents. Only then it counts the features of
/// dev-dependencies, and the libraries are those of the tests.
pub(crate) const AS_TESTED: [&str; 2] = ["--example", "recorder"];

/// Optimises what the tests run most. Relative to the root of the workspace.
const OPTIMISED: &str = "tests/optimised.toml";

#[derive(Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
    target: PathBuf,
    members: Vec<Member>,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) is_published: bool,
    /// The package in the form of `cargo metadata`.
    pub(crate) package: Value,
}

impl Member {
    /// Returns whether only a full run of the tests needs it: a program for contributors, in the
    /// folder `tools`, or examples and tests with libraries of their own.
    fn is_for_full_runs(&self) -> bool {
        let manifest = Path::new(self.package["manifest_path"].as_str().unwrap_or_default());
        let folder = manifest.parent().and_then(Path::parent);
        let is_tool = !self.is_published && folder.is_some_and(|folder| folder.ends_with("tools"));
        is_tool || HEAVY.contains(&self.name.as_str())
    }
}

impl Workspace {
    /// Runs `cargo metadata`.
    ///
    /// # Errors
    ///
    /// When `cargo metadata` fails or prints an unknown form.
    pub(crate) fn load() -> Result<Self, Failure> {
        let mut metadata = Command::new(cargo());
        metadata.args(["metadata", "--no-deps", "--format-version", "1"]);
        metadata.current_dir(env!("CARGO_MANIFEST_DIR"));
        Self::parse(&failure::output(&mut metadata)?)
            .ok_or_else(|| Failure::new("`cargo metadata` answered in an unknown form"))
    }

    fn parse(metadata: &str) -> Option<Self> {
        let metadata: Value = serde_json::from_str(metadata).ok()?;
        let members = metadata["packages"].as_array()?.iter().map(|package| {
            Some(Member {
                name: package["name"].as_str()?.to_owned(),
                // Null is "to any registry", a list is "to these", an empty list is
                // `publish = false`.
                is_published: package["publish"]
                    .as_array()
                    .is_none_or(|to| !to.is_empty()),
                package: package.clone(),
            })
        });
        Some(Self {
            root: metadata["workspace_root"].as_str()?.into(),
            target: metadata["target_directory"].as_str()?.into(),
            members: members.collect::<Option<_>>()?,
        })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the manifest. Given to cargo as a configuration, it tells the profiles of the
    /// workspace to a build of what is no member.
    pub(crate) fn manifest(&self) -> PathBuf {
        self.root.join("Cargo.toml")
    }

    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.members.iter().any(|member| member.name == name)
    }

    /// Returns the version of a member, and nothing for a package that is none.
    pub(crate) fn version(&self, name: &str) -> &str {
        let member = self.members.iter().find(|member| member.name == name);
        member
            .and_then(|member| member.package["version"].as_str())
            .unwrap_or_default()
    }

    pub(crate) fn published(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.is_published)
    }

    /// Returns the command `cargo <subcommand>` at the root of the workspace.
    pub(crate) fn cargo(&self, subcommand: &str) -> Command {
        let mut command = Command::new(cargo());
        command.arg(subcommand).current_dir(&self.root);
        forget_package(&mut command);
        command
    }

    /// Returns the command that runs a program at the root of the workspace.
    pub(crate) fn tool(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        self.build_alike(&mut command, true);
        command
    }

    /// Tells a program that builds others to build them as it was built, with or without what only a
    /// full run needs. The library that does it is `tests/src`.
    pub(crate) fn build_alike(&self, program: &mut Command, with_tools: bool) {
        program.env("TEST_CARGO_CONFIG", self.root.join(OPTIMISED));
        if !with_tools {
            let others: Vec<_> = self.for_full_runs().collect();
            program.env("TEST_CARGO_EXCLUDE", others.join(" "));
        }
    }

    /// Returns the command `cargo <subcommand> --workspace` without the benches.
    pub(crate) fn cargo_workspace(&self, subcommand: &str) -> Command {
        self.cargo_members(subcommand, false)
    }

    /// Returns the command `cargo test --workspace --all-features` without the benches, with or
    /// without what only a full run needs. Some dependencies then have other features, so whatever
    /// builds for the same run makes the same choice.
    pub(crate) fn cargo_test(&self, with_tools: bool) -> Command {
        let mut command = self.cargo_workspace("test");
        command.args(["--config", OPTIMISED, "--all-features"]);
        if !with_tools {
            self.exclude_tools(&mut command);
        }
        command
    }

    /// Leaves out what only a full run of the tests needs.
    pub(crate) fn exclude_tools(&self, command: &mut Command) {
        self.for_full_runs()
            .for_each(|other| _ = command.args(["--exclude", other]));
    }

    fn for_full_runs(&self) -> impl Iterator<Item = &str> {
        let members = self.members.iter();
        members
            .filter(|member| member.is_for_full_runs())
            .map(|member| member.name.as_str())
    }

    /// Returns the command that builds what the tests start, beside the programs of
    /// [`cargo_test`](Self::cargo_test): all examples, and the quickstart.
    pub(crate) fn cargo_examples(&self, with_tools: bool) -> Command {
        let mut command = self.cargo_build(&["--examples", "--bin", "quickstart"]);
        if with_tools {
            command.args(["--bin", "actix"]);
        } else {
            self.exclude_tools(&mut command);
        }
        command
    }

    /// Returns the command `cargo <subcommand> --workspace`, with or without the benches.
    ///
    /// The benches are never a command of their own: their dependencies would have other features,
    /// and be compiled again.
    pub(crate) fn cargo_members(&self, subcommand: &str, with_benches: bool) -> Command {
        let mut command = self.cargo(subcommand);
        command.arg("--workspace");
        match (with_benches, self.has(BENCHES)) {
            // A peer declares a newer Rust than it needs.
            (true, true) => _ = command.arg("--ignore-rust-version"),
            (false, true) => _ = command.args(["--exclude", BENCHES]),
            (_, false) => {}
        }
        command
    }

    /// Returns the command that builds programs of the workspace as the tests are built: with all
    /// features, in their profile. Then nothing is compiled twice.
    pub(crate) fn cargo_build(&self, programs: &[&str]) -> Command {
        let mut command = self.cargo_workspace("build");
        command
            .args(["--config", OPTIMISED, "--quiet", "--profile", "test"])
            .arg("--all-features")
            .args(AS_TESTED)
            .args(programs);
        command
    }

    /// Returns the programs that have documentation.
    pub(crate) fn documented_programs(&self) -> impl Iterator<Item = &str> {
        let targets = self
            .members
            .iter()
            .filter_map(|member| member.package["targets"].as_array())
            .flatten();
        targets
            .filter(|target| target["doc"] == true && target["kind"][0] == "bin")
            .filter_map(|target| target["name"].as_str())
    }
}

/// Removes the variables by which cargo names the package of a program that it runs. Build scripts
/// of some dependencies watch them, and would run again each time that cargo is started from
/// another place.
pub(crate) fn forget_package(command: &mut Command) {
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in
        names.filter(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
    {
        command.env_remove(name);
    }
}

/// Returns the cargo that runs this task, so that `cargo +version` chooses the toolchain of all
/// commands.
fn cargo() -> std::ffi::OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_compiles_no_library_that_serves_one_test() {
        let workspace = Workspace::load().expect("cargo metadata works here");
        let mut found: Vec<_> = workspace.for_full_runs().collect();
        found.sort_unstable();
        let tools = ["tollgate-faults", "tollgate-foreign", "tollgate-protocols"];
        let mut expected = [HEAVY.as_slice(), &tools].concat();
        expected.sort_unstable();
        assert_eq!(found, expected);
        let excluded = |command: &Command| {
            let words: Vec<_> = command.get_args().collect();
            let pairs = words.windows(2).filter(|pair| pair[0] == "--exclude");
            pairs.map(|pair| pair[1].to_owned()).collect::<Vec<_>>()
        };
        let tests = excluded(&workspace.cargo_test(false));
        for name in &expected {
            assert!(tests.iter().any(|other| other == name), "{name}");
        }
        assert_eq!(excluded(&workspace.cargo_examples(false)), tests);
        assert_eq!(
            excluded(&workspace.cargo_examples(true)),
            excluded(&workspace.cargo_test(true))
        );
    }

    #[test]
    fn programs_are_built_beside_an_example_so_that_they_have_the_features_of_the_tests() {
        let workspace = Workspace::load().expect("cargo metadata works here");
        let build = failure::spelled(&workspace.cargo_build(&["--bin", "tollgate-faults"]));
        assert!(
            build.ends_with(
                "--profile test --all-features --example recorder --bin tollgate-faults"
            ),
            "{build}"
        );
        let tests = workspace
            .members
            .iter()
            .find(|member| member.name == "tollgate-tests")
            .expect("the tests");
        let targets = tests.package["targets"].as_array().expect("a list");
        assert!(
            targets
                .iter()
                .any(|target| target["name"] == "recorder" && target["kind"][0] == "example")
        );
    }
}
