//! The pages for contributors, and the comparison, name what exists.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace is above")
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the pieces of code in a page: text in backticks outside of blocks.
fn code(page: &str) -> Vec<&str> {
    let prose = page.split("```").step_by(2);
    prose
        .flat_map(|text| text.split('`').skip(1).step_by(2))
        .collect()
}

/// Returns the labels of footnotes that a text refers to, and those that it defines.
fn footnotes(page: &str) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let (mut used, mut defined) = (BTreeSet::new(), BTreeSet::new());
    for line in page.lines() {
        for (at, rest) in line.split("[^").enumerate().skip(1) {
            let Some((label, after)) = rest.split_once(']') else {
                continue;
            };
            let is_definition = at == 1 && line.starts_with("[^") && after.starts_with(':');
            if is_definition {
                defined.insert(label)
            } else {
                used.insert(label)
            };
        }
    }
    (used, defined)
}

/// Returns the cells of other limiters that have neither a source nor a dash. The first column is
/// the feature, and the second may be Tollgate.
fn without_source(table: &str) -> Vec<&str> {
    let ours = if table.contains("| | Tollgate |") {
        2
    } else {
        1
    };
    let rows = table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| |"));
    let cells = rows.flat_map(|row| row.trim_matches('|').split(" | ").skip(ours));
    cells
        .map(str::trim)
        .filter(|cell| !cell.starts_with('–') && !cell.contains("[^"))
        .collect()
}

#[test]
fn tests_in_the_page_about_security_exist() {
    let page = page("SECURITY.md");
    let named: Vec<_> = code(&page)
        .into_iter()
        .filter_map(|code| code.split_once(".rs::"))
        .collect();
    assert!(named.len() >= 5, "{named:?}");
    for (file, function) in named {
        let path = root().join("tests/tests").join(format!("{file}.rs"));
        let source =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(
            source.contains(&format!("fn {function}(")),
            "{file}.rs has no test {function}"
        );
    }
}

#[test]
fn every_cell_of_the_comparison_has_a_source() {
    let page = page("docs/comparison.md");
    for heading in [
        "## Libraries for Rust",
        "## Further libraries for Rust",
        "## Gateways, services and other languages",
    ] {
        let (_, rest) = page.split_once(heading).expect("the heading exists");
        let table = rest.split("\n## ").next().unwrap_or(rest);
        assert!(
            table.lines().filter(|line| line.starts_with("| ")).count() > 10,
            "{heading}"
        );
        assert_eq!(without_source(table), [""; 0], "{heading}");
    }
    let (used, defined) = footnotes(&page);
    assert!(used.len() > 80, "{}", used.len());
    assert_eq!(
        used, defined,
        "each footnote is used, and each reference has its footnote"
    );
}

/// Figures of pages, and the rows of the measurements that they come from.
const FIGURES: &str = "\
docs/comparison.md: 2.35 × the time <- | tollgate, token bucket | 128 | 2.35 |
docs/comparison.md: 3.24 × | <- | tollgate, token bucket | 237 | 3.24 |
docs/comparison.md: 92.9 and 101 bytes <- | tollgate | 92.9 |
docs/comparison.md: 92.9 and 101 bytes <- | governor | 101 |
docs/comparison.md: 1.34 × the time <- | tollgate, 2 fields | 663 | 582 | 1.34 |
docs/comparison.md: 0.06 × | <- | tollgate, 5 fields, problem document | 999 | 925 | 0.06 |
docs/comparison.md: 1.34 and 2.45 × <- | tower-rate-limiter, 2 fields | 1088 | 1022 | 2.45 |
docs/comparison.md: 0.87, 0.86 and 2.08 × <- | 1 | shared connection, redis-cell | 8484 | 0.87 |
docs/comparison.md: 0.87, 0.86 and 2.08 × <- | 16 | shared connection, redis-cell | 165 k | 0.86 |
docs/comparison.md: 0.87, 0.86 and 2.08 × <- | 256 | shared connection, redis-cell | 179 k | 2.08 |
docs/comparison.md: 1.04 and 3.05 × <- | 1 | tower-rate-tier | 8879 | 1.04 |
docs/comparison.md: 1.04 and 3.05 × <- | 256 | tower-rate-tier | 123 k | 3.05 |
docs/comparison.md: 1.41 and 2.93 × <- | 16 | tower-rate-limiter | 84 k | 1.41 |
docs/comparison.md: 1.41 and 2.93 × <- | 256 | tower-rate-limiter | 132 k | 2.93 |
docs/comparison.md: 1.11 and 2.98 × <- | 16 | throttle-kit | 106 k | 1.11 |
docs/comparison.md: 1.11 and 2.98 × <- | 256 | throttle-kit | 130 k | 2.98 |
docs/comparison.md: 2.67 and 3.17 × <- | 256 | tower-rate-limit-redis | 155 k | 2.67 |
docs/comparison.md: 2.67 and 3.17 × <- | 256 | tower-rate-limit-fred | 121 k | 3.17 |
docs/comparison.md: 3.07 × <- | 256 | shared connection, two round trips | 111 k | 3.07 |
docs/comparison.md: 3.36 and 6.93 × <- shape of Spring's request_rate_limiter) | 11.7 | 6.93 |
docs/comparison.md: 0.79 and 0.81 of <- | tower_governor, in process | 87 k | 0.81 |
docs/comparison.md: 0.75 and 0.28 | <- | tower_governor, in process | 29 k | 0.28 |
docs/comparison.md: 0.56 and 0.36 of <- | tower-rate-limiter, Redis | 38 k | 0.36 |
README.md: 105 µs <- | 1 | tollgate | 9253 | 1.00 | 48.7 | 53.8 | 105 |
README.md: 102 µs <- | 1 | shared connection, same script | 9091 | 0.96 | 42.5 | 54.4 | 102 |";

#[test]
fn figures_of_pages_are_those_of_the_last_run() {
    let measured = page("docs/contributors/results/benchmarks.txt");
    for line in FIGURES.lines() {
        let (name, rest) = line.split_once(": ").expect("a page");
        let (figure, row) = rest.split_once(" <- ").expect("a figure and its row");
        assert!(page(name).contains(figure), "{name} lacks {figure:?}");
        assert!(
            measured.contains(row),
            "the last run has no row with {row:?}: correct {figure:?} in {name}"
        );
    }
}

/// Returns the blocks of Rust in a page: the words behind the three ticks, and the code.
fn blocks(page: &str) -> impl Iterator<Item = (&str, &str)> {
    let blocks = page.split("\n```").skip(1).step_by(2);
    blocks
        .filter_map(|block| block.split_once('\n'))
        .filter(|(words, _)| words.starts_with("rust"))
}

/// Returns whether rustdoc hides a line of this code, which readers of the page see.
fn hides_a_line(code: &str) -> bool {
    code.lines()
        .map(str::trim_start)
        .any(|line| line == "#" || line.starts_with("# "))
}

#[test]
fn code_on_pages_hides_no_line_and_is_a_test() {
    let list = Command::new("git")
        .args(["ls-files", "*.md", "*.rs"])
        .current_dir(root())
        .output()
        .expect("git lists the files");
    let list = String::from_utf8(list.stdout).expect("names are UTF-8");
    let exists = |name: &&str| root().join(name).is_file();
    let (pages, sources): (Vec<_>, Vec<_>) = list
        .lines()
        .filter(exists)
        .partition(|name| name.ends_with(".md"));
    let sources: Vec<_> = sources.into_iter().map(page).collect();
    let mut with_code = 0;
    for name in pages {
        let text = page(name);
        for (words, code) in blocks(&text) {
            with_code += 1;
            assert!(!hides_a_line(code), "{name} hides a line of\n{code}");
            assert!(!words.contains("ignore"), "{name} does not compile\n{code}");
            let file = name.rsplit('/').next().unwrap_or(name);
            let included = [format!("/{file}\")"), format!("(\"{file}\")")];
            assert!(
                sources
                    .iter()
                    .any(|source| included.iter().any(|it| source.contains(it))),
                "no source includes {name} as a test of its code"
            );
        }
    }
    assert!(with_code > 40, "{with_code}");
}

#[test]
fn pages_that_count_the_algorithms_count_those_that_exist() {
    const WORDS: [&str; 8] = [
        "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen",
    ];
    let rows = page("crates/tollgate/src/model/algorithm/mod.rs");
    let count = rows
        .lines()
        .filter(|line| line.contains(" => ") && line.ends_with("\","))
        .count();
    let (algorithms, expected) = (page("docs/algorithms.md"), WORDS[count - 7]);
    let (table, sections) = algorithms
        .split_once("## How to choose")
        .expect("the heading exists");
    assert_eq!(
        table.lines().filter(|line| line.starts_with("| [")).count(),
        count,
        "rows of docs/algorithms.md"
    );
    assert_eq!(
        sections.matches("\n- *Guarantee*").count(),
        count,
        "sections of docs/algorithms.md"
    );
    for name in [
        "CHANGELOG.md",
        "crates/tollgate/README.md",
        "docs/comparison.md",
    ] {
        let page = page(name).to_lowercase();
        let phrases = |word: &str| {
            [
                format!("{word} algorithms"),
                format!("[{word}](algorithms.md)"),
            ]
        };
        let counts: Vec<_> = WORDS
            .into_iter()
            .filter(|word| phrases(word).iter().any(|it| page.contains(it)))
            .collect();
        assert_eq!(counts, [expected], "{name}");
    }
}

#[test]
fn a_cell_without_a_source_and_an_unused_footnote_are_found() {
    let table = "| | Tollgate | it |\n|---|---|---|\n| form | ours | its[^a] |\n| clock | ours | its |\n| cost | ours | – |";
    assert_eq!(without_source(table), ["its"]);
    assert_eq!(
        without_source("| | it | her |\n|---|---|---|\n| form | its | hers[^a] |"),
        ["its"]
    );
    let (used, defined) = footnotes("| x[^a] | y[^b] |\n\n[^a]: there, and [^c].\n[^d]: never.");
    assert_eq!(used.into_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(defined.into_iter().collect::<Vec<_>>(), ["a", "d"]);
}

#[test]
fn a_hidden_line_is_found() {
    let text = "text\n\n```rust,no_run\n#[derive(Debug)]\nstruct A;\n```\n\n```sh\n# a comment\n```\n\n```rust\n  # let b = 1;\n```\n";
    let found: Vec<_> = blocks(text).map(|(_, code)| hides_a_line(code)).collect();
    assert_eq!(found, [false, true]);
}
