//! `cargo xtask bench`: measures Tollgate and its peers on the same work.

use std::{env, path::PathBuf, process::Command};

use crate::{
    failure::{self, Failure},
    need,
    workspace::{BENCHES, Workspace},
};

/// Builds the benches with the peers, optimised, and runs them with these arguments.
///
/// # Errors
///
/// When there is no server, when the benches do not compile, or when a contestant answers wrongly.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let workspace = Workspace::load()?;
    let mut command = workspace.cargo("run");
    // A peer declares a newer Rust than it uses.
    command
        .args([
            "--quiet",
            "--ignore-rust-version",
            "--profile",
            "bench",
            "--package",
            BENCHES,
            "--",
        ])
        .args(arguments);
    for (variable, binary) in need::provide(need::TESTS, workspace.target())? {
        command.env(variable, binary);
    }
    match cell(&workspace) {
        Ok((module, libraries)) => {
            command
                .env("REDIS_CELL", module)
                .env("REDIS_CELL_LIBRARIES", libraries);
        }
        Err(failure) => println!("redis-cell is left out, it could not be built: {failure}"),
    }
    failure::run(&mut command)
}

/// Builds redis-cell, a module for the server. Returns its path and that of the libraries of the
/// toolchain.
fn cell(workspace: &Workspace) -> Result<(PathBuf, String), Failure> {
    let target = workspace.target().join("cell");
    let mut build = workspace.cargo("build");
    build.args([
        "--quiet",
        "--release",
        "--locked",
        "--manifest-path",
        "benches/cell/Cargo.toml",
        "--target-dir",
    ]);
    failure::run(build.arg(&target))?;
    let libraries = failure::output(Command::new("rustc").args(["--print", "target-libdir"]))?;
    let module = format!(
        "{}redis_cell{}",
        env::consts::DLL_PREFIX,
        env::consts::DLL_SUFFIX
    );
    Ok((
        target.join("release").join(module),
        libraries.trim().to_owned(),
    ))
}
