//! Says that a test is skipped.

use std::{
    env,
    io::{Write as _, stdout},
};

/// Writes the line by which `cargo xtask test` counts a test as skipped.
///
/// # Panics
///
/// In CI, where no test is left out.
pub fn skipped(test: &str, why: &str) {
    let is_ci = env::var_os("CI").is_some_and(|ci| !ci.is_empty() && ci != "false");
    assert!(!is_ci, "CI is set, and {why}");
    // Written to the standard output itself, which the capture of a test's output does not hold
    // back.
    let line = format!("\n*** SKIPPED: {test}: {why} ***\n");
    stdout()
        .write_all(line.as_bytes())
        .expect("the standard output is open");
}
