//! The steps that are one command of a tool.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    cargo_tool::CargoTool,
    deny,
    failure::{self, Failure},
    workspace::Workspace,
};

const MACHETE: CargoTool = CargoTool {
    name: "cargo-machete",
    version: "0.9.2",
};
const HACK: CargoTool = CargoTool {
    name: "cargo-hack",
    version: "0.6.46",
};
const SEMVER_CHECKS: CargoTool = CargoTool {
    name: "cargo-semver-checks",
    version: "0.51.0",
};
const MINIMAL_VERSIONS: CargoTool = CargoTool {
    name: "cargo-minimal-versions",
    version: "0.1.38",
};

/// The most features that are combined. All combinations of all crates would be several hundred.
const DEPTH: &str = "2";

/// The folders of crates. The manifest of a template is none before the template is used.
const FOLDERS: [&str; 6] = ["benches", "crates", "examples", "tests", "tools", "xtask"];

/// Finds dependencies that no source names.
///
/// # Errors
///
/// When one is found, or the tool cannot be installed.
pub(crate) fn unused(workspace: &Workspace) -> Result<(), Failure> {
    let machete = MACHETE.provide(workspace.target())?;
    failure::run(workspace.tool(&machete).args(FOLDERS))
}

/// Checks licences, bans, sources and advisories.
///
/// # Errors
///
/// When one of them breaks a rule of `deny.toml`, or the tool cannot be installed.
pub(super) fn dependencies(workspace: &Workspace) -> Result<(), Failure> {
    deny::install_and_check(workspace)
}

/// Finds changes that the version of the next release does not allow. The baseline is the newest
/// tag `v…`.
///
/// Before the first tag there is nothing to compare with, and a line says so.
///
/// # Errors
///
/// When a change breaks the interface and the version does not say so, or when the tool cannot be
/// installed.
pub(super) fn semver(workspace: &Workspace) -> Result<(), Failure> {
    let mut tags = Command::new("git");
    tags.args([
        "tag",
        "--list",
        "v*",
        "--merged",
        "HEAD",
        "--sort=-version:refname",
    ])
    .current_dir(workspace.root());
    let tags = failure::output(&mut tags)?;
    let Some(newest) = tags.lines().next() else {
        eprintln!("there is no tag v…: the first release has no interface to compare with");
        return Ok(());
    };
    let mut check = workspace.tool(&SEMVER_CHECKS.provide(workspace.target())?);
    check
        .args(["semver-checks", "--baseline-rev", newest])
        .args(packages(workspace));
    failure::run(check.env("CARGO_TARGET_DIR", target(workspace)))
}

/// Compiles the published crates with the oldest Rust that they promise.
///
/// # Errors
///
/// When a crate does not compile, or the toolchain is missing and cannot be installed.
pub(super) fn msrv(workspace: &Workspace) -> Result<(), Failure> {
    let member = workspace.published_members().next();
    let version = member.and_then(|member| member.package["rust_version"].as_str());
    let version = version.ok_or_else(|| Failure::new("no published crate has a `rust-version`"))?;
    let cargo = || {
        let mut cargo = Command::new("rustup");
        cargo
            .args(["run", version, "cargo"])
            .current_dir(workspace.root());
        cargo
    };
    if !failure::succeeds(cargo().arg("--version")) {
        let mut install = Command::new("rustup");
        failure::run(install.args([
            "toolchain",
            "install",
            version,
            "--profile",
            "minimal",
            "--no-self-update",
        ]))?;
    }
    let mut check = cargo();
    check
        .args(["check", "--all-features", "--locked"])
        .args(packages(workspace));
    failure::run(check.env("CARGO_TARGET_DIR", target(workspace)))
}

/// Compiles the published crates with the smallest versions that their manifests allow.
///
/// The tool takes the unpublished crates and all dev-dependencies out of the manifests, in a copy
/// of the workspace.
///
/// # Errors
///
/// When a crate does not compile with them.
pub(super) fn minimal_versions(workspace: &Workspace) -> Result<(), Failure> {
    let hack = HACK.provide(workspace.target())?;
    let tool = MINIMAL_VERSIONS.provide(workspace.target())?;
    let mut check = workspace.tool(&tool);
    check.args([
        "minimal-versions",
        "check",
        "--direct",
        "--ignore-private",
        "--workspace",
        "--all-features",
    ]);
    // The tool calls `cargo hack`.
    check.env("PATH", path_with(&hack)?);
    let tree = copied(workspace)?;
    // It takes the unpublished members away, and leaves the list of default members, which names
    // them.
    let manifest = tree.join("Cargo.toml");
    let broken =
        |error: io::Error| Failure::new(format!("cannot change {}: {error}", manifest.display()));
    let text = fs::read_to_string(&manifest).map_err(broken)?;
    fs::write(&manifest, without_default_members(&text)).map_err(broken)?;
    failure::run(
        check
            .current_dir(tree)
            .env("CARGO_TARGET_DIR", target(workspace)),
    )
}

/// Compiles the published crates with each feature alone, with every pair, and with none. Warnings
/// are errors.
///
/// # Errors
///
/// When a set of features does not compile.
pub(super) fn features(workspace: &Workspace) -> Result<(), Failure> {
    let mut check = workspace.tool(&HACK.provide(workspace.target())?);
    check
        .args([
            "hack",
            "check",
            "--feature-powerset",
            "--depth",
            DEPTH,
            "--no-dev-deps",
        ])
        .args(packages(workspace));
    check
        .env("RUSTFLAGS", "-D warnings")
        .env("CARGO_TARGET_DIR", target(workspace));
    failure::run(check.current_dir(copied(workspace)?))
}

/// Returns `--package NAME` for every published crate.
fn packages(workspace: &Workspace) -> impl Iterator<Item = &str> {
    workspace.published().flat_map(|name| ["--package", name])
}

/// Returns a target directory of its own: flags and toolchains that differ would compile the
/// workspace anew.
fn target(workspace: &Workspace) -> PathBuf {
    workspace.target().join("release-checks/target")
}

/// Copies what git knows of the workspace for a tool that changes manifests while it runs, and
/// returns the folder of the copy.
fn copied(workspace: &Workspace) -> Result<PathBuf, Failure> {
    let tree = workspace.target().join("release-checks/tree");
    let _ = fs::remove_dir_all(&tree);
    let mut checkout = Command::new("git");
    checkout
        .args(["checkout-index", "--all"])
        .arg(format!("--prefix={}/", tree.display()));
    failure::run(checkout.current_dir(workspace.root()))?;
    Ok(tree)
}

/// Returns a manifest without its line `default-members`.
fn without_default_members(manifest: &str) -> String {
    manifest
        .split_inclusive('\n')
        .filter(|line| !line.starts_with("default-members"))
        .collect()
}

/// Returns the search path with the directory of a program at its front.
fn path_with(program: &Path) -> Result<std::ffi::OsString, Failure> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = program
        .parent()
        .map(Path::to_owned)
        .into_iter()
        .chain(env::split_paths(&path));
    env::join_paths(directories)
        .map_err(|error| Failure::new(format!("PATH cannot be extended: {error}")))
}
