//! Checks that `docs/comparison.md` has a source for what it says of other limiters, and that its
//! figures are those of the last run.

use std::collections::BTreeSet;

use super::page;

/// A statement about a limiter: who, the feature, and what the cell says.
type Statement = (String, String, String);

/// Returns the statements of a table, whose first column has the features.
fn statements(table: &str) -> Vec<Statement> {
    let cells = |row: &str| -> Vec<_> {
        let row = row.trim().trim_matches('|');
        row.split(" | ")
            .map(|cell| cell.trim().replace('`', ""))
            .collect()
    };
    let mut rows = table.lines().filter(|line| line.starts_with("| "));
    let limiters = cells(rows.next().unwrap_or_default());
    let statements = rows.map(cells).flat_map(|row| {
        let feature = row[0].clone();
        let pairs: Vec<_> = limiters.iter().zip(row).skip(1).collect();
        pairs.into_iter().map(move |(limiter, cell)| {
            let limiter = limiter.trim_end_matches(" (server)").to_owned();
            (limiter, feature.clone(), cell)
        })
    });
    statements.collect()
}

/// Returns the limiters and features that have a source, in the lines behind the head.
fn sources(lines: &str) -> BTreeSet<(String, String)> {
    let sources = lines.lines().skip(1).flat_map(|line| {
        let cells: Vec<_> = line.split('\t').collect();
        let [limiter, features, source] = cells[..] else {
            panic!("three cells: {line}")
        };
        assert!(!source.is_empty(), "{line}");
        features
            .split("; ")
            .map(|feature| (limiter.to_owned(), feature.to_owned()))
            .collect::<Vec<_>>()
    });
    sources.collect()
}

/// Returns the statements about other limiters that have neither a source nor a dash.
fn without_source(
    statements: &[Statement],
    sources: &BTreeSet<(String, String)>,
) -> Vec<(String, String)> {
    let others = statements
        .iter()
        .filter(|(limiter, _, cell)| limiter != "Tollgate" && !cell.starts_with('–'));
    others
        .map(|(limiter, feature, _)| (limiter.clone(), feature.clone()))
        .filter(|pair| !sources.contains(pair))
        .collect()
}

#[test]
fn every_cell_of_the_comparison_has_a_source() {
    let comparison = page("docs/comparison.md");
    let sources = sources(&page("docs/comparison_sources.tsv"));
    let mut all = Vec::new();
    for heading in [
        "## Libraries for Rust",
        "## Further libraries for Rust",
        "## Gateways, services and other languages",
    ] {
        let (_, rest) = comparison.split_once(heading).expect("the heading exists");
        let found = statements(rest.split("\n## ").next().unwrap_or(rest));
        assert!(found.len() > 40, "{heading}");
        let missing = without_source(&found, &sources);
        assert!(missing.is_empty(), "{heading}: {missing:?}");
        all.extend(found);
    }
    for (limiter, feature) in sources {
        let is_stated = all
            .iter()
            .any(|(who, what, _)| (who, what) == (&limiter, &feature));
        assert!(
            is_stated || feature == "when to take it",
            "the comparison says nothing of {limiter}: {feature}"
        );
    }
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
docs/comparison.md: 0.89 and 0.91 of <- | tower_governor, in process | 78 k | 0.91 |
docs/comparison.md: 0.88 and 0.28 | <- | tower_governor, in process | 30 k | 0.28 |
docs/comparison.md: 0.61 and 0.45 of <- | tower-rate-limiter, Redis | 38 k | 0.45 |
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

#[test]
fn a_cell_without_a_source_is_found() {
    let sources = sources("limiter\trows\tsource\nit\tform; `x`\t`a.rs` 1\nher\tclock\t2\n");
    let table = "| | Tollgate | it (server) |\n|---|---|---|\n| form | ours | its |\n| clock | ours | its |\n| cost | ours | – |";
    let clock = |limiter: &str| (limiter.to_owned(), "clock".to_owned());
    assert_eq!(without_source(&statements(table), &sources), [clock("it")]);
    let table = "| | it | her |\n|---|---|---|\n| clock | its | hers |";
    assert_eq!(without_source(&statements(table), &sources), [clock("it")]);
}
