//! `cargo xtask lint`: checks the sources.

use std::process::Command;

use crate::{
    circles,
    failure::{self, Failure},
    package,
    workspace::{BENCHES, Workspace},
};

const INSTALL_DENY: &str = "cargo-deny is not installed, deny.toml is not checked: `cargo install --locked cargo-deny`";

/// Runs every lint, also after one has failed, so that one run shows all findings.
///
/// # Errors
///
/// Names the lints that failed.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let with_benches = match arguments {
        [] => false,
        [only] if only == "--benches" => true,
        _ => return Err(Failure::new("lint takes --benches or nothing")),
    };
    let workspace = Workspace::load()?;

    let mut failed = Vec::new();
    let mut step = |name: &'static str, done: Result<(), Failure>| {
        if let Err(failure) = done {
            eprintln!("xtask: {failure}");
            failed.push(name);
        }
    };
    step("formatting", formatting(&workspace));
    step("clippy", clippy(&workspace, workspace.cargo_workspace("clippy")));
    if with_benches && workspace.has(BENCHES) {
        let mut benches = workspace.cargo("clippy");
        benches.args(["--package", BENCHES]);
        step("clippy on the benches", clippy(&workspace, benches));
    }
    step("circles", circles::check(&workspace));
    step("documentation", documentation(&workspace));
    step("packages", package::check(&workspace));
    step("dependencies", dependencies(&workspace));

    if failed.is_empty() {
        println!("the lints found nothing");
        Ok(())
    } else {
        Err(Failure::new(format!("the lints failed: {}", failed.join(", "))))
    }
}

fn formatting(workspace: &Workspace) -> Result<(), Failure> {
    available(workspace, "fmt", "rustfmt")?;
    failure::run(workspace.cargo("fmt").args(["--all", "--check"]))
}

fn clippy(workspace: &Workspace, mut command: Command) -> Result<(), Failure> {
    available(workspace, "clippy", "clippy")?;
    failure::run(command.args(["--all-targets", "--all-features", "--", "-D", "warnings"]))
}

fn documentation(workspace: &Workspace) -> Result<(), Failure> {
    let mut doc = workspace.cargo_workspace("doc");
    doc.args(["--no-deps", "--all-features"]).env("RUSTDOCFLAGS", "-D warnings");
    failure::run(&mut doc)
}

/// Checks licences, bans, sources and advisories by deny.toml. Without cargo-deny, or without the database of advisories,
/// a line says what is not checked.
fn dependencies(workspace: &Workspace) -> Result<(), Failure> {
    let deny = |words: &[&str]| {
        let mut deny = workspace.cargo("deny");
        deny.args(words);
        deny
    };
    if !failure::succeeds(&mut deny(&["--version"])) {
        eprintln!("{INSTALL_DENY}");
        return Ok(());
    }
    failure::run(&mut deny(&["check", "bans", "licenses", "sources"]))?;
    if let Err(unreachable) = failure::run(&mut deny(&["fetch", "db"])) {
        eprintln!("{unreachable}: the advisories are not checked");
        return Ok(());
    }
    failure::run(&mut deny(&["check", "advisories"]))
}

fn available(workspace: &Workspace, tool: &str, component: &str) -> Result<(), Failure> {
    if failure::succeeds(workspace.cargo(tool).arg("--version")) {
        Ok(())
    } else {
        Err(Failure::new(format!("cargo {tool} is not installed: `rustup component add {component}`")))
    }
}
