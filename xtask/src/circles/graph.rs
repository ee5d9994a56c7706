//! The graph of the files of a crate, and its circles.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::{algo::tarjan_scc, graph::DiGraph};

use super::{
    source::{Sources, Target},
    uses::Uses,
};

/// Holds the names that each file takes from each other file.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) files: Vec<String>,
    /// By the file that uses and the file that defines: the lines, and the names taken there.
    pub(super) imports: BTreeMap<(usize, usize), BTreeMap<usize, BTreeSet<String>>>,
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

    /// Takes these imports out of the graph, and describes those that do not exist any more.
    ///
    /// An import of a crate without its using file is another crate's.
    pub(super) fn accept(&mut self, accepted: &[(&str, &str, &str)]) -> Vec<String> {
        let mut unknown = Vec::new();
        for (from, to, reason) in accepted {
            let at = |name: &str| self.files.iter().position(|file| file == name);
            let Some(user) = at(from) else { continue };
            if at(to).and_then(|definer| self.imports.remove(&(user, definer))).is_none() {
                unknown.push(format!(
                    "{from} imports nothing from {to}: take it off the list of accepted imports ({reason})"
                ));
            }
        }
        unknown
    }

    /// Describes every circle: its files, and for each the imports from the others.
    pub(super) fn circles(&self) -> Vec<String> {
        let mut graph = DiGraph::<(), ()>::new();
        let nodes: Vec<_> = self.files.iter().map(|_| graph.add_node(())).collect();
        for &(from, to) in self.imports.keys() {
            graph.add_edge(nodes[from], nodes[to], ());
        }
        let circles = tarjan_scc(&graph).into_iter().filter(|circle| circle.len() > 1);
        let mut circles: Vec<BTreeSet<usize>> =
            circles.map(|circle| circle.into_iter().map(petgraph::graph::NodeIndex::index).collect()).collect();
        circles.sort();
        circles.iter().map(|circle| self.describe(circle)).collect()
    }

    fn describe(&self, circle: &BTreeSet<usize>) -> String {
        let mut text = format!("a circle of {} files:", circle.len());
        let inner = self.imports.keys().filter(|(from, to)| circle.contains(from) && circle.contains(to));
        for edge in inner {
            text += &format!("\n  {}", self.import(*edge));
        }
        text
    }

    /// Describes an import: `a.rs:3 takes Name from b.rs`, with the first line and all names.
    pub(super) fn import(&self, edge: (usize, usize)) -> String {
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
