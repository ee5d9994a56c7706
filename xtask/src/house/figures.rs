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
docs/comparison.md: 1.64 × the time <- | tollgate, token bucket | 107 | 1.64 |
docs/comparison.md: 1.70 × | <- | tollgate, token bucket | 109 | 1.70 |
docs/comparison.md: 92.7 and 109 bytes <- | tollgate | 92.7 |
docs/comparison.md: 92.7 and 109 bytes <- | governor | 109 |
docs/comparison.md: 1.42 × the time <- | tollgate, 2 fields | 470 | 411 | 1.42 |
docs/comparison.md: 0.02 × | <- | tollgate, 5 fields, problem document | 613 | 553 | 0.02 |
docs/comparison.md: 1.42 and 2.63 × <- | tower-rate-limiter, 2 fields | 835 | 775 | 2.63 |
docs/comparison.md: 0.95, 1.11 and 1.51 × <- | 1 | shared connection, redis-cell | 10 k | 0.95 |
docs/comparison.md: 0.95, 1.11 and 1.51 × <- | 16 | shared connection, redis-cell | 129 k | 1.11 |
docs/comparison.md: 0.95, 1.11 and 1.51 × <- | 256 | shared connection, redis-cell | 421 k | 1.51 |
docs/comparison.md: 1.05 and 4.25 × <- | 1 | tower-rate-tier | 9192 | 1.05 |
docs/comparison.md: 1.05 and 4.25 × <- | 256 | tower-rate-tier | 151 k | 4.25 |
docs/comparison.md: 1.37 and 4.25 × <- | 16 | tower-rate-limiter | 114 k | 1.37 |
docs/comparison.md: 1.37 and 4.25 × <- | 256 | tower-rate-limiter | 145 k | 4.25 |
docs/comparison.md: 1.09 and 3.43 × <- | 16 | throttle-kit | 142 k | 1.09 |
docs/comparison.md: 1.09 and 3.43 × <- | 256 | throttle-kit | 173 k | 3.43 |
docs/comparison.md: 3.42 and 3.21 × <- | 256 | tower-rate-limit-redis | 173 k | 3.42 |
docs/comparison.md: 3.42 and 3.21 × <- | 256 | tower-rate-limit-fred | 184 k | 3.21 |
docs/comparison.md: 3.19 × <- | 256 | shared connection, two round trips | 196 k | 3.19 |
docs/comparison.md: 3.22 and 6.64 × <- shape of Spring's request_rate_limiter) | 8.25 | 6.64 |
docs/comparison.md: 0.85 and 0.86 of <- | tower_governor, in process | 155 k | 0.86 |
docs/comparison.md: 0.75 and 0.11 | <- | tower_governor, in process | 21 k | 0.11 |
docs/comparison.md: 0.56 and 0.41 of <- | tower-rate-limiter, Redis | 72 k | 0.41 |
README.md: 98 µs <- | 1 | tollgate | 9709 | 1.00 | 42.4 | 40.1 | 97.6 |
README.md: 96 µs <- | 1 | shared connection, same script | 9721 | 0.99 | 41.0 | 41.4 | 95.8 |";

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
