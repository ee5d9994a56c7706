//! The dashboard for Grafana asks for the metrics that the crates have, and for their labels.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

/// The suffixes that Prometheus adds to the name of a histogram.
const SUFFIXES: [&str; 3] = ["_bucket", "_count", "_sum"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace is above")
}

/// Returns the source files below a directory.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                sources(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// Splits a text into words of small letters, digits and `_`.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|sign: char| !(sign.is_ascii_lowercase() || sign.is_ascii_digit() || sign == '_'))
}

/// Returns the texts in the code of all crates that are names of metrics.
fn metrics_in_code() -> BTreeSet<String> {
    let crates = fs::read_dir(root().join("crates")).expect("the crates");
    let sources = crates.flat_map(|entry| sources(&entry.expect("a crate").path().join("src")));
    let sources =
        sources.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let is_metric = |text: &&str| text.starts_with("tollgate_") && words(text).count() == 1;
    let texts = |path: PathBuf| {
        let code = fs::read_to_string(path).expect("a source file");
        code.split('"')
            .filter(is_metric)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    sources.flat_map(texts).collect()
}

/// Returns the metrics in the tables of the crates' documentation, with their labels.
fn documented_metrics() -> BTreeMap<String, BTreeSet<String>> {
    let mut metrics = BTreeMap::new();
    for name in ["tollgate", "tollgate-rules", "tollgate-tower"] {
        let text = fs::read_to_string(root().join("crates").join(name).join("src/lib.rs"))
            .expect("a crate");
        for line in text.lines() {
            let mut cells = line.trim_start_matches("//! ").split('|').skip(1);
            let (Some(metric), Some(labels)) = (cells.next(), cells.next()) else {
                continue;
            };
            let Some(metric) = metric
                .trim()
                .strip_prefix("`tollgate_")
                .and_then(|name| name.strip_suffix('`'))
            else {
                continue;
            };
            let labels = words(labels)
                .filter(|label| !label.is_empty())
                .map(str::to_owned)
                .collect();
            metrics.insert(format!("tollgate_{metric}"), labels);
        }
    }
    metrics
}

/// Returns the queries of all panels and variables.
fn queries(dashboard: &Value) -> Vec<String> {
    let is_query = |name: &str| matches!(name, "expr" | "query" | "definition");
    match dashboard {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| match value {
                Value::String(query) if is_query(name) => vec![query.clone()],
                value => queries(value),
            })
            .collect(),
        Value::Array(values) => values.iter().flat_map(queries).collect(),
        _ => Vec::new(),
    }
}

fn dashboard() -> Value {
    let text =
        fs::read_to_string(root().join("docs/grafana/tollgate.json")).expect("the dashboard");
    serde_json::from_str(&text).expect("valid JSON")
}

/// Returns the metrics that a query names.
fn metrics_of(query: &str) -> BTreeSet<String> {
    let names = words(query).filter(|word| word.starts_with("tollgate_"));
    let metric = |name: &str| {
        let base = SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix));
        base.unwrap_or(name).to_owned()
    };
    names.map(metric).collect()
}

/// Returns the labels that a query names: in braces before an operator, and in parentheses after
/// `by`.
fn labels_of(query: &str) -> BTreeSet<String> {
    let between = |open: &str, close: char| {
        let parts = query
            .split(open)
            .skip(1)
            .map(move |rest| rest.split(close).next().unwrap_or_default());
        parts
            .flat_map(|part| part.split(','))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (selected, grouped) = (between("{", '}'), between("by (", ')'));
    let label = |text: &String| words(text.trim()).next().unwrap_or_default().to_owned();
    selected.iter().chain(&grouped).map(label).collect()
}

#[test]
fn the_dashboard_shows_every_metric_and_no_other() {
    let shown: BTreeSet<_> = queries(&dashboard())
        .iter()
        .flat_map(|query| metrics_of(query))
        .collect();
    let code = metrics_in_code();
    assert!(
        code.len() > 20,
        "the names of metrics are found in the code: {code:?}"
    );
    let unknown: Vec<_> = shown.difference(&code).collect();
    assert!(
        unknown.is_empty(),
        "the dashboard asks for metrics that do not exist: {unknown:?}"
    );
    let missing: Vec<_> = code.difference(&shown).collect();
    assert!(
        missing.is_empty(),
        "the dashboard does not show {missing:?}"
    );
}

#[test]
fn the_queries_of_the_dashboard_use_labels_that_all_their_metrics_have() {
    let documented = documented_metrics();
    for query in queries(&dashboard())
        .iter()
        .filter(|query| query.contains("tollgate_"))
    {
        let labels = labels_of(query);
        for metric in metrics_of(query) {
            let known = documented
                .get(&metric)
                .unwrap_or_else(|| panic!("{metric} has no documentation"));
            let unknown: Vec<_> = labels
                .iter()
                .filter(|label| *label != "le" && !known.contains(*label))
                .collect();
            assert!(
                unknown.is_empty(),
                "{metric} has no labels {unknown:?}: {query}"
            );
        }
    }
}

#[test]
fn every_metric_is_documented_and_every_documented_metric_exists() {
    let documented: BTreeSet<_> = documented_metrics().into_keys().collect();
    assert_eq!(documented, metrics_in_code());
    let operations = fs::read_to_string(root().join("docs/operations.md")).expect("the page");
    let named: BTreeSet<_> = words(&operations).collect();
    let missing: Vec<_> = documented
        .iter()
        .filter(|metric| !named.contains(metric.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/operations.md does not name {missing:?}"
    );
}

#[test]
fn panels_have_numbers_and_places_of_their_own() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<_> = panels
        .iter()
        .map(|panel| panel["id"].as_u64().expect("a number"))
        .collect();
    assert_eq!(ids.len(), panels.len());
    let mut places = BTreeSet::new();
    for panel in panels {
        let at = |field: &str| panel["gridPos"][field].as_u64().expect("a number");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(
                    x < 24 && places.insert((x, y)),
                    "{} overlaps another panel",
                    panel["title"]
                );
            }
        }
    }
}
