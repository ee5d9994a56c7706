//! Reads the files of callgrind: the instructions of each source file, and the calls of each function.
//!
//! Source: <https://valgrind.org/docs/manual/cl-format.html>.

use std::collections::{BTreeMap, HashMap};

/// Begins the folder of a crate of the product, within a path. The standard library has a folder of
/// crates, too.
const CRATES: &str = "/crates/tollgate";

/// Begins the folder of a crate from the registry, within a path.
const REGISTRY: &str = "/registry/src/";

/// The functions that allocate.
const ALLOCATORS: [&str; 3] = [
    "__rustc::__rust_alloc",
    "__rustc::__rust_alloc_zeroed",
    "__rustc::__rust_realloc",
];

/// The crates of collections, which allocate for others.
const COLLECTIONS: [&str; 8] = [
    "alloc::",
    "bytes::",
    "core::",
    "hashbrown::",
    "http::",
    "smallvec::",
    "std::",
    "tokio::sync::",
];

/// Returns the arguments by which callgrind tells the callers of the functions that allocate.
pub(crate) fn separated() -> impl Iterator<Item = String> {
    ALLOCATORS
        .into_iter()
        .map(|name| format!("--separate-callers12={name}"))
}

/// Holds what a run cost. Code that was inlined counts for the file that holds it.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    /// Instructions, by the path of the file.
    files: HashMap<String, u64>,
    /// Calls, by the name of the function.
    calls: HashMap<String, u64>,
}

impl Profile {
    /// Reads a file of callgrind. The instructions of a called function are counted in its own file.
    pub(crate) fn parse(text: &str) -> Self {
        let mut profile = Self::default();
        let (mut paths, mut functions) = (HashMap::new(), HashMap::new());
        let (mut current, mut callee) = ("", "");
        let mut is_call = false;
        for line in text.lines() {
            if let Some(calls) = line.strip_prefix("calls=") {
                is_call = true;
                let count = calls.split(' ').next().and_then(|count| count.parse().ok());
                *profile.calls.entry(callee.to_owned()).or_default() += count.unwrap_or(0_u64);
            } else if let Some((word, name)) = line.split_once('=') {
                match word {
                    "fl" | "fi" | "fe" => current = named(&mut paths, name),
                    "cfi" | "cfl" => _ = named(&mut paths, name),
                    "fn" => _ = named(&mut functions, name),
                    "cfn" => callee = named(&mut functions, name),
                    _ => {}
                }
            } else if let Some(cost) = cost(line)
                && !std::mem::take(&mut is_call)
            {
                *profile.files.entry(current.to_owned()).or_default() += cost;
            }
        }
        profile
    }

    /// Returns all instructions.
    pub(crate) fn instructions(&self) -> u64 {
        self.files.values().sum()
    }

    /// Returns the number of allocations of each function that is none of a collection: the first
    /// of the callers that [`separated`] tells.
    pub(crate) fn allocations(&self) -> BTreeMap<&str, u64> {
        let mut allocations = BTreeMap::new();
        for (name, calls) in &self.calls {
            if let Some((_, callers)) = name
                .split_once('\'')
                .filter(|(name, _)| ALLOCATORS.contains(name))
            {
                let is_named = |caller: &&str| {
                    let path = caller.trim_start_matches(['<', '&']);
                    !COLLECTIONS.iter().any(|name| path.starts_with(name))
                };
                let caller = callers.split('\'').find(is_named);
                *allocations.entry(caller.unwrap_or(callers)).or_default() += calls;
            }
        }
        allocations
    }

    /// Returns the instructions of each crate. What belongs to no crate is the standard library, the
    /// allocator, or the C library.
    pub(crate) fn crates(&self) -> BTreeMap<&str, u64> {
        let mut crates = BTreeMap::new();
        for (path, instructions) in &self.files {
            *crates.entry(owner(path)).or_default() += instructions;
        }
        crates
    }

    /// Returns the files of the product, below the folder of its crates, with their instructions.
    pub(crate) fn own_files(&self) -> impl Iterator<Item = (&str, u64)> {
        self.files.iter().filter_map(|(path, instructions)| {
            let at = path.find(CRATES)? + "/crates/".len();
            Some((&path[at..], *instructions))
        })
    }
}

/// Returns a name, which is written as its number alone from the second time on.
fn named<'a>(names: &mut HashMap<&'a str, &'a str>, name: &'a str) -> &'a str {
    match name.split_once(' ') {
        Some((number, name)) if number.starts_with('(') => {
            names.insert(number, name);
            name
        }
        _ => names.get(name).copied().unwrap_or(name),
    }
}

/// Returns the crate that holds a file.
fn owner(path: &str) -> &str {
    if let Some(at) = path.find(CRATES) {
        let rest = &path[at + "/crates/".len()..];
        return rest.split('/').next().unwrap_or(rest);
    }
    if let Some(at) = path.find(REGISTRY) {
        let package = path[at + REGISTRY.len()..].split('/').nth(1);
        let is_version =
            |(_, version): &(&str, &str)| version.starts_with(|c: char| c.is_ascii_digit());
        return package
            .and_then(|package| package.rsplit_once('-').filter(is_version))
            .map_or("other crates", |(name, _)| name);
    }
    match path {
        _ if path.contains("malloc") => "the allocator",
        _ if path.contains("memmove") || path.contains("memset") || path.contains("memcmp") => {
            "copies of memory"
        }
        _ if path.contains("/library/") || path.starts_with("/rustc/") => "std",
        _ => "the rest",
    }
}

/// Returns the cost of a line `POSITION COST`. A position is a number, or relative to the one
/// before: `+3`, `-2`, `*`.
fn cost(line: &str) -> Option<u64> {
    let (position, cost) = line.split_once(' ')?;
    position
        .starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first))
        .then(|| cost.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "\
version: 1
events: Ir
fl=(1) /house/crates/tollgate-tower/src/gate.rs
fn=(1) admit
10 7
+2 3
cfi=(2) /house/crates/tollgate-core/src/key.rs
cfn=(2) key
calls=4 1
* 900
cfi=(5) ./malloc/malloc.c
cfn=(3) __rustc::__rust_alloc'<alloc::vec::Vec<T> as core::clone::Clone>::clone'admit
calls=2 1
* 60
fl=(2)
fn=(2)
1 900
cfn=(4) __rustc::__rust_realloc'alloc::raw_vec::finish_grow'key'admit
calls=1 1
* 30
fi=(3) /registry/src/index/tokio-util-0.7.18/src/time.rs
5 50
fi=(4) /toolchain/library/stdarch/crates/core_arch/src/simd.rs
5 50
fe=(2)
-1 5
fl=(5)
fn=(3)
1 90
totals: 1105
";

    #[test]
    fn costs_are_counted_in_the_file_that_holds_the_code_and_calls_are_not() {
        let profile = Profile::parse(ONE);
        assert_eq!(profile.instructions(), 1_105);
        let mut own: Vec<_> = profile.own_files().collect();
        own.sort_unstable();
        assert_eq!(
            own,
            [
                ("tollgate-tower/src/gate.rs", 10),
                ("tollgate/src/key.rs", 905)
            ]
        );
    }

    #[test]
    fn each_crate_has_its_instructions_and_each_function_its_allocations() {
        let profile = Profile::parse(ONE);
        let allocations: Vec<_> = profile.allocations().into_iter().collect();
        assert_eq!(allocations, [("admit", 2), ("key", 1)]);
        let crates: Vec<_> = profile.crates().into_iter().collect();
        let expected = [
            ("std", 50),
            ("the allocator", 90),
            ("tokio-util", 50),
            ("tollgate", 905),
            ("tollgate-tower", 10),
        ];
        assert_eq!(crates, expected);
    }
}
