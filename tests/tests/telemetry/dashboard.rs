//! The dashboard for Grafana and the alerts for Prometheus ask for the metrics that the crates have,
//! and for their labels.

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
    for name in [
        "tollgate",
        "tollgate-outgoing",
        "tollgate-overload",
        "tollgate-rules",
        "tollgate-tower",
    ] {
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

fn alerts() -> Value {
    let text = fs::read_to_string(root().join("docs/grafana/alerts.yaml")).expect("the alerts");
    serde_saphyr::from_str(&text).expect("valid YAML")
}

/// Returns the pieces of a text between two signs.
fn between(text: &str, open: &str, close: &str) -> Vec<String> {
    let rests = text.split(open).skip(1);
    rests
        .map(|rest| rest.split(close).next().unwrap_or_default().to_owned())
        .collect()
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
    let (selected, grouped) = (between(query, "{", "}"), between(query, "by (", ")"));
    let label = |text: &str| words(text.trim()).next().unwrap_or_default().to_owned();
    let lists = selected.iter().chain(&grouped);
    lists.flat_map(|list| list.split(',')).map(label).collect()
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
fn queries_of_the_dashboard_and_of_alerts_use_labels_that_all_their_metrics_have() {
    let documented = documented_metrics();
    for query in queries(&dashboard())
        .iter()
        .chain(&queries(&alerts()))
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
fn every_reason_is_in_one_alert_and_texts_of_alerts_use_labels_that_their_queries_return() {
    let alerts = alerts();
    let rules = alerts["groups"][0]["rules"].as_array().expect("rules");
    let (mut names, mut alerted) = (BTreeSet::new(), BTreeMap::<String, usize>::new());
    for rule in rules {
        let query = rule["expr"].as_str().expect("a query");
        assert!(!metrics_of(query).is_empty(), "{query}");
        assert!(
            names.insert(rule["alert"].as_str()),
            "{} is there twice",
            rule["alert"]
        );
        let grouped = between(query, "by (", ")").join(",");
        let returned: BTreeSet<_> = grouped.split(',').map(str::trim).collect();
        let texts = rule["annotations"].to_string();
        for label in between(&texts, "$labels.", " ") {
            assert!(returned.contains(&*label), "{label} of {}", rule["alert"]);
        }
        if query.contains("tollgate_degraded_total") {
            let reasons = between(query, "tollgate_degraded_total{reason=~\"", "\"").join("|");
            for reason in reasons.split('|') {
                *alerted.entry(reason.to_owned()).or_default() += 1;
            }
        }
    }
    let operations = fs::read_to_string(root().join("docs/operations.md")).expect("the page");
    let (_, table) = operations.split_once("### Reasons").expect("the heading");
    let (table, _) = table.split_once("\n## ").expect("a heading after it");
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| row.split('|').nth(1).expect("a cell"));
    let listed: BTreeMap<_, _> = cells
        .flat_map(|cell| {
            cell.split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .filter(|reason| !["cost", "tollgate_errors_total"].contains(&&**reason))
        .map(|reason| (reason, 1))
        .collect();
    assert!(listed.len() > 20, "{listed:?}");
    assert_eq!(alerted, listed);
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
