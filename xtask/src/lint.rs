//! `cargo xtask lint`: checks the sources.

use std::path::Path;

use crate::{
    failure::{self, Failure},
    lowest, packed,
    workspace::{AS_TESTED, BENCHES, Workspace},
};

/// The tool that finds unused dependencies, and its version.
const MACHETE: [&str; 2] = ["cargo-machete", "0.9.2"];

/// The folders of crates. The manifest of a template is none before the template is used.
const FOLDERS: [&str; 6] = ["benches", "crates", "examples", "tests", "tools", "xtask"];

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
    step("house", house(&workspace));
    // What one processor does comes first: in CI other programs compute beside it.
    step("unused dependencies", unused(&workspace));
    step("packages", packed::build(&workspace));
    step("clippy", clippy(&workspace, with_benches));
    step("documentation", documentation(&workspace, with_benches));
    step("dependencies", dependencies(&workspace));

    if failed.is_empty() {
        println!("the lints found nothing");
        Ok(())
    } else {
        let failed = failed.join(", ");
        Err(Failure::new(format!("the lints failed: {failed}")))
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

/// Runs the tests over sources and pages, which `cargo xtask test` runs too: built as a full run
/// builds them, which stands before this in `.ci/run`.
fn house(workspace: &Workspace) -> Result<(), Failure> {
    let mut tests = workspace.cargo_test(true);
    failure::run(tests.args(["--quiet", "--bin", "xtask", "house::"]))
}

fn documentation(workspace: &Workspace, with_benches: bool) -> Result<(), Failure> {
    let mut doc = workspace.cargo_members("doc", with_benches);
    doc.args(["--no-deps", "--all-features", "--lib"])
        .env("RUSTDOCFLAGS", "-D warnings");
    // With these programs by name and an example, what clippy has compiled serves the documentation
    // too.
    for program in workspace
        .documented_programs()
        .filter(|program| with_benches || *program != BENCHES)
    {
        doc.args(["--bin", program]);
    }
    failure::run(doc.args(AS_TESTED))
}

/// Finds dependencies that no source names.
fn unused(workspace: &Workspace) -> Result<(), Failure> {
    let [name, version] = MACHETE;
    let home = workspace.target().join(format!("tools/{name}-{version}"));
    let machete = home.join("bin").join(name);
    if !machete.is_file() {
        let mut install = workspace.cargo("install");
        // It compiles three times as fast without optimisation, and runs for a second.
        install.args(["--locked", "--debug", "--version", version, "--config"]);
        install.arg(workspace.manifest());
        failure::run(install.arg("--root").arg(&home).arg(name))?;
    }
    failure::run(workspace.tool(&machete).args(FOLDERS))
}

/// Checks licences, bans, sources and advisories by `deny.toml`, if `cargo-deny` is installed: it
/// takes minutes to compile. The advisories also of the lowest versions that the crates accept.
/// Without the database of advisories, a line says what is not checked.
fn dependencies(workspace: &Workspace) -> Result<(), Failure> {
    if !failure::succeeds(workspace.cargo("deny").arg("--version")) {
        eprintln!(
            "cargo-deny is not installed, deny.toml is not checked: `cargo install --locked cargo-deny`"
        );
        return Ok(());
    }
    let check = |manifest: &Path, what: &[&str]| {
        let mut deny = workspace.cargo("deny");
        deny.arg("--manifest-path")
            .arg(manifest)
            .args(["check", "--config"]);
        deny.arg(workspace.root().join("deny.toml"));
        failure::run(deny.arg("--hide-inclusion-graph").args(what))
    };
    let ours = workspace.manifest();
    check(&ours, &["bans", "licenses", "sources"])?;
    if let Err(unreachable) = failure::run(workspace.cargo("deny").args(["fetch", "db"])) {
        eprintln!("{unreachable}: the advisories are not checked");
        return Ok(());
    }
    check(&ours, &["advisories"])?;
    check(&lowest::locked(workspace)?, &["advisories"])
}
