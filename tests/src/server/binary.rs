//! Finds the server that the tests start.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::PathBuf,
};

const BINARIES: [&str; 2] = ["redis-server", "valkey-server"];

/// Finds the server binary: the one that `REDIS_SERVER` names, else redis-server or valkey-server on PATH.
///
/// # Panics
///
/// When there is none; a test that needs a server cannot be skipped.
#[must_use]
pub fn find() -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = match env::var_os("REDIS_SERVER").filter(|chosen| !chosen.is_empty()) {
        Some(chosen) => on_path(&path, &chosen),
        None => BINARIES.iter().find_map(|binary| on_path(&path, OsStr::new(binary))),
    };
    found.expect(
        "this test needs a Redis server: run `cargo xtask test`, which installs one, \
         or install redis-server or valkey-server, or name the binary in REDIS_SERVER",
    )
}

fn on_path(path: &OsString, program: &OsStr) -> Option<PathBuf> {
    let program = PathBuf::from(program);
    if program.components().count() > 1 {
        return program.is_file().then_some(program);
    }
    env::split_paths(path).map(|directory| directory.join(&program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_name_and_by_path() {
        let path = OsString::from("/nowhere:/usr/bin:/bin");
        assert!(on_path(&path, OsStr::new("sh")).is_some_and(|sh| sh.ends_with("sh")));
        assert_eq!(on_path(&path, OsStr::new("/bin/sh")), Some(PathBuf::from("/bin/sh")));
        assert_eq!(on_path(&path, OsStr::new("no-such-program")), None);
    }
}
