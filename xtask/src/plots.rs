//! `cargo xtask plots`: the pictures in `docs/plots`, drawn again.

use crate::{
    failure::{self, Failure},
    workspace::Workspace,
};

/// Runs the test that compares the pictures with those that the functions draw, and makes it write
/// them.
///
/// # Errors
///
/// When the test does not compile or fails.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if !arguments.is_empty() {
        return Err(Failure::new("plots takes no arguments"));
    }
    let mut test = Workspace::load()?.cargo("test");
    test.args([
        "--package",
        "tollgate-tests",
        "--all-features",
        "--test",
        "scripts",
        "plots::",
    ]);
    failure::run(test.env("TOLLGATE_BLESS", "1"))
}
