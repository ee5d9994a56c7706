//! `cargo xtask plots`: the pictures in `docs/plots`, drawn again.

use crate::{
    failure::{self, Failure},
    workspace::Workspace,
};

/// Runs the test that compares the pictures with what the functions draw, and lets it write them.
///
/// # Errors
///
/// When the test does not compile or fails: the traffic no longer shows what the text says of it.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if !arguments.is_empty() {
        return Err(Failure::new("plots takes no arguments"));
    }
    let mut test = Workspace::load()?.cargo("test");
    test.args(["--package", "tollgate-tests", "--all-features", "--test", "scripts", "plots::"]);
    failure::run(test.env("TOLLGATE_BLESS", "1"))
}
