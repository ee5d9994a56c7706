//! The rooms of the Redis store: folders whose imports run downward only.

use super::graph::Graph;

/// The root file of the crate that has the rooms.
pub(super) const CRATE: &str = "crates/tollgate/src/lib.rs";

/// The folder of the rooms.
pub(super) const FOLDER: &str = "crates/tollgate/src/redis/";

/// The rooms from the top to the bottom, as files or folders. A room imports from the rows below its own, and from
/// rooms of its own row in one direction.
pub(super) const ROOMS: &[&[&str]] = &[
    &["store", "builder", "source", "diagnosis"],
    &["replicas", "sampler"],
    &["backend"],
    &["cluster"],
    &["dispatch"],
    &["deny_cache", "pots", "server"],
    &["connect"],
    &["protocol"],
];

/// Files that every room may import from: the re-exports, and the switch of the model checker.
const SHARED: [&str; 2] = ["mod", "sync"];

/// Describes every import that runs upward, every file outside of the rooms, and every room that does not exist.
///
/// Without two of the rooms' folders there is nothing to check: the files are not in rooms yet.
pub(super) fn upward(graph: &Graph, folder: &str, rooms: &[&[&str]]) -> Vec<String> {
    let inner = |file: &str| file.strip_prefix(folder).map(str::to_owned);
    let all: Vec<&str> = rooms.iter().flat_map(|row| row.iter().copied()).collect();
    let folders =
        all.iter().filter(|room| graph.files.iter().any(|file| file.starts_with(&format!("{folder}{room}/"))));
    if folders.count() < 2 {
        return Vec::new();
    }
    let row_of = |name: &str| rooms.iter().position(|row| row.contains(&name));
    let mut found = Vec::new();
    for file in &graph.files {
        if let Some(path) = inner(file)
            && !SHARED.contains(&room(&path))
            && row_of(room(&path)).is_none()
        {
            found.push(format!("{file} is in none of the rooms {}", all.join(", ")));
        }
    }
    for name in &all {
        if !graph.files.iter().any(|file| inner(file).is_some_and(|path| room(&path) == *name)) {
            found.push(format!("the room {name} is in the list of rooms, and does not exist in {folder}"));
        }
    }
    let mut sideways = Vec::new();
    for &(from, to) in graph.imports.keys() {
        let (Some(user), Some(definer)) = (inner(&graph.files[from]), inner(&graph.files[to])) else { continue };
        let (user, definer) = (room(&user), room(&definer));
        match (row_of(user), row_of(definer)) {
            (Some(here), Some(there)) if here > there => {
                found.push(format!("{user} is below {definer}: {}", graph.import((from, to))));
            }
            (Some(here), Some(there)) if here == there && user != definer => {
                sideways.push((user.to_owned(), definer.to_owned(), graph.import((from, to))));
            }
            _ => {}
        }
    }
    for (user, definer, import) in &sideways {
        if sideways.iter().any(|(other, another, _)| other == definer && another == user) {
            found.push(format!("{user} and {definer} import from each other: {import}"));
        }
    }
    found
}

/// The room of a file: the first part of its path.
fn room(path: &str) -> &str {
    path.split('/').next().unwrap_or(path).trim_end_matches(".rs")
}
