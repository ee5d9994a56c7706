//! The graph of the files of a crate, and the circles of its rooms.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::{algo::tarjan_scc, graph::DiGraph};

use super::{
    source::{Sources, Target},
    uses::Uses,
};

/// Holds the names that each file takes from each other file.
#[derive(Debug)]
pub(super) struct Graph {
    files: Vec<String>,
    /// By the file that uses and the file that defines: the lines, and the names taken there.
    imports: BTreeMap<(usize, usize), BTreeMap<usize, BTreeSet<String>>>,
}

impl Graph {
    pub(super) fn new(sources: &Sources) -> Self {
        let files = sources.files.iter().map(|file| file.name.clone()).collect();
        let mut imports: BTreeMap<_, BTreeMap<_, BTreeSet<_>>> = BTreeMap::new();
        for from in 0..sources.files.len() {
            for used in Uses::of(sources, from) {
                for target in sources.resolve(used.module, &used.path) {
                    // A module is only the way to its names; those are found where they are used.
                    let Target::File(to) = target else { continue };
                    if to != from {
                        let lines = imports.entry((from, to)).or_default();
                        lines.entry(used.line).or_default().insert(name(&used.path));
                    }
                }
            }
        }
        Self { files, imports }
    }

    /// Describes every circle of rooms: for each of its rooms the imports from the others. `room` names the room of a
    /// file. Files of one room may import from each other.
    pub(super) fn circles<'a>(&'a self, room: impl Fn(&'a str) -> &'a str) -> Vec<String> {
        let rooms: Vec<&str> = self.files.iter().map(|file| room(file)).collect();
        let names: BTreeSet<&str> = rooms.iter().copied().collect();
        let mut graph = DiGraph::<&str, ()>::new();
        let nodes: BTreeMap<&str, _> = names.iter().map(|name| (*name, graph.add_node(*name))).collect();
        for &(from, to) in self.imports.keys() {
            if rooms[from] != rooms[to] {
                graph.update_edge(nodes[rooms[from]], nodes[rooms[to]], ());
            }
        }
        let circles = tarjan_scc(&graph).into_iter().filter(|circle| circle.len() > 1);
        let mut circles: Vec<BTreeSet<&str>> =
            circles.map(|circle| circle.into_iter().map(|node| graph[node]).collect()).collect();
        circles.sort();
        circles.iter().map(|circle| self.describe(circle, &rooms)).collect()
    }

    fn describe(&self, circle: &BTreeSet<&str>, rooms: &[&str]) -> String {
        let names: Vec<&str> = circle.iter().copied().collect();
        let mut text = format!("a circle of {} rooms, {}:", circle.len(), names.join(", "));
        for &(from, to) in self.imports.keys() {
            if rooms[from] != rooms[to] && circle.contains(rooms[from]) && circle.contains(rooms[to]) {
                text += &format!("\n  {}", self.import((from, to)));
            }
        }
        text
    }

    /// Describes an import: `a.rs:3 takes Name from b.rs`, with the first line and all names.
    fn import(&self, edge: (usize, usize)) -> String {
        let lines = &self.imports[&edge];
        let line = lines.keys().next().copied().unwrap_or_default();
        let names: BTreeSet<&str> = lines.values().flatten().map(String::as_str).collect();
        let names: Vec<&str> = names.into_iter().collect();
        format!("{}:{line} takes {} from {}", self.files[edge.0], names.join(", "), self.files[edge.1])
    }
}

/// The last word of a path that is written as a name of this crate: the type of `Type::new`, the function of
/// `module::function`.
fn name(path: &[String]) -> String {
    let is_type = |word: &&String| word.starts_with(char::is_uppercase);
    path.iter().find(is_type).or(path.last()).cloned().unwrap_or_default()
}
