//! The pages for contributors, and the comparison, name what exists.

use std::{collections::BTreeSet, fs, path::Path};

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

#[test]
fn every_figure_of_the_comparison_stands_on_the_page_of_measurements() {
    let (page, measured) = (
        page("docs/comparison.md"),
        page("docs/contributors/benchmarks.md"),
    );
    let rows: Vec<_> = code(&page)
        .into_iter()
        .filter(|code| code.starts_with("\\|"))
        .collect();
    assert!(rows.len() > 10, "{rows:?}");
    for row in rows {
        let row = row.replace("\\|", "|");
        assert!(
            measured.contains(&row),
            "docs/contributors/benchmarks.md has no row that begins with {row:?}: after a new run, correct the figures of \
             docs/comparison.md"
        );
    }
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
