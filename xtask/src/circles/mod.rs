//! Finds circles of imports between the files of a crate.
//!
//! A file depends on the files that define the names it uses. Re-exports are followed: a `mod.rs` that only declares its
//! children and re-exports their names is part of no circle. Code under `#[cfg(test)]` does not count.

mod graph;
mod rooms;
mod source;
mod uses;

use std::path::{Path, PathBuf};

use crate::{failure::Failure, workspace::Workspace};
use graph::Graph;
use source::Sources;

/// Imports that close a circle for a reason: the file that uses, the file that defines, and why.
const ACCEPTED: &[(&str, &str, &str)] = &[];

/// Reads every crate under `crates/` and reports the circles of files and the imports against the order of the rooms.
///
/// # Errors
///
/// Names every circle with the imports that close it, and every import that runs upward.
pub(crate) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let crates = workspace.root().join("crates");
    let unreadable = |error| Failure::new(format!("cannot read {}: {error}", crates.display()));
    let mut roots = Vec::new();
    for entry in std::fs::read_dir(&crates).map_err(unreadable)? {
        roots.extend(root(&entry.map_err(unreadable)?.path().join("src")));
    }
    roots.sort();
    let mut found = Vec::new();
    for root in &roots {
        let mut graph = read(root, workspace.root())?;
        found.extend(graph.accept(ACCEPTED));
        found.extend(graph.circles());
        if root.ends_with(rooms::CRATE) {
            found.extend(rooms::upward(&graph, rooms::FOLDER, rooms::ROOMS));
        }
    }
    if found.is_empty() {
        eprintln!("no circle of imports in {} crates", roots.len());
        Ok(())
    } else {
        Err(Failure::new(found.join("\n")))
    }
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
