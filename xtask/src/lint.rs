//! `cargo xtask lint`: checks the sources.

use crate::{
    circles, deny, documentation,
    failure::{self, Failure},
    links, metadata, package, release,
    workspace::Workspace,
};

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
    step("clippy", clippy(&workspace, with_benches));
    step("circles", circles::check(&workspace));
    step("links", links::check(&workspace));
    step(
        "documentation",
        documentation::check(&workspace, with_benches),
    );
    step("packages", package::check(&workspace));
    step("metadata", metadata::check(&workspace));
    step("unused dependencies", release::unused(&workspace));
    step("dependencies", deny::check_if_installed(&workspace));

    if failed.is_empty() {
        println!("the lints found nothing");
        Ok(())
    } else {
        Err(Failure::new(format!(
            "the lints failed: {}",
            failed.join(", ")
        )))
    }
}

fn formatting(workspace: &Workspace) -> Result<(), Failure> {
    available(workspace, "fmt", "rustfmt")?;
    failure::run(workspace.cargo("fmt").args(["--all", "--check"]))
}

fn clippy(workspace: &Workspace, with_benches: bool) -> Result<(), Failure> {
    available(workspace, "clippy", "clippy")?;
    let mut command = workspace.cargo_members("clippy", with_benches);
    failure::run(command.args(["--all-targets", "--all-features", "--", "-D", "warnings"]))
}

fn available(workspace: &Workspace, tool: &str, component: &str) -> Result<(), Failure> {
    if failure::succeeds(workspace.cargo(tool).arg("--version")) {
        Ok(())
    } else {
        Err(Failure::new(format!(
            "cargo {tool} is not installed: `rustup component add {component}`"
        )))
    }
}
