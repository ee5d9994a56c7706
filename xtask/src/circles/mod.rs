//! Finds circles of imports between the rooms of a crate.
//!
//! A room is a folder, or a file that stands alone, beside the root file of a crate. Files of a room may know each other,
//! two rooms may not. A file depends on the files that define the names it uses. Re-exports are followed: a `mod.rs` that
//! only declares its children and re-exports their names is part of no circle. Code under `#[cfg(test)]` does not count.

mod graph;
mod source;
mod uses;

use std::path::{Path, PathBuf};

use crate::{failure::Failure, workspace::Workspace};
use graph::Graph;
use source::Sources;

/// The folders of the workspace that hold crates.
const FOLDERS: [&str; 3] = ["crates", "tools", "."];

/// Rooms that consist of rooms.
const HOUSES: [&str; 1] = ["crates/tollgate/src/redis/"];

/// Reads every crate and reports the circles of its rooms.
///
/// # Errors
///
/// Names every circle with the imports that close it.
pub(crate) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let mut roots = Vec::new();
    for folder in FOLDERS {
        let folder = workspace.root().join(folder);
        let unreadable = |error| Failure::new(format!("cannot read {}: {error}", folder.display()));
        for entry in std::fs::read_dir(&folder).map_err(unreadable)? {
            roots.extend(root(&entry.map_err(unreadable)?.path().join("src")));
        }
    }
    roots.sort();
    let mut found = Vec::new();
    for root in &roots {
        let graph = read(root, workspace.root())?;
        found.extend(graph.circles(room));
    }
    if found.is_empty() {
        eprintln!("no circle of rooms in {} crates", roots.len());
        Ok(())
    } else {
        Err(Failure::new(found.join("\n")))
    }
}

/// Returns the room of a file, as the beginning of its path.
fn room(file: &str) -> &str {
    let outer = HOUSES.iter().find(|house| file.starts_with(**house)).map(|house| house.len());
    let outer = outer.or_else(|| file.find("src/").map(|at| at + "src/".len())).unwrap_or_default();
    let inner = &file[outer..];
    let end = inner.find('/').or_else(|| inner.find(".rs")).unwrap_or(inner.len());
    &file[..outer + end]
}

/// Returns the root file of the crate with these sources. A crate that is a command alone has no library.
fn root(sources: &Path) -> Option<PathBuf> {
    ["lib.rs", "main.rs"].map(|name| sources.join(name)).into_iter().find(|root| root.is_file())
}

/// Builds the graph of the crate whose root file is `root`; its files are named relative to `base`.
fn read(root: &Path, base: &Path) -> Result<Graph, Failure> {
    let sources = Sources::load(root, base)?;
    Ok(Graph::new(&sources))
}

#[cfg(test)]
mod tests;
