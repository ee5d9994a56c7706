//! Builds the documentation as docs.rs does: with all features, and with a badge at each item that
//! needs one.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::{
    failure::{self, Failure},
    workspace::{AS_TESTED, BENCHES, Workspace},
};

/// The text of a badge in the pages of rustdoc.
const BADGE: &str = "Available on <strong>crate feature";

/// Calls rustdoc with the features of a nightly Rust, which docs.rs has.
///
/// In the environment of cargo, the variable would compile the dependencies anew: their build
/// scripts look at it.
const RUSTDOC: &str = "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n";

/// Builds the documentation of the workspace, and looks for badges. That each published crate turns
/// them on is checked with its other metadata; a crate may have features that add no item.
///
/// # Errors
///
/// When rustdoc warns, or when no page of a published crate shows a badge.
pub(crate) fn check(workspace: &Workspace, with_benches: bool) -> Result<(), Failure> {
    let mut doc = workspace.cargo_members("doc", with_benches);
    doc.args(["--no-deps", "--all-features", "--lib"])
        .env("RUSTDOCFLAGS", "--cfg docsrs -D warnings");
    // With these programs by name and an example, what clippy has compiled serves the documentation
    // too.
    for program in workspace
        .documented_programs()
        .filter(|program| with_benches || *program != BENCHES)
    {
        doc.args(["--bin", program]);
    }
    doc.args(AS_TESTED);
    doc.env("RUSTDOC", wrapper(workspace.target())?);
    failure::run(&mut doc)?;
    let mut count = 0;
    for member in workspace.published_members() {
        let pages = workspace
            .target()
            .join("doc")
            .join(member.name.replace('-', "_"));
        // A program has no page of its own.
        if pages.is_dir() {
            let broken = |error: io::Error| {
                Failure::new(format!("cannot read {}: {error}", pages.display()))
            };
            count += badges(&pages).map_err(broken)?;
        }
    }
    if count == 0 {
        return Err(Failure::new(
            "the documentation shows no badge of a feature",
        ));
    }
    eprintln!("{count} pages show badges of features");
    Ok(())
}

/// Writes the program that cargo calls in the place of rustdoc.
fn wrapper(target: &Path) -> Result<PathBuf, Failure> {
    let path = target.join("tools/rustdoc-docsrs");
    let write = || {
        fs::create_dir_all(target.join("tools"))?;
        fs::write(&path, RUSTDOC)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
    };
    write().map_err(|error: io::Error| {
        Failure::new(format!("cannot write {}: {error}", path.display()))
    })?;
    Ok(path)
}

/// Counts the pages below a directory that show a badge.
fn badges(directory: &Path) -> io::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            count += badges(&path)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "html")
        {
            count += usize::from(fs::read_to_string(&path)?.contains(BADGE));
        }
    }
    Ok(count)
}
