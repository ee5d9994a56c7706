//! Reads the files of callgrind: how many instructions the code of each source file ran.
//!
//! Source: <https://valgrind.org/docs/manual/cl-format.html>.

use std::collections::HashMap;

/// Begins the folder of a crate of the product, within a path. The standard library has a folder of
/// crates, too.
const CRATES: &str = "/crates/tollgate";

/// Holds what the code of each source file cost in a run.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    /// Instructions, by the path of the file.
    instructions: HashMap<String, u64>,
}

/// A source file of the product that works for requests.
#[derive(Debug, PartialEq)]
pub(crate) struct File {
    /// The path below the folder of the crates.
    pub(crate) path: String,
    /// Instructions per request.
    pub(crate) instructions: f64,
}

impl Profile {
    /// Reads a file of callgrind. Calls are left out: the instructions of the called function are
    /// counted in its own file.
    pub(crate) fn parse(text: &str) -> Self {
        let mut profile = Self::default();
        let mut names = HashMap::new();
        let mut current = String::new();
        let mut is_call = false;
        for line in text.lines() {
            if line.starts_with("calls=") {
                is_call = true;
            } else if let Some((word, name)) = line.split_once('=') {
                // The second time, a name is written as its number alone.
                let (number, path) = name.split_once(' ').unwrap_or((name, ""));
                if matches!(word, "fl" | "fi" | "fe" | "cfi" | "cfl") {
                    if !path.is_empty() {
                        names.insert(number, path);
                    }
                    if word.starts_with('f') {
                        current = names.get(number).copied().unwrap_or(number).to_owned();
                    }
                }
            } else if let Some(cost) = cost(line)
                && !std::mem::take(&mut is_call)
            {
                *profile.instructions.entry(current.clone()).or_default() += cost;
            }
        }
        profile
    }

    /// Returns the files of the product that cost more than in an earlier run, the dearest first.
    pub(crate) fn since(&self, earlier: &Self, requests: u64) -> Vec<File> {
        let mut files: Vec<File> = self
            .instructions
            .iter()
            .filter_map(|(path, now)| {
                let at = path.find(CRATES)? + "/crates/".len();
                let more = now.saturating_sub(earlier.instructions.get(path).copied().unwrap_or(0));
                (more > 0).then(|| File {
                    path: path[at..].to_owned(),
                    instructions: more as f64 / requests as f64,
                })
            })
            .collect();
        files.sort_by(|one, other| other.instructions.total_cmp(&one.instructions));
        files
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
fl=(1) /house/crates/tollgate/src/gate.rs
fn=(1) admit
10 7
+2 3
cfi=(2) /house/crates/tollgate/src/key.rs
cfn=(2) key
calls=4 1
* 900
fl=(2)
fn=(2)
1 900
fi=(3) /registry/tokio/src/time.rs
5 50
fi=(4) /toolchain/library/stdarch/crates/core_arch/src/simd.rs
5 50
fe=(2)
-1 5
totals: 1015
";

    #[test]
    fn costs_are_counted_in_the_file_that_holds_the_code_and_calls_are_not() {
        let files = Profile::parse(ONE).since(&Profile::default(), 5);
        let expected = [
            ("tollgate/src/key.rs", 181.0),
            ("tollgate/src/gate.rs", 2.0),
        ];
        let expected = expected.map(|(path, instructions)| File {
            path: path.to_owned(),
            instructions,
        });
        assert_eq!(files, expected);
    }

    #[test]
    fn what_costs_the_same_in_both_runs_is_no_work_for_requests() {
        let one = Profile::parse(ONE);
        let many = Profile::parse(
            &ONE.replace("* 900", "* 1900")
                .replace("\n1 900", "\n1 1900"),
        );
        let files = many.since(&one, 100);
        assert_eq!(
            files,
            [File {
                path: "tollgate/src/key.rs".to_owned(),
                instructions: 10.0
            }]
        );
    }
}
