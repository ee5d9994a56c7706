//! `cargo xtask bench`: measures Tollgate and its peers on the same work.

use std::{env, path::PathBuf, process::Command};

use crate::{
    failure::{self, Failure},
    need,
    workspace::{BENCHES, Workspace},
};

/// The section that also runs programs beside the benches.
const BESIDE: &str = "instructions";

/// The ends of the names of these programs, and their features.
const PROGRAMS: [(&str, &str); 2] = [("mimalloc", ""), ("metrics", "metrics")];

/// Builds the benches with the peers, optimised, and runs them with these arguments.
///
/// # Errors
///
/// When there is no server, when the benches do not compile, or when a contestant answers wrongly.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let workspace = Workspace::load()?;
    let optimised = |command: &str| {
        let mut command = workspace.cargo(command);
        // A peer declares a newer Rust than it uses.
        command.args(["--quiet", "--ignore-rust-version"]);
        command.args(["--profile", "bench", "--package", BENCHES]);
        command
    };
    let mut sections = arguments.iter().filter(|word| !word.starts_with('-'));
    if sections.clone().next().is_none() || sections.any(|name| name == BESIDE) {
        for (program, features) in PROGRAMS {
            let mut build = optimised("build");
            build.args(["--features", features, "--bin"]);
            failure::run(build.arg(format!("{BENCHES}-{program}")))?;
        }
    }
    let mut command = optimised("run");
    command.arg("--").args(arguments);
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
