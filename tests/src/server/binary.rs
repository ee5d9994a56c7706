//! Finds the server that the tests start.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use crate::skipped;

const BINARIES: [&str; 2] = ["redis-server", "valkey-server"];

/// Finds the server binary: the one that `REDIS_SERVER` names, else redis-server or valkey-server
/// on PATH.
///
/// # Panics
///
/// When there is none; a test that needs a server cannot be skipped.
#[must_use]
pub fn find() -> PathBuf {
    found().expect(
        "this test needs a Redis server: run `cargo xtask test`, which says how to install one, \
         or install redis-server or valkey-server, or name the binary in REDIS_SERVER",
    )
}

/// Returns whether this machine has no server, and then writes that the test of the caller is
/// skipped. The crates begin their tests with it, so that `cargo test` runs what needs no server.
///
/// # Panics
///
/// When there is none though `REDIS_SERVER` names one, or in CI.
#[must_use]
pub fn no_server() -> bool {
    if found().is_some() {
        return false;
    }
    assert!(
        named().is_none(),
        "REDIS_SERVER names no program: correct or unset it"
    );
    let thread = thread::current();
    skipped(
        thread.name().unwrap_or("a test"),
        "it needs redis-server or valkey-server on PATH; `cargo xtask test` runs everything",
    );
    true
}

fn named() -> Option<OsString> {
    env::var_os("REDIS_SERVER").filter(|chosen| !chosen.is_empty())
}

fn found() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    match named() {
        Some(chosen) => on_path(&path, &chosen),
        None => BINARIES
            .iter()
            .find_map(|binary| on_path(&path, OsStr::new(binary))),
    }
}

/// Returns the first number of the version of a server.
pub(crate) fn major(binary: &Path) -> u32 {
    let said = Command::new(binary).arg("--version").output();
    let said = said
        .unwrap_or_else(|error| panic!("{} --version: {error}", binary.display()))
        .stdout;
    let said = String::from_utf8_lossy(&said);
    first_number(&said).unwrap_or_else(|| panic!("{} --version: {said}", binary.display()))
}

/// Reads `Redis server v=7.0.15 sha=…`.
fn first_number(said: &str) -> Option<u32> {
    said.split_once(" v=")?.1.split('.').next()?.parse().ok()
}

fn on_path(path: &OsString, program: &OsStr) -> Option<PathBuf> {
    let program = PathBuf::from(program);
    if program.components().count() > 1 {
        return program.is_file().then_some(program);
    }
    env::split_paths(path)
        .map(|directory| directory.join(&program))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_of_a_version_is_found() {
        for (said, expected) in [
            (
                "Redis server v=6.2.5 sha=00000000:0 malloc=jemalloc-5.1.0",
                Some(6),
            ),
            ("Valkey server v=10.0.0 sha=0", Some(10)),
            ("no server", None),
        ] {
            assert_eq!(first_number(said), expected, "{said}");
        }
    }

    #[test]
    fn a_program_is_found_by_name_and_by_path() {
        let path = OsString::from("/nowhere:/usr/bin:/bin");
        assert!(on_path(&path, OsStr::new("sh")).is_some_and(|sh| sh.ends_with("sh")));
        assert_eq!(
            on_path(&path, OsStr::new("/bin/sh")),
            Some(PathBuf::from("/bin/sh"))
        );
        assert_eq!(on_path(&path, OsStr::new("no-such-program")), None);
    }
}
