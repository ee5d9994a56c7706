//! `cargo xtask foreign`: tries Tollgate with clients and proxies that were written elsewhere.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::{
    failure::{self, Failure},
    need, pypi,
    workspace::Workspace,
};

/// Names the Python in whose environment the clients are installed. The tool and the tests read it.
const VARIABLE: &str = "FOREIGN_PYTHON";

const PINS: &str = include_str!("../../tools/foreign/python/requirements.txt");

/// Selects the programs that the tool starts: itself, and these examples.
const PROGRAMS: [&str; 8] = [
    "--bin",
    "tollgate-foreign",
    "--bin",
    "tollgate-envoy",
    "--example",
    "behind_a_proxy",
    "--example",
    "grpc_server",
];

/// Installs the clients, builds `tools/foreign` as the tests are built, and runs it with these
/// arguments.
///
/// # Errors
///
/// When the clients cannot be had, unless `--optional` is given; when the tool does not compile;
/// when a case has another answer than the expected one.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let workspace = Workspace::load()?;
    let (options, arguments): (Vec<_>, Vec<_>) =
        arguments.iter().partition(|word| *word == "--optional");
    let python = match provide(workspace.target()) {
        Ok(python) => python,
        Err(failure) if !options.is_empty() => {
            eprintln!("*** THE FOREIGN CLIENTS ARE LEFT OUT: {failure} ***");
            return Ok(());
        }
        Err(failure) => return Err(failure),
    };
    let needs = need::provide(need::TESTS, workspace.target())?;
    failure::run(&mut workspace.cargo_build(&PROGRAMS))?;
    let mut command = workspace.tool(&workspace.target().join("debug/tollgate-foreign"));
    command.args(arguments).env(VARIABLE, python).envs(needs);
    failure::run(&mut command)
}

/// Returns the Python of the clients: the one that the variable names, or that of an environment
/// under `target`, which is made if it is missing.
///
/// # Errors
///
/// When this is not Linux, when there is no python3 with the module venv, and when PyPI has no
/// package for this machine or cannot be reached.
fn provide(target: &Path) -> Result<PathBuf, Failure> {
    if let Some(python) = env::var_os(VARIABLE).filter(|python| !python.is_empty()) {
        return Ok(python.into());
    }
    if !cfg!(target_os = "linux") {
        return Err(Failure::new(
            "the clients are tried on Linux only, where each has an address of 127.0.0.0/8",
        ));
    }
    let home = target.join("foreign");
    pypi::provide(&home, PINS, &[])?;
    Ok(pypi::python(&home))
}
