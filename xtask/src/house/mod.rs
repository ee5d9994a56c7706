//! The rules of the house that no compiler knows, as tests over its sources and pages:
//! `cargo test -p xtask house`.

mod advisories;
mod circles;
mod commands;
mod features;
mod figures;
mod links;
mod metadata;
mod names;
mod pages;
mod promises;
mod ruler;
mod signatures;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace is above")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the text of a file of the repository.
fn page(name: &str) -> String {
    read(&root().join(name))
}

/// Returns the files that git knows or would add.
fn files() -> Vec<String> {
    let listed = Command::new("git")
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "-z",
        ])
        .current_dir(root())
        .output()
        .expect("git lists the files");
    let listed = String::from_utf8(listed.stdout).expect("names are UTF-8");
    let exists = |name: &&str| root().join(name).is_file();
    listed
        .split('\0')
        .filter(exists)
        .map(str::to_owned)
        .collect()
}

/// Returns what is in a folder.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder);
    let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries
        .map(|entry| entry.expect("readable").path())
        .collect()
}

/// Writes these files into a new folder.
fn written(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary directory can be made");
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("the directory is ours");
        fs::write(path, text).expect("the directory is ours");
    }
    folder
}
